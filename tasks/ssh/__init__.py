"""Hosts over SSH: many looked at side by side, and tests of nodes without Kubernetes by Ansible."""
