"""Tests of one node: host, GPUs, links, services, volumes."""
