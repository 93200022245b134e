"""Sights of runs that wait, made by hand, with the words that kube-scheduler, kubelet and Kueue really use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from profiles.resolve import Resolved
from profiles.vocabulary import Mode, RunState
from tests.support.builders.attempt_plans import AMD, a_cluster, a_run
from tests.support.builders.nodes import a_node
from workflows.model.cluster import Container, Event, JobSet, Pod
from workflows.model.fleet import NodeCandidate
from workflows.model.manifest import Condition
from workflows.model.queues import ClusterQueue, LocalQueue, Quota, Workload
from workflows.model.records import AttemptRecord, Driver, Lease, RunRecord, Story
from workflows.model.why import ClusterSight, DriverSight, RunSight

NOW = 1000.0
GPU = "nvidia.com/gpu"
CLUSTER = a_cluster(AMD, engine="kubernetes", queue="team")
RESOLVED = Resolved(run=a_run(), cluster=CLUSTER, pool=CLUSTER.pools[0], hardware=AMD)
RUN = RunRecord("demo-1", RunState.PENDING, "submits attempt 1", "demo", {}, "d", "local", Mode.ACT, 0.0)
PLANNED = AttemptRecord("demo-1", 1, 10.0, "first", nodes=("node-0", "node-1"))
LIVE = replace(PLANNED, submitted_at=20.0, applied_at=30.0)
TRAINING = replace(LIVE, running_at=40.0, first_step=1, first_step_at=50.0, last_step=120)
LEASE = Lease("demo-1", 1, Driver("here", 4711, 1.0), NOW + 10)
JOBSET = JobSet("demo-1-a1", "demo-1", 1, queue="team", suspended=True, created_at=30.0, pods=3, gpus=16)


def told(kind: str, status: str, reason: str = "", message: str = "", at: float = 900.0) -> Condition:
    return Condition(kind, status, reason, message, at)


def workload(name: str = "jobset-demo-1-a1-1f2e3", **fields: Any) -> Workload:
    values = {"owner": "demo-1-a1", "queue": "team", "created_at": 31.0, "gpus": 16}
    return Workload(name, **(values | fields))


def refused(message: str, reason: str = "Pending", **fields: Any) -> Workload:
    """A workload for which Kueue found no flavor."""
    return workload(conditions=(told("QuotaReserved", "False", reason, message), *fields.pop("more", ())), **fields)


ADMITTED = workload(
    conditions=(told("QuotaReserved", "True", "QuotaReserved"), told("Admitted", "True", "Admitted")),
    cluster_queue="research",
)
LOCAL = LocalQueue("team", "research", conditions=(told("Active", "True", "Ready"),))
QUOTA = Quota("h200", GPU, "32", used="24", reserved="24", borrowed="0")
RESEARCH = ClusterQueue("research", conditions=(told("Active", "True", "Ready"),), quotas=(QUOTA,))


def pod(index: int = 0, **fields: Any) -> Pod:
    values = {"role": "trainer", "attempt": 1, "created_at": 30.0, "requests": {GPU: "8"}}
    return Pod(f"demo-1-a1-trainer-0-{index}-x", **(values | fields))


def unplaced(message: str, index: int = 0, reason: str = "Unschedulable", **fields: Any) -> Pod:
    return pod(index, conditions=(told("PodScheduled", "False", reason, message),), **fields)


def waiting(reason: str, message: str = "", index: int = 0, **fields: Any) -> Pod:
    """A placed pod whose container waits."""
    container = Container("trainer", "registry.local/train:v9", "waiting", reason, message, **fields)
    return pod(index, node=f"node-{index}", containers=(container,))


def running(count: int = 3) -> tuple[Pod, ...]:
    return tuple(pod(index, node=f"node-{index}", phase="Running") for index in range(count))


def event(reason: str, message: str, name: str = "demo-1-a1-trainer-0-0-x", kind: str = "Pod") -> Event:
    return Event(kind, name, reason, message, 950.0)


def cluster(**fields: Any) -> ClusterSight:
    """An attempt whose JobSet runs."""
    nodes = tuple(a_node(f"node-{index}", True) for index in range(3))
    candidates = (NodeCandidate("node-0", "main"), NodeCandidate("node-1", "main", quarantined="Xid 79 twice"))
    values = {"jobset": replace(JOBSET, suspended=False, queue=""), "nodes": nodes, "candidates": candidates}
    return ClusterSight(**(values | fields))


def queued(work: Workload | None, **fields: Any) -> ClusterSight:
    """An attempt whose JobSet waits for Kueue."""
    others = fields.pop("others", ())
    values = {
        "jobset": JOBSET,
        "workload": work,
        "others": (*((work,) if work else ()), *others),
        "local_queues": (LOCAL,),
        "cluster_queues": (RESEARCH,),
    }
    return ClusterSight(**(values | fields))


def sight(found: ClusterSight | None = None, attempt: AttemptRecord | None = LIVE, **fields: Any) -> RunSight:
    """A run with a living driver."""
    story = fields.pop("story", Story(RUN, attempts=() if attempt is None else (attempt,), lease=LEASE))
    values = {"driver": DriverSight(alive=True, host="here", pid=4711), "cluster": found}
    return RunSight(now=NOW, story=story, resolved=RESOLVED, **(values | fields))
