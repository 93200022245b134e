"""From values to manifests, by pure functions, and the values that tasks and flows share."""
