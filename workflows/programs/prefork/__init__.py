"""A parked process that has imported everything and forks ranks."""
