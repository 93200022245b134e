"""Tests of hosts without Kubernetes, by Ansible."""
