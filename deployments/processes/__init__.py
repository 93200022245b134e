"""Processes that outlive a command: drivers, the runner, the monitor's loop."""
