"""From YAML to values: reading, merging, overriding and checking profiles."""
