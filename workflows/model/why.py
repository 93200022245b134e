"""What is looked at for `primus why` and `primus queue`: gathered by tasks, judged by `flows.decisions`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from profiles.resolve import Resolved
from workflows.model.cluster import Claim, Event, JobSet, Pod
from workflows.model.fleet import NodeCandidate
from workflows.model.nodes import Node
from workflows.model.queues import ClusterQueue, LocalQueue, Workload
from workflows.model.records import Lease, Story
from workflows.model.workflow import Workflow
from workflows.programs.progress.pace import StepRate


@dataclass(frozen=True)
class ClusterSight:
    """What the cluster has of one run. Kinds that could not be read are named, and never count as absent."""

    workflow: Workflow | None = None
    jobset: JobSet | None = None
    workload: Workload | None = None
    pods: tuple[Pod, ...] = ()
    """Of the newest attempt."""
    leftovers: tuple[Pod, ...] = ()
    """Of earlier attempts, not ended yet."""
    events: tuple[Event, ...] = ()
    """About the attempt's objects, oldest first."""
    nodes: tuple[Node, ...] = ()
    """Those of the run's pool."""
    candidates: tuple[NodeCandidate, ...] = ()
    """The same with what the ledger knows and who uses them."""
    claims: tuple[Claim, ...] = ()
    others: tuple[Workload, ...] = ()
    """Every Workload of the namespace."""
    local_queues: tuple[LocalQueue, ...] = ()
    cluster_queues: tuple[ClusterQueue, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()
    """(kind, why) of what the cluster would not tell us."""

    @cached_property
    def events_about(self) -> Mapping[str, list[Event]]:
        """The events by the name of what they are about, oldest first."""
        found: dict[str, list[Event]] = {}
        for event in self.events:
            found.setdefault(event.name, []).append(event)
        return found

    @cached_property
    def unready_nodes(self) -> Mapping[str, Node]:
        """Nodes that are not ready, by name."""
        return {node.name: node for node in self.nodes if node.ready is not True}


@dataclass(frozen=True)
class QueueSight:
    """What waits and what runs in a cluster's namespace."""

    jobsets: tuple[JobSet, ...] = ()
    pods: tuple[Pod, ...] = ()
    """Of all JobSets."""
    owners: Mapping[str, str] = field(default_factory=dict[str, str])
    """Pod -> its JobSet."""
    workloads: tuple[Workload, ...] = ()
    """Empty where Kueue is not there."""
    local_queues: tuple[LocalQueue, ...] = ()
    cluster_queues: tuple[ClusterQueue, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class DriverSight:
    """The process that drives the run."""

    alive: bool
    """Its process lives; on another host: its lease is renewed."""
    host: str = ""
    pid: int | None = None
    log: str = ""
    """Where a driver of this machine wrote its last words; "" where there is no such file."""
    end: str = ""
    """The last words of a driver of this machine that has ended; "" while one lives."""

    def told_end(self, lease: Lease | None) -> str:
        """What became of the driver, in its own words; "" while one lives, or where nothing is known of its end."""
        if self.alive or not self.end:
            return ""
        took = lease is not None and lease.driver.pid == self.pid
        return f"its driver, process {self.pid}, ended{'' if took else ' before it took the run'}: {self.end}"


@dataclass(frozen=True)
class RunSight:
    """Everything that says why a run stands where it stands."""

    now: float
    story: Story
    resolved: Resolved
    driver: DriverSight
    cluster: ClusterSight | None = None
    """None: it was not asked, or did not answer."""
    away: str = ""
    """Why the cluster did not answer; "" where it did or was not asked."""
    step: int | None = None
    last_step_at: float | None = None
    pace: StepRate | None = None
