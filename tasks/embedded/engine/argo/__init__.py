"""Argo's semantics: steps, DAGs, retries, outputs, hooks, validation."""
