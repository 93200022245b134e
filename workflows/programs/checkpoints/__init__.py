"""Which checkpoints there are, which are whole, and proofs of them."""
