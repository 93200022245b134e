"""From a living cluster to a cluster profile."""
