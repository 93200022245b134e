"""The embedded cluster: Argo Workflows and JobSets as local processes, all state on disk."""
