"""From a diagnosis to an action: limits, nodes, how old a checkpoint may be."""
