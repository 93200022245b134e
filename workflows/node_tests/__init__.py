"""Workflows and jobs that test nodes, volumes and the links between nodes."""
