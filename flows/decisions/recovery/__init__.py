"""From a diagnosis to an action: policy, limits, nodes, checkpoints."""
