"""Next state from state and facts, without side effects."""
