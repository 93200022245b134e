"""The gang as a Kubeflow PyTorchJob (training operator), with its coordinator beside it.

A PyTorchJob knows a master and workers, each one kind of pod. All our pods of ranks are alike, so all are workers; the
coordinator is a Job of its own (docs/decisions/0012).
"""

from __future__ import annotations

from typing import Any

from profiles.errors import ProfileError
from workflows import gang_pods, labels
from workflows.gang_pods import PORT_NAME, Holder
from workflows.jobset import ENDLESS, KEEP_SECONDS
from workflows.plan import AttemptPlan
from workflows.pods import Part

API_VERSION = "kubeflow.org/v1"
CONTAINER = "pytorch"
"""What the operator calls the container of the program; it refuses pods without one."""
INDEX_FIELD = "metadata.labels['training.kubeflow.org/replica-index']"
"""The operator numbers the workers from 0."""


def pytorchjob(plan: AttemptPlan, resume_from: str = "", resume_step: str = "") -> list[dict[str, Any]]:
    """The coordinator's Service and Job, and the PyTorchJob called like the attempt.

    Args:
        plan: the attempt.
        resume_from: value of PRIMUS_RESUME_FROM; empty: nothing to resume.
        resume_step: value of PRIMUS_RESUME_STEP, likewise.

    Raises:
        ProfileError: the profile asks for something that cannot be written down, here or at all.
    """
    gang_pods.check(plan)
    _refuse_helpers(plan)
    holder = Holder(coordinator_name(plan), INDEX_FIELD, CONTAINER, resume_from, resume_step)
    return [_service(plan), _coordinator(plan), _job(plan, gang_pods.role_pod(plan, plan.role, holder))]


def coordinator_name(plan: AttemptPlan) -> str:
    """Name of the coordinator's Job and Service, and the host name under which pods reach it."""
    return f"{plan.name}-{labels.COORDINATOR_ROLE}"


def _refuse_helpers(plan: AttemptPlan) -> None:
    for index, role in enumerate(plan.resolved.run.roles):
        if role.name != plan.role.name:
            reason = f"{role.name!r} is a second role, and a PyTorchJob holds one kind of worker"
            raise ProfileError(f"roles[{index}]", f"{reason}: leave it out, or use --as jobset or --as trainjob")


def _job(plan: AttemptPlan, pod: Part) -> Part:
    role, run = plan.role, plan.resolved.run
    worker = {"replicas": role.replicas, "restartPolicy": "Never", "template": pod}
    return {
        "apiVersion": API_VERSION,
        "kind": "PyTorchJob",
        "metadata": gang_pods.queued(plan),
        "spec": {
            # No backoffLimit: with one, the operator deletes all pods at the first failure, whatever cleanPodPolicy
            # says, and with them the failed one's last words. No pod is started again anyway: restartPolicy Never.
            # No suspend either: Kueue sets and unsets it, and applying the same manifest again would suspend a gang
            # that runs.
            "runPolicy": {
                "cleanPodPolicy": "Running",
                "ttlSecondsAfterFinished": KEEP_SECONDS,
                **gang_pods.deadline(plan),
                "schedulingPolicy": {
                    "minAvailable": role.replicas,
                    **gang_pods.optional("priorityClass", run.priority),
                },
            },
            "nprocPerNode": str(role.processes_per_node),
            "pytorchReplicaSpecs": {"Worker": worker},
        },
    }


def _coordinator(plan: AttemptPlan) -> Part:
    pod = gang_pods.coordinator_pod(plan)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        # No label of a queue: it would be a workload of its own, admitted and preempted apart from the gang.
        "metadata": gang_pods.metadata(plan, coordinator_name(plan), labels.COORDINATOR_ROLE),
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": ENDLESS,
            "ttlSecondsAfterFinished": KEEP_SECONDS,
            "template": {**pod, "spec": {"restartPolicy": "OnFailure", **pod["spec"]}},
        },
    }


def _service(plan: AttemptPlan) -> Part:
    name = coordinator_name(plan)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": gang_pods.metadata(plan, name, labels.COORDINATOR_ROLE),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": gang_pods.pod_labels(plan, labels.COORDINATOR_ROLE),
            "ports": [{"name": PORT_NAME, "port": labels.COORDINATOR_PORT}],
        },
    }
