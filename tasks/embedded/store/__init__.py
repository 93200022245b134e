"""Objects of the embedded cluster on disk: locks, changes, watches."""
