"""Asks running processes for their stacks and compares them."""
