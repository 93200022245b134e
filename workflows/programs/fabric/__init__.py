"""Tests between nodes: groups and pairs that exchange data."""
