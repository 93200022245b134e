"""Reads what vendors' and system tools print."""
