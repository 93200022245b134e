"""Objects that serve a whole cluster: the health service, its alerts, workspaces."""
