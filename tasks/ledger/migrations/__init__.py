"""Lays the ledger's tables, and changes them from release to release."""
