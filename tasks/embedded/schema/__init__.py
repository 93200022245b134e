"""Which fields of a manifest it takes, and which it refuses by name."""
