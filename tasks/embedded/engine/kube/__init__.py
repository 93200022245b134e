"""Pods, JobSets, placement and quantities."""
