"""Reads clusters: nodes, objects, queues, gangs, and what changes."""
