"""Commands around hosts that become clusters: bootstrap, inventories, mirrors."""
