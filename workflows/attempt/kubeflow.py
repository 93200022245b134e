"""The gang as a Kubeflow TrainJob (Trainer v2) or PyTorchJob (training operator), see docs/decisions/0012.

A TrainJob refers to a TrainingRuntime, which is our own JobSet as a template. What the profile says about the program
stands in the TrainJob, where users of Kubeflow look for it; the controller puts both together. A PyTorchJob knows a
master and workers, each one kind of pod. All our pods of ranks are alike, so all are workers; the coordinator is a Job
of its own.
"""

from __future__ import annotations

from typing import Any

from profiles.errors import ProfileError
from workflows import labels
from workflows.attempt import gang_pods
from workflows.attempt.gang_pods import PORT_NAME, RESUME_FROM, RESUME_STEP, Holder
from workflows.attempt.jobset import ENDLESS, INDEX_FIELD, KEEP_SECONDS, coordinator_host, gang_spec
from workflows.attempt.plan import AttemptPlan
from workflows.attempt.pods import Part

GROUP = "trainer.kubeflow.org"
TRAINJOB_API_VERSION = f"{GROUP}/v1alpha1"
TRAINJOB_CONTAINER = "node"
"""What the controller calls the container that the TrainJob describes."""
ANCESTOR = {f"{GROUP}/trainjob-ancestor-step": "trainer"}
"""Label of the replicated job that the TrainJob describes."""
MOST_ITEMS = 128
"""The definition takes so many words of a command, as many arguments, and as many variables."""

PYTORCHJOB_API_VERSION = "kubeflow.org/v1"
PYTORCHJOB_CONTAINER = "pytorch"
"""What the operator calls the container of the program; it refuses pods without one."""
PYTORCHJOB_INDEX_FIELD = "metadata.labels['training.kubeflow.org/replica-index']"
"""The operator numbers the workers from 0."""


def trainjob(plan: AttemptPlan, resume_from: str = "", resume_step: str = "") -> list[dict[str, Any]]:
    """The TrainingRuntime and the TrainJob, both called like the attempt; the runtime first: it must be there.

    `resume_from`, `resume_step`: values of PRIMUS_RESUME_FROM and PRIMUS_RESUME_STEP; empty: nothing to resume.

    Raises:
        ProfileError: the profile asks for something that cannot be written down, here or at all.
    """
    holder = Holder(coordinator_host(plan), INDEX_FIELD, TRAINJOB_CONTAINER, resume_from, resume_step)
    spec = gang_spec(plan, holder)
    ranks = next(job for job in spec["replicatedJobs"] if job["name"] == plan.role.name)
    container = _pod(ranks)["containers"][0]
    jobs = [_without_program(plan, job) if job is ranks else job for job in spec["replicatedJobs"]]
    return [_runtime(plan, {**spec, "replicatedJobs": jobs}), _trainjob_role(plan, container)]


def _runtime(plan: AttemptPlan, spec: Part) -> Part:
    metadata = gang_pods.metadata(plan)
    return {
        "apiVersion": TRAINJOB_API_VERSION,
        "kind": "TrainingRuntime",
        "metadata": metadata,
        "spec": {
            # No policy of a framework: our launcher and coordinator do what it would do. And no time to live: the
            # controller makes a failed TrainJob's JobSet anew when it is gone, and the training would start again.
            "mlPolicy": {"numNodes": plan.role.replicas},
            "template": {"metadata": {"labels": dict(metadata["labels"])}, "spec": spec},
        },
    }


def _trainjob_role(plan: AttemptPlan, container: Part) -> Part:
    launcher, program = _split(container["command"])
    environment = [item for item in container["env"] if item["name"] in _told(plan)]
    index = plan.resolved.run.roles.index(plan.role)
    _at_most(program, f"roles[{index}].command", "words in the command", "put them into a file that the program reads")
    _at_most(environment, f"roles[{index}].environment", "variables", "set some of them in the image")
    _at_most(launcher, "checkpoint.resume_argument", "words for the launcher", "shorten it")
    return {
        "apiVersion": TRAINJOB_API_VERSION,
        "kind": "TrainJob",
        "metadata": gang_pods.queued(plan),
        "spec": {
            "runtimeRef": {"apiGroup": GROUP, "kind": "TrainingRuntime", "name": plan.name},
            **gang_pods.deadline(plan),
            "trainer": {
                "numNodes": plan.role.replicas,
                "image": container["image"],
                "command": launcher,
                "args": program,
                "env": environment,
            },
        },
    }


def _split(command: list[str]) -> tuple[list[str], list[str]]:
    """The launcher with its options and the `--` after them; the program that it starts."""
    end = command.index("--") + 1
    return command[:end], command[end:]


def _without_program(plan: AttemptPlan, job: Part) -> Part:
    """The replicated job of the ranks, without what the TrainJob says."""
    template = job["template"]
    pod = template["spec"]["template"]
    container = {key: value for key, value in _pod(job)["containers"][0].items() if key not in ("image", "command")}
    container["env"] = [item for item in container["env"] if item["name"] not in _told(plan)]
    spec = {**template["spec"], "template": {**pod, "spec": {**pod["spec"], "containers": [container]}}}
    marks = {**template["metadata"]["labels"], **ANCESTOR}
    return {**job, "template": {"metadata": {"labels": marks}, "spec": spec}}


def _told(plan: AttemptPlan) -> set[str]:
    """Variables that the TrainJob sets: the controller appends them, so they may name those of the runtime."""
    role = plan.role
    return {RESUME_FROM, RESUME_STEP, *role.environment, *(item.name for item in role.secret_environment)}


def _pod(job: Part) -> Part:
    return job["template"]["spec"]["template"]["spec"]


def _at_most(items: list[Any], field: str, what: str, advice: str) -> None:
    if len(items) > MOST_ITEMS:
        raise ProfileError(field, f"{len(items)} {what}; a TrainJob takes {MOST_ITEMS}: {advice}, or use --as jobset")


def pytorchjob(plan: AttemptPlan, resume_from: str = "", resume_step: str = "") -> list[dict[str, Any]]:
    """The coordinator's Service and Job, and the PyTorchJob called like the attempt.

    `resume_from`, `resume_step`: values of PRIMUS_RESUME_FROM and PRIMUS_RESUME_STEP; empty: nothing to resume.

    Raises:
        ProfileError: the profile asks for something that cannot be written down, here or at all.
    """
    gang_pods.check(plan)
    _refuse_helpers(plan)
    holder = Holder(coordinator_name(plan), PYTORCHJOB_INDEX_FIELD, PYTORCHJOB_CONTAINER, resume_from, resume_step)
    return [_service(plan), _coordinator(plan), _pytorchjob_replica(plan, gang_pods.role_pod(plan, plan.role, holder))]


def coordinator_name(plan: AttemptPlan) -> str:
    """Name of the coordinator's Job and Service, and the host name under which pods reach it."""
    return f"{plan.name}-{labels.COORDINATOR_ROLE}"


def _refuse_helpers(plan: AttemptPlan) -> None:
    for index, role in enumerate(plan.resolved.run.roles):
        if role.name != plan.role.name:
            reason = f"{role.name!r} is a second role, and a PyTorchJob holds one kind of worker"
            raise ProfileError(f"roles[{index}]", f"{reason}: leave it out, or use --as jobset or --as trainjob")


def _pytorchjob_replica(plan: AttemptPlan, pod: Part) -> Part:
    role, run = plan.role, plan.resolved.run
    worker = {"replicas": role.replicas, "restartPolicy": "Never", "template": pod}
    return {
        "apiVersion": PYTORCHJOB_API_VERSION,
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
