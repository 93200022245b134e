"""The gang as a Kubeflow TrainJob (Trainer v2) and the TrainingRuntime that it refers to.

The runtime is our own JobSet as a template. What the profile says about the program stands in the TrainJob, where
users of Kubeflow look for it; the controller puts both together (docs/decisions/0012).
"""

from __future__ import annotations

from typing import Any

from profiles.errors import ProfileError
from workflows import gang_pods
from workflows.gang_pods import RESUME_FROM, RESUME_STEP, Holder
from workflows.jobset import INDEX_FIELD, coordinator_host, gang_spec
from workflows.plan import AttemptPlan
from workflows.pods import Part

GROUP = "trainer.kubeflow.org"
API_VERSION = f"{GROUP}/v1alpha1"
CONTAINER = "node"
"""What the controller calls the container that the TrainJob describes."""
ANCESTOR = {f"{GROUP}/trainjob-ancestor-step": "trainer"}
"""Label of the replicated job that the TrainJob describes."""
MOST_ITEMS = 128
"""The definition takes so many words of a command, as many arguments, and as many variables."""


def trainjob(plan: AttemptPlan, resume_from: str = "", resume_step: str = "") -> list[dict[str, Any]]:
    """The TrainingRuntime and the TrainJob, both called like the attempt; the runtime first: it must be there.

    Args:
        plan: the attempt.
        resume_from: value of PRIMUS_RESUME_FROM; empty: nothing to resume.
        resume_step: value of PRIMUS_RESUME_STEP, likewise.

    Raises:
        ProfileError: the profile asks for something that cannot be written down, here or at all.
    """
    holder = Holder(coordinator_host(plan), INDEX_FIELD, CONTAINER, resume_from, resume_step)
    spec = gang_spec(plan, holder)
    ranks = next(job for job in spec["replicatedJobs"] if job["name"] == plan.role.name)
    container = _pod(ranks)["containers"][0]
    jobs = [_without_program(plan, job) if job is ranks else job for job in spec["replicatedJobs"]]
    return [_runtime(plan, {**spec, "replicatedJobs": jobs}), _job(plan, container)]


def _runtime(plan: AttemptPlan, spec: Part) -> Part:
    metadata = gang_pods.metadata(plan)
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingRuntime",
        "metadata": metadata,
        "spec": {
            # No policy of a framework: our launcher and coordinator do what it would do. And no time to live: the
            # controller makes a failed TrainJob's JobSet anew when it is gone, and the training would start again.
            "mlPolicy": {"numNodes": plan.role.replicas},
            "template": {"metadata": {"labels": dict(metadata["labels"])}, "spec": spec},
        },
    }


def _job(plan: AttemptPlan, container: Part) -> Part:
    launcher, program = _split(container["command"])
    environment = [item for item in container["env"] if item["name"] in _told(plan)]
    index = plan.resolved.run.roles.index(plan.role)
    _at_most(program, f"roles[{index}].command", "words in the command", "put them into a file that the program reads")
    _at_most(environment, f"roles[{index}].environment", "variables", "set some of them in the image")
    _at_most(launcher, "checkpoint.resume_argument", "words for the launcher", "shorten it")
    return {
        "apiVersion": API_VERSION,
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
