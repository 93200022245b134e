"""One view and one parser for each kind of object that a run is made of: Pod, Event, JobSet, claim.

Absent means not known. Times are Unix seconds; quantities keep their Kubernetes text (`8`, `500m`, `16Gi`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING

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
from workflows.wire import Termination, from_json

if TYPE_CHECKING:
    from profiles.run import Role

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
LIVE = ("Pending", "Running")
"""Phases of pods that hold their node."""
NEVER_STARTED = frozenset({"StartError", "ContainerCannotRun"})
"""Reasons of containers that the runtime could not start: they leave no log, its own words tell why."""


@dataclass(frozen=True)
class Container:
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
    exit_code: int | None = None
    signal: int | None = None
    finished_at: float | None = None

    @property
    def went_wrong(self) -> bool:
        """Whether it ended badly, or waits for a reason."""
        return bool(self.exit_code) if self.state == "terminated" else self.state == "waiting" and bool(self.reason)


@dataclass(frozen=True)
class Pod:
    """A Pod; of a gang's pod, also what only the coordinator or a missing object shows."""

    name: str
    role: str = ""
    """Of the run; "" for pods that train nothing."""
    index: int = 0
    """Among the pods of its role."""
    node: str = ""
    phase: str = "Pending"
    """`Pending`, `Running`, `Succeeded`, `Failed`, or `Gone` where the object no longer exists."""
    reason: str = ""
    """Pod's or container's reason, e.g. `OOMKilled`, `NodeLost`, `Evicted`, `ErrImagePull`, `StartError`."""
    message: str = ""
    exit_code: int | None = None
    signal: int | None = None
    finished_at: float | None = None
    ranks: tuple[int, ...] = ()
    """See `ranked`."""
    disrupted: bool = False
    """Condition DisruptionTarget: evicted, preempted or drained on purpose."""
    unschedulable: str = ""
    """Message of the scheduler, "" where it was placed."""
    run: str = ""
    attempt: int = 0
    jobset: str = ""
    """Name of its JobSet."""
    created_at: float | None = None
    deleted_at: float | None = None
    """When its end was asked for (by us or others) before it ended; None: it was not."""
    conditions: tuple[Condition, ...] = ()
    containers: tuple[Container, ...] = ()
    """Init containers first."""
    gates: tuple[str, ...] = ()
    """Scheduling gates that hold it."""
    requests: Quantities = field(default_factory=dict[str, str], hash=False)
    termination: Termination | None = field(default=None, hash=False)
    """The summary that its launcher left; None where there is none or it is unreadable."""

    @property
    def deleted(self) -> bool:
        """Whether its end was asked for."""
        return self.deleted_at is not None

    @property
    def lives(self) -> bool:
        """Whether it holds its node."""
        return self.phase in LIVE

    @property
    def trains(self) -> bool:
        """Whether ranks live in it."""
        return self.role not in ("", labels.COORDINATOR_ROLE)

    def ranked(self, role: Role) -> Pod:
        """The same with its ranks, where it is of the role that decides."""
        if self.role != role.name:
            return self
        first = self.index * role.processes_per_node
        return replace(self, ranks=tuple(range(first, first + role.processes_per_node)))


def _asked_to_end(deleted: str, grace_seconds: object) -> float:
    """When a deletion was asked for: Kubernetes writes down when it will be enforced; 0 where that is unreadable."""
    return max(0.0, (seconds(deleted) or 0.0) - (grace_seconds if isinstance(grace_seconds, int) else 0))


def pod_of(pod: Json) -> Pod:
    """A Pod. The first container that went wrong speaks for it."""
    metadata, spec, status = part(pod, "metadata"), part(pod, "spec"), part(pod, "status")
    marks, found = part(metadata, "labels"), conditions(pod)
    containers = _containers(spec, status)
    speaker = next((item for item in containers if item.went_wrong), containers[-1] if containers else Container(""))
    # A message of a container that did start is the launcher's own: see `termination`.
    by_runtime = speaker.state == "waiting" or speaker.reason in NEVER_STARTED
    unplaced = next((item for item in found if item.type == "PodScheduled" and item.status == "False"), None)
    code, deleted = speaker.exit_code, metadata.get("deletionTimestamp")
    return Pod(
        name=metadata.get("name", ""),
        role=marks.get(labels.ROLE, ""),
        index=whole(marks.get(INDEX_LABEL)),
        node=spec.get("nodeName") or "",
        phase=status.get("phase") or "Pending",
        reason=status.get("reason") or speaker.reason,
        message=status.get("message") or (speaker.message if by_runtime else ""),
        exit_code=code,
        signal=speaker.signal or (code - 128 if isinstance(code, int) and code > 128 else None),
        finished_at=speaker.finished_at,
        disrupted=any(item.type == "DisruptionTarget" and item.status == "True" for item in found),
        unschedulable=unplaced.message if unplaced else "",
        run=marks.get(labels.RUN, ""),
        attempt=whole(marks.get(labels.ATTEMPT)),
        jobset=marks.get(JOBSET_LABEL, ""),
        created_at=seconds(metadata.get("creationTimestamp")),
        deleted_at=_asked_to_end(deleted, metadata.get("deletionGracePeriodSeconds")) if deleted is not None else None,
        conditions=found,
        containers=containers,
        gates=tuple(str(item.get("name", "")) for item in items(spec, "schedulingGates")),
        requests=plain(requests_of(spec)),
        termination=_termination(status),
    )


def _containers(spec: Json, status: Json) -> tuple[Container, ...]:
    asked = [*items(spec, "initContainers"), *items(spec, "containers")]
    images = {item.get("name", ""): item.get("image", "") for item in asked}
    states = [*items(status, "initContainerStatuses"), *items(status, "containerStatuses")]
    return tuple(_container(item, images) for item in states)


def _container(status: Json, images: Mapping[str, str]) -> Container:
    state = part(status, "state")
    word = next((word for word in ("running", "terminated", "waiting") if word in state), "waiting")
    current, last = part(state, word), part(status, "lastState", "terminated")
    return Container(
        name=status.get("name", ""),
        # The status names what was pulled; where nothing could be, the spec names what was asked for.
        image=images.get(status.get("name", ""), "") or status.get("image", ""),
        state=word,
        reason=current.get("reason") or "",
        message=current.get("message") or "",
        restarts=int(status.get("restartCount") or 0),
        last_exit=f"exit code {last.get('exitCode')} ({last.get('reason', '')})" if last else "",
        exit_code=current.get("exitCode"),
        signal=current.get("signal"),
        finished_at=seconds(current.get("finishedAt")),
    )


def _termination(status: Json) -> Termination | None:
    for item in items(status, "containerStatuses"):
        for life in ("state", "lastState"):
            if message := part(item, life, "terminated").get("message"):
                with suppress(ValueError):
                    return from_json(Termination, message)
    return None


def running_coordinator(pods: Iterable[Pod]) -> Pod | None:
    """The gang's coordinator that runs; None where none does."""
    return next((pod for pod in pods if pod.role == labels.COORDINATOR_ROLE and pod.phase == "Running"), None)


def users_of(pods: Iterable[Pod], run: str, attempt: int) -> dict[str, str]:
    """Nodes on which training pods of other runs or attempts live, with the name of that run."""
    others = (pod for pod in pods if (pod.run, pod.attempt) != (run, attempt))
    return {pod.node: pod.run for pod in others if pod.node and pod.trains and pod.lives}


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

    `priorities`: value of each priority class, where the cluster keeps no object for it.
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
