"""What a node must show: checks, limits and suites."""
