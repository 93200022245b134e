"""The demo trainer: a small model on the processor, with collectives and faults on request."""
