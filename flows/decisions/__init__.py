"""Pure decisions over frozen values; no clock, no network, no Prefect."""
