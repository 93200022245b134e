"""The rules, one table per origin of the lines."""
