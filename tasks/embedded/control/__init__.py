"""Its controllers: placement, JobSets, workflows, nodes, the keeper."""
