"""Rules about a gang that Kubeflow's controllers run: what they would do behind our back."""

from __future__ import annotations

from collections.abc import Iterator

from workflows import gang_pods, lint_gang
from workflows.findings import Part, Subject, part, parts
from workflows.gang_pods import QUEUE
from workflows.jobset import KEEP_SECONDS
from workflows.pytorchjob import CONTAINER as PYTORCH
from workflows.trainjob import ANCESTOR, CONTAINER, GROUP

Wrong = Iterator[tuple[str, str]]

WORKER = "spec.pytorchReplicaSpecs.Worker"


def deadlines(subject: Subject) -> Wrong:
    """The gang ends with the wall time of the run's budget, and without one it does not end by itself."""
    field = "activeDeadlineSeconds"
    path, spec = ("spec", subject.spec) if subject.kind == "TrainJob" else _run_policy(subject)
    if subject.plan is not None and spec.get(field) != gang_pods.deadline(subject.plan).get(field):
        yield f"{path}.{field}", "must be the wall time of the budget, and not set without one"
    if subject.kind == "PyTorchJob" and spec.get("ttlSecondsAfterFinished") != KEEP_SECONDS:
        yield f"{path}.ttlSecondsAfterFinished", f"must be {KEEP_SECONDS}: nobody else deletes it"


def runtime(subject: Subject) -> Wrong:
    """A JobSet as ours, kept when it has ended, in which the controller finds the ranks."""
    yield from lint_gang.shape(subject)
    path, spec = subject.jobset
    if "ttlSecondsAfterFinished" in spec:
        yield f"{path}.ttlSecondsAfterFinished", "must not be set: the controller makes a failed one that is gone anew"
    if set(part(subject.spec, "mlPolicy")) != {"numNodes"}:
        yield "spec.mlPolicy", "must hold numNodes and no framework: our launcher starts the ranks"
    targets: list[str] = part(spec, "successPolicy").get("targetReplicatedJobs") or []
    described = [job for job in parts(spec, "replicatedJobs") if _is_described(job)]
    if [job["name"] for job in described] != targets:
        yield (
            f"{path}.replicatedJobs",
            "the role that decides, and no other, must be the one that the TrainJob describes",
        )


def _is_described(job: Part) -> bool:
    template = part(job, "template")
    pod = part(part(part(template, "spec"), "template"), "spec")
    marked = ANCESTOR.items() <= part(part(template, "metadata"), "labels").items()
    return marked and [container["name"] for container in parts(pod, "containers")] == [CONTAINER]


def trainjob(subject: Subject) -> Wrong:
    """It names its own runtime in full, and the size of the gang."""
    spec = subject.spec
    if spec.get("runtimeRef") != {"apiGroup": GROUP, "kind": "TrainingRuntime", "name": subject.name}:
        yield "spec.runtimeRef", "must name the TrainingRuntime that is called like it, with group and kind"
    if subject.plan is not None and part(spec, "trainer").get("numNodes") != subject.plan.role.replicas:
        yield "spec.trainer.numNodes", f"must be {subject.plan.role.replicas}, as the plan says"
    yield from _unsuspended("spec", spec)


def pytorchjob(subject: Subject) -> Wrong:
    """All pods are workers that are started once; what failed is kept."""
    spec, (path, policy) = subject.spec, _run_policy(subject)
    replicas = part(spec, "pytorchReplicaSpecs")
    if set(replicas) != {"Worker"}:
        yield "spec.pytorchReplicaSpecs", "must hold workers only: a master would decide alone"
    worker = part(replicas, "Worker")
    yield from ((f"{WORKER}.{field}", message) for field, message in _worker(worker))
    if subject.plan is not None and worker.get("replicas") != subject.plan.role.replicas:
        yield f"{WORKER}.replicas", f"must be {subject.plan.role.replicas}, as the plan says"
    if "elasticPolicy" in spec:
        yield "spec.elasticPolicy", "must not be set: one worker's success would be the gang's"
    yield from ((f"{path}.{field}", message) for field, message in _policy(policy, worker.get("replicas")))
    yield from _unsuspended(path, policy)


def _worker(worker: Part) -> Wrong:
    pod = part(part(worker, "template"), "spec")
    if worker.get("restartPolicy") != "Never":
        yield "restartPolicy", "must be Never: every attempt is a new PyTorchJob"
    if "restartPolicy" in pod:
        yield "template.spec.restartPolicy", "must not be set: the operator overwrites it"
    if [container["name"] for container in parts(pod, "containers")] != [PYTORCH]:
        yield "template.spec.containers", f"must be one that is called {PYTORCH}"


def _policy(policy: Part, workers: int | None) -> Wrong:
    if part(policy, "schedulingPolicy").get("minAvailable") != workers:
        yield "schedulingPolicy.minAvailable", "must be all workers"
    if "backoffLimit" in policy:
        yield "backoffLimit", "must not be set: the operator would delete the failed pods with all others"
    if policy.get("cleanPodPolicy") != "Running":
        yield "cleanPodPolicy", "must be Running: survivors end, and what failed is kept"


def coordinator(subject: Subject) -> Wrong:
    """It starts again on its own, and is admitted with nobody."""
    pod = part(part(subject.spec, "template"), "spec")
    if pod.get("restartPolicy") != "OnFailure":
        yield "spec.template.spec.restartPolicy", "must be OnFailure: its end must not end the gang"
    if QUEUE in part(part(subject.manifest, "metadata"), "labels"):
        yield "metadata.labels", f"{QUEUE} must not be set: it would be admitted and preempted apart from the gang"


def _unsuspended(path: str, spec: Part) -> Wrong:
    if "suspend" in spec:
        yield f"{path}.suspend", "must not be set: it is Kueue's, and applied again it would suspend a gang that runs"


def _run_policy(subject: Subject) -> tuple[str, Part]:
    return "spec.runPolicy", part(subject.spec, "runPolicy")
