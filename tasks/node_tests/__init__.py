"""Starts tests of nodes, volumes and links, and collects their results."""
