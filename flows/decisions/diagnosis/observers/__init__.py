"""Clues that need more than one line: comparisons of ranks, times, stacks."""
