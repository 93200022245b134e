"""Grades a node by limits, peers and its own history."""
