"""Pages for people: a run, a fleet, their plots."""
