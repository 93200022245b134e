"""What a rank's Python runs first, so that it can tell its stacks."""
