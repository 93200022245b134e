"""Tests of nodes as parts of flows: when they are due, how they run, what they prove."""
