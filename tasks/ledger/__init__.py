"""The durable history in SQL: runs, attempts, incidents, nodes, verdicts."""
