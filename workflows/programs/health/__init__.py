"""The health daemon of a node, with Autopilot's interface."""
