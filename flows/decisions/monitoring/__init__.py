"""What the monitor finds: lost runs, faulty nodes, objects that are left over."""
