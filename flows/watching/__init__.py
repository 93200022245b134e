"""The monitor's rounds: nodes, reconciliation, sweeps."""
