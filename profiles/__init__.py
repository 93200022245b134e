"""What there is and what is wanted, as frozen values: runs, clusters, hardware, recovery, health."""
