"""Whether hosts are fit to become nodes, from what one look has told: each check by itself, three-valued."""
