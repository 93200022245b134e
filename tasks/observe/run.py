"""Looking at what a run or a queue waits for, through the seam. Touches nothing, concludes nothing; no Prefect here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from profiles.cluster import ClusterProfile
from profiles.errors import Permanent
from profiles.resolve import Resolved
from tasks.cluster import Cluster, Kind, Manifest, each
from tasks.observe.objects import node_candidate, pool_selector
from workflows import labels
from workflows.model.cluster import Event, Pod, claim_of, event_of, jobset_of, pod_of, users_of
from workflows.model.nodes import node_of
from workflows.model.queues import ClusterQueue, LocalQueue, Workload, cluster_queue_of, local_queue_of, workload_of
from workflows.model.records import AttemptRecord
from workflows.model.why import ClusterSight, QueueSight
from workflows.model.workflow import workflow_of


@dataclass
class ObjectReader:
    """Reads kinds, and remembers which ones the cluster would not list: those do not count as absent."""

    cluster: Cluster
    unread: dict[str, str] = field(default_factory=dict[str, str])

    def list(self, kind: Kind, selector: Mapping[str, str] | None = None) -> Sequence[Manifest]:
        """Objects of a kind; empty where we may not read it or the cluster does not serve it.

        Raises:
            Unavailable: the cluster does not answer.
        """
        try:
            return self.cluster.list(kind, selector)
        except Permanent as error:
            self.unread[kind] = str(error)
            return []

    def each(self, kind: Kind) -> Iterator[Manifest]:
        """The same one by one, so that ten thousand are never held at once; some may come twice.

        Raises:
            Unavailable: the cluster does not answer, or no longer.
        """
        try:
            yield from each(self.cluster, kind)
        except Permanent as error:
            self.unread[kind] = str(error)

    def get(self, kind: Kind, name: str) -> Manifest | None:
        """One object; None where there is none, or it may not be read.

        Raises:
            Unavailable: the cluster does not answer.
        """
        try:
            return self.cluster.get(kind, name)
        except Permanent as error:
            self.unread[kind] = str(error)
            return None


@dataclass(frozen=True)
class Queues:
    """What a namespace has of Kueue; empty where Kueue is not there."""

    workloads: tuple[Workload, ...] = ()
    local: tuple[LocalQueue, ...] = ()
    cluster: tuple[ClusterQueue, ...] = ()


def read_attempt(
    cluster: Cluster, resolved: Resolved, attempt: AttemptRecord, quarantined: Mapping[str, str]
) -> ClusterSight:
    """What the cluster has of an attempt. More is read only where something does not run yet.

    `quarantined` are the nodes that we took out of service, each with the reason.

    Raises:
        Unavailable: the cluster does not answer.
    """
    reader, name = ObjectReader(cluster), labels.attempt_name(attempt.run, attempt.number)
    found = reader.get("JobSet", name)
    jobset = None if found is None else jobset_of(found, resolved.cluster.priority_classes)
    workflow = reader.get("Workflow", name) if jobset is None else None
    pods = [pod_of(pod) for pod in reader.list("Pod", {labels.RUN: attempt.run})]
    own = tuple(pod for pod in pods if pod.attempt == attempt.number)
    nodes = reader.list("Node", pool_selector(resolved))
    queued = jobset is not None and bool(jobset.queue or jobset.suspended)
    queues = look_at_queues(reader, jobset.queue if jobset else "") if queued else Queues()
    starts = jobset is None or len(own) < jobset.pods or any(pod.phase == "Pending" for pod in own)
    unplaced = any(pod.phase == "Pending" and not pod.node for pod in own)
    busy = users_of(map(pod_of, reader.each("Pod")), attempt.run, attempt.number) if unplaced else {}
    return ClusterSight(
        workflow=None if workflow is None else workflow_of(workflow),
        jobset=jobset,
        workload=next((item for item in queues.workloads if jobset and item.owner == jobset.name), None),
        pods=own,
        leftovers=_leftovers(pods, attempt),
        events=tuple(_events(reader, name)) if starts else (),
        nodes=tuple(node_of(node) for node in nodes),
        candidates=tuple(node_candidate(node, resolved, busy, quarantined) for node in nodes) if unplaced else (),
        claims=tuple(claim_of(item) for item in reader.list("PersistentVolumeClaim")) if unplaced else (),
        others=queues.workloads,
        local_queues=queues.local,
        cluster_queues=queues.cluster,
        unread=tuple(sorted(reader.unread.items())),
    )


def _leftovers(pods: Sequence[Pod], attempt: AttemptRecord) -> tuple[Pod, ...]:
    """Pods that old ranks may still live in: of earlier attempts, and of this one once it has ended."""
    ended = attempt.ended_at is not None
    return tuple(pod for pod in pods if pod.role and pod.lives and (pod.attempt < attempt.number or ended))


def _events(reader: ObjectReader, name: str) -> list[Event]:
    """Events about the attempt's objects, whose names all begin with its own; the oldest first."""
    found: dict[str, Event] = {}
    for event in reader.each("Event"):
        sight = event_of(event)
        if f"{sight.name}-".startswith(f"{name}-"):
            found[event["metadata"]["name"]] = sight
    return sorted(found.values(), key=lambda item: item.at or 0.0)


def look_at_queues(reader: ObjectReader, queue: str = "") -> Queues:
    """Kueue's objects as far as they may be read.

    `queue` is a LocalQueue whose ClusterQueue is wanted; "" for those of all LocalQueues.

    Raises:
        Unavailable: the cluster does not answer.
    """
    workloads = tuple(workload_of(item) for item in reader.list("Workload"))
    local = tuple(local_queue_of(item) for item in reader.list("LocalQueue"))
    wanted = sorted({item.cluster_queue for item in local if item.cluster_queue and queue in ("", item.name)})
    # One by one: whoever may use a queue may often get it, and not list them all.
    found = [reader.get("ClusterQueue", name) for name in wanted]
    return Queues(workloads, local, tuple(cluster_queue_of(item) for item in found if item is not None))


def read_queues(cluster: Cluster, profile: ClusterProfile) -> QueueSight:
    """Everything that waits or runs there.

    Raises:
        Unavailable: the cluster does not answer.
    """
    reader = ObjectReader(cluster)
    jobsets = tuple(jobset_of(item, profile.priority_classes) for item in reader.list("JobSet"))
    queues = look_at_queues(reader)
    if not any(item.queue for item in jobsets):
        for kind in ("Workload", "LocalQueue"):
            reader.unread.pop(kind, None)  # nobody asks for a queue: that Kueue is not there is no gap
    pods: dict[str, Pod] = {}
    owners: dict[str, str] = {}
    for pod in map(pod_of, reader.each("Pod")):
        if pod.jobset:
            pods[pod.name], owners[pod.name] = pod, pod.jobset
    return QueueSight(
        workloads=queues.workloads,
        local_queues=queues.local,
        cluster_queues=queues.cluster,
        jobsets=jobsets,
        pods=tuple(pods[name] for name in sorted(pods)),
        owners=owners,
        unread=tuple(sorted(reader.unread.items())),
    )
