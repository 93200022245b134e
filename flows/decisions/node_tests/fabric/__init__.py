"""Which groups and pairs to test, and which node or link is to blame."""
