"""From logs and records to a fault class, a culprit and evidence."""
