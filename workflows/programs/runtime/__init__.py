"""What every program stands on: files, flags, HTTP, processes."""
