"""Why a run waits, what stands in the queue, whether a cluster is fit."""
