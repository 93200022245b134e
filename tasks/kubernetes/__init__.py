"""The seam on a real cluster: the API server, watches, logs."""
