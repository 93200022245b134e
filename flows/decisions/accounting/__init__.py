"""Where every GPU-second went."""
