"""Its pods as processes: supervisor, containers, mounts, artifacts."""
