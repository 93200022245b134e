"""What a cluster is made of: hosts, networks, engine, releases, and the components that run on it."""
