"""From measurements of nodes to verdicts and actions."""
