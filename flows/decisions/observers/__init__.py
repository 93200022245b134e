"""Each module looks at many lines together; the list of all is in `flows.decisions.observe`."""
