"""One view and one parser for each kind of object that a run is made of: Pod, Event, JobSet, claim.

Absent means not known. Times are Unix seconds; quantities keep their Kubernetes text (`8`, `500m`, `16Gi`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from workflows import labels
from workflows.model.manifest import (
    Condition,
    Json,
    Quantities,
    add,
    conditions,
    gpus_of,
    items,
    part,
    plain,
    requests_of,
    seconds,
    whole,
)

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
LIVE = ("Pending", "Running")
"""Phases of pods that hold their node."""


@dataclass(frozen=True)
class ContainerFacts:
    """One container of a pod, init containers included."""

    name: str
    image: str = ""
    state: str = "waiting"
    """`waiting`, `running` or `terminated`."""
    reason: str = ""
    message: str = ""
    restarts: int = 0
    last_exit: str = ""
    """How its last life ended, e.g. `exit code 1 (Error)`; "" where it had none."""


@dataclass(frozen=True)
class PodSight:
    """One pod of the attempt, training or pipeline."""

    name: str
    role: str = ""
    """"" for pods of a workflow."""
    attempt: int = 0
    node: str = ""
    phase: str = "Pending"
    created_at: float | None = None
    deleted_at: float | None = None
    """When its end was asked for; None: it was not."""
    conditions: tuple[Condition, ...] = ()
    containers: tuple[ContainerFacts, ...] = ()
    gates: tuple[str, ...] = ()
    """Scheduling gates that hold it."""
    requests: Quantities = field(default_factory=dict[str, str])


def pod_sight(pod: Json) -> PodSight:
    """A Pod."""
    metadata, spec, status = part(pod, "metadata"), part(pod, "spec"), part(pod, "status")
    marks = part(metadata, "labels")
    images = {item.get("name", ""): item.get("image", "") for item in _containers(spec)}
    states = [*items(status, "initContainerStatuses"), *items(status, "containerStatuses")]
    return PodSight(
        name=metadata.get("name", ""),
        role=marks.get(labels.ROLE, ""),
        attempt=whole(marks.get(labels.ATTEMPT)),
        node=spec.get("nodeName") or "",
        phase=status.get("phase") or "Pending",
        created_at=seconds(metadata.get("creationTimestamp")),
        deleted_at=seconds(metadata.get("deletionTimestamp")),
        conditions=conditions(pod),
        containers=tuple(_container(item, images) for item in states),
        gates=tuple(str(item.get("name", "")) for item in items(spec, "schedulingGates")),
        requests=plain(requests_of(spec)),
    )


def _containers(spec: Json) -> list[Json]:
    return [*items(spec, "initContainers"), *items(spec, "containers")]


def _container(status: Json, images: Mapping[str, str]) -> ContainerFacts:
    state = part(status, "state")
    word = next((word for word in ("running", "terminated", "waiting") if word in state), "waiting")
    told, last = part(state, word), part(status, "lastState", "terminated")
    ended = f"exit code {last.get('exitCode')} ({last.get('reason', '')})" if last else ""
    return ContainerFacts(
        name=status.get("name", ""),
        # The status names what was pulled; where nothing could be, the spec names what was asked for.
        image=images.get(status.get("name", ""), "") or status.get("image", ""),
        state=word,
        reason=told.get("reason") or "",
        message=told.get("message") or "",
        restarts=int(status.get("restartCount") or 0),
        last_exit=ended,
    )


@dataclass(frozen=True)
class Event:
    """One Kubernetes event."""

    kind: str
    name: str
    """Of the object it is about."""
    reason: str
    message: str
    at: float | None = None
    count: int = 1
    warning: bool = True


def event_of(event: Json) -> Event:
    """An Event, of the old series or the new."""
    about = part(event, "involvedObject") or part(event, "regarding")
    at = event.get("lastTimestamp") or part(event, "series").get("lastObservedTime") or event.get("eventTime")
    created = part(event, "metadata").get("creationTimestamp")
    return Event(
        kind=about.get("kind", ""),
        name=about.get("name", ""),
        reason=event.get("reason") or "",
        message=event.get("message") or event.get("note") or "",
        at=seconds(at or event.get("firstTimestamp") or created),
        count=int(event.get("count") or part(event, "series").get("count") or 1),
        warning=event.get("type") != "Normal",
    )


@dataclass(frozen=True)
class JobSet:
    """A JobSet."""

    name: str
    run: str = ""
    attempt: int = 0
    queue: str = ""
    """LocalQueue that its label names; "" where it names none."""
    priority: int = 0
    priority_class: str = ""
    suspended: bool = False
    state: str = "Running"
    """`Running`, `Completed` or `Failed`."""
    created_at: float | None = None
    conditions: tuple[Condition, ...] = ()
    pods: int = 0
    """Pods that it is to have."""
    gpus: int = 0
    """GPUs of all its pods together."""


def jobset_of(jobset: Json, priorities: Mapping[str, int] | None = None) -> JobSet:
    """A JobSet.

    Args:
        jobset: the object.
        priorities: value of each priority class, where the cluster keeps no object for it.
    """
    metadata, spec = part(jobset, "metadata"), part(jobset, "spec")
    marks = part(metadata, "labels")
    total: dict[str, Decimal] = {}
    pods, classes = 0, [marks.get(PRIORITY_LABEL, "")]
    for job in items(spec, "replicatedJobs"):
        template = part(job, "template", "spec")
        pod = part(template, "template", "spec")
        count = int(job.get("replicas", 1)) * int(template.get("parallelism", 1))
        pods += count
        classes.append(pod.get("priorityClassName") or "")
        add(total, requests_of(pod), count)
    priority_class = next((name for name in classes if name), "")
    return JobSet(
        name=metadata.get("name", ""),
        run=marks.get(labels.RUN, ""),
        attempt=whole(marks.get(labels.ATTEMPT)),
        queue=marks.get(QUEUE_LABEL, ""),
        priority=(priorities or {}).get(priority_class, 0),
        priority_class=priority_class,
        suspended=bool(spec.get("suspend")),
        state=jobset_state(jobset),
        created_at=seconds(metadata.get("creationTimestamp")),
        conditions=conditions(jobset),
        pods=pods,
        gpus=gpus_of(total),
    )


def jobset_state(jobset: Json) -> str:
    """`Completed`, `Failed` or `Running`."""
    status = part(jobset, "status")
    if status.get("terminalState") in ("Completed", "Failed"):
        return str(status["terminalState"])
    for item in items(status, "conditions"):
        if item.get("type") in ("Completed", "Failed") and item.get("status") == "True":
            return str(item["type"])
    return "Running"


@dataclass(frozen=True)
class Claim:
    """A PersistentVolumeClaim."""

    name: str
    phase: str = "Pending"
    modes: tuple[str, ...] = ()
    """Access modes, e.g. `ReadWriteMany`."""
    storage_class: str = ""
    size: str = ""
    """What was bound, else what is asked for."""


def claim_of(claim: Json) -> Claim:
    """A PersistentVolumeClaim."""
    spec, status = part(claim, "spec"), part(claim, "status")
    size = part(status, "capacity").get("storage") or part(spec, "resources", "requests").get("storage")
    return Claim(
        name=part(claim, "metadata").get("name", ""),
        phase=status.get("phase") or "Pending",
        modes=tuple(status.get("accessModes") or spec.get("accessModes") or ()),
        storage_class=spec.get("storageClassName") or "",
        size=str(size or ""),
    )
