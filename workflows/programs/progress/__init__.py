"""Reads steps and phases from what trainers print."""
