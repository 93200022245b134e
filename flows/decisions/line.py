"""The waiting line of a queue: who comes before whom, who holds the quota. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workflows.sight import ClusterQueueSight, LocalQueueSight, QuotaSight, WorkloadSight


@dataclass(frozen=True)
class Line:
    """Everything of a namespace that has to do with queues."""

    now: float
    workloads: tuple[WorkloadSight, ...] = ()
    local_queues: tuple[LocalQueueSight, ...] = ()
    cluster_queues: tuple[ClusterQueueSight, ...] = ()
    unread: frozenset[str] = frozenset()
    """Kinds that could not be read: nothing is concluded from their absence."""

    def local_queue(self, workload: WorkloadSight) -> LocalQueueSight | None:
        """The workload's LocalQueue."""
        return next((item for item in self.local_queues if item.name == workload.queue), None)

    def cluster_queue_of(self, workload: WorkloadSight) -> str:
        """Name of its ClusterQueue; "" where it is not known."""
        local = self.local_queue(workload)
        return workload.cluster_queue or (local.cluster_queue if local else "")

    def cluster_queue(self, workload: WorkloadSight) -> ClusterQueueSight | None:
        """Its ClusterQueue."""
        name = self.cluster_queue_of(workload)
        return next((item for item in self.cluster_queues if item.name == name), None)


def finished(workload: WorkloadSight) -> bool:
    """Whether its job has ended."""
    return workload.holds("Finished")


def pending(workload: WorkloadSight) -> bool:
    """Whether it waits: neither admitted nor over nor put away."""
    return not (finished(workload) or workload.holds("QuotaReserved") or not workload.active)


def waits_since(workload: WorkloadSight) -> float:
    """The moment that counts in the line: when it was created, or evicted because its pods were not ready in time."""
    evicted = workload.condition("Evicted")
    late = evicted is not None and evicted.status == "True" and evicted.reason == "PodsReadyTimeout"
    at = evicted.at if evicted is not None and late else workload.created_at
    return at or 0.0


def in_order(workloads: Sequence[WorkloadSight]) -> list[WorkloadSight]:
    """As Kueue looks at them: higher priority first, then who waits longer."""
    return sorted(workloads, key=lambda item: (-item.priority, waits_since(item), item.name))


def position(workload: WorkloadSight, line: Line) -> tuple[int, int]:
    """(place counted from 1, how many wait) among those of the same queue that this namespace shows; 0: not in line."""
    queue = line.cluster_queue_of(workload) or workload.queue
    waiting = [
        item for item in line.workloads if pending(item) and (line.cluster_queue_of(item) or item.queue) == queue
    ]
    names = [item.name for item in in_order(waiting)]
    return (names.index(workload.name) + 1 if workload.name in names else 0), len(names)


def holders(workload: WorkloadSight, line: Line) -> list[WorkloadSight]:
    """Who holds quota of the same ClusterQueue, as far as this namespace shows it; the largest first."""
    queue = line.cluster_queue_of(workload)
    held = [item for item in line.workloads if item.cluster_queue and item.cluster_queue == queue]
    held = [item for item in held if item.name != workload.name and not finished(item)]
    return sorted(held, key=lambda item: (-item.gpus, item.name))


def quota(workload: WorkloadSight, line: Line, flavor: str, resource: str) -> QuotaSight | None:
    """The quota in question."""
    queue = line.cluster_queue(workload)
    quotas = queue.quotas if queue else ()
    return next((item for item in quotas if (item.flavor, item.resource) == (flavor, resource)), None)
