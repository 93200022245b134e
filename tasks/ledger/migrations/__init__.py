"""How older ledgers become the present one."""
