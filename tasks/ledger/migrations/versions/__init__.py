"""One step of the schema each."""
