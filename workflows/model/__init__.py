"""Frozen views of the world: records, cluster objects, nodes, runs, incidents."""
