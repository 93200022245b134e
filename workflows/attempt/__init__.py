"""The workflow of one attempt: plan, pods, JobSet or Kubeflow job, examination, trial."""
