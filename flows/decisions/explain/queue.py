"""Which gangs wait and run, in which order, and what blocks each: `primus queue`. Pure.

From Kueue's Workloads where there are any, and from JobSets for everything that Kueue does not hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from flows.decisions.explain.pod_reasons import node_reasons, pod_reasons
from flows.decisions.explain.queue_reasons import NamespaceQueues, finished, position, queue_reasons
from flows.decisions.explain.reasons import BLOCKS_FIRST, Hold, Reason
from workflows.model.cluster import JobSet, Pod
from workflows.model.queues import Workload
from workflows.model.why import ClusterSight, QueueSight

State = Literal["waiting", "starting", "running", "suspended"]
_ORDER: tuple[State, ...] = ("waiting", "suspended", "starting", "running")


@dataclass(frozen=True)
class Entry:
    """One gang in a queue."""

    name: str
    """Of its JobSet, or of the Workload of another kind of job."""
    state: State
    run: str = ""
    attempt: int = 0
    queue: str = ""
    cluster_queue: str = ""
    position: int = 0
    """Place in the waiting line, counted from 1; 0: it is not in line."""
    priority: int = 0
    priority_class: str = ""
    created_at: float | None = None
    gpus: int = 0
    pods: int = 0
    reasons: tuple[Reason, ...] = ()
    """What blocks it; empty where it runs."""


def entries(view: QueueSight, now: float) -> tuple[Entry, ...]:
    """Everything that has not ended: by queue, first what waits in its order, then what runs."""
    line = NamespaceQueues(
        now=now,
        workloads=view.workloads,
        local_queues=view.local_queues,
        cluster_queues=view.cluster_queues,
        unread=frozenset(kind for kind, _ in view.unread),
    )
    owned = {item.owner for item in view.workloads}
    jobsets = {item.name: item for item in reversed(view.jobsets)}
    pods: dict[str, list[Pod]] = {}
    for pod in view.pods:
        pods.setdefault(view.owners.get(pod.name, ""), []).append(pod)
    found = [
        _of_workload(item, jobsets.get(item.owner), pods.get(item.owner, []), line)
        for item in view.workloads
        if not finished(item)
    ]
    rest = [item for item in view.jobsets if item.name not in owned and item.state == "Running"]
    found += _without_kueue(rest, pods)
    return tuple(sorted(found, key=_place))


def _place(entry: Entry) -> tuple[str, int, int, int, float, str]:
    order = _ORDER.index(entry.state)
    return (entry.queue, order, entry.position, -entry.priority, entry.created_at or 0.0, entry.name)


def _of_workload(workload: Workload, jobset: JobSet | None, pods: list[Pod], line: NamespaceQueues) -> Entry:
    reasons = queue_reasons(workload, line)
    entry = Entry(
        name=workload.owner or workload.name,
        state="waiting" if workload.active else "suspended",
        run=jobset.run if jobset else "",
        attempt=jobset.attempt if jobset else 0,
        queue=workload.queue,
        cluster_queue=line.cluster_queue_of(workload),
        position=position(workload, line)[0],
        priority=workload.priority,
        priority_class=workload.priority_class,
        created_at=workload.created_at,
        gpus=workload.gpus,
        pods=jobset.pods if jobset else 0,
        reasons=reasons,
    )
    return entry if reasons else _admitted(entry, pods)


def _admitted(entry: Entry, pods: list[Pod]) -> Entry:
    """An entry that nothing holds but its pods."""
    living = [pod for pod in pods if pod.deleted_at is None and pod.role]
    reasons = _pod_reasons(living)
    running = bool(living) and all(pod.phase != "Pending" for pod in living) and not reasons
    return replace(entry, state="running" if running else "starting", reasons=reasons)


def _pod_reasons(pods: list[Pod]) -> tuple[Reason, ...]:
    cluster = ClusterSight(pods=tuple(pods))
    unplaced = [pod for pod in pods if pod.phase == "Pending" and not pod.node]
    placed = [pod for pod in pods if pod.phase in ("Pending", "Running") and pod.node]
    found = (*node_reasons(cluster, unplaced), *pod_reasons(cluster, placed))
    return tuple(sorted(found, key=lambda reason: BLOCKS_FIRST[reason.hold]))


def _without_kueue(jobsets: list[JobSet], pods_of: Mapping[str, list[Pod]]) -> list[Entry]:
    """JobSets that only the scheduler holds: they wait in the order in which it takes gangs."""
    found: list[Entry] = []
    for jobset in jobsets:
        pods = pods_of.get(jobset.name, [])
        entry = Entry(
            name=jobset.name,
            state="suspended",
            run=jobset.run,
            attempt=jobset.attempt,
            queue=jobset.queue,
            priority=jobset.priority,
            priority_class=jobset.priority_class,
            created_at=jobset.created_at,
            gpus=jobset.gpus,
            pods=jobset.pods,
        )
        if jobset.suspended:
            by = f"Kueue has made no Workload of it for queue {jobset.queue}" if jobset.queue else "suspended by hand"
            hold = Hold.UNQUEUED if jobset.queue else Hold.SUSPENDED
            found.append(replace(entry, reasons=(Reason(hold, by),)))
            continue
        entry = _admitted(entry, pods)
        waits = not pods or any(pod.phase == "Pending" and not pod.node for pod in pods)
        found.append(replace(entry, state="waiting") if waits else entry)
    waiting = sorted(
        (item for item in found if item.state == "waiting"),
        key=lambda item: (-item.priority, item.created_at or 0.0, item.name),
    )
    places = {item.name: place for place, item in enumerate(waiting, 1)}
    return [replace(item, position=places.get(item.name, 0)) for item in found]
