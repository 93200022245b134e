"""What the monitor finds: lost runs, faulty nodes, objects that nobody wants."""
