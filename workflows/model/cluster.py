"""What is seen of a run that may be waiting: the objects' own words, gathered by tasks, judged by `flows.decisions`.

Absent means not known. Times are Unix seconds; quantities keep their Kubernetes text (`8`, `500m`, `16Gi`).

What a living cluster has, as its objects say it: gathered by tasks, made a cluster profile by `flows.decisions`.

Absent means not known. Quantities keep their Kubernetes text (`8`, `3920m`, `24629308Ki`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from profiles.resolve import Resolved
from workflows.model.attempt import NodeFacts
from workflows.model.fleet import NodeCandidate
from workflows.model.records import Story

Quantities = Mapping[str, str]


@dataclass(frozen=True)
class ConditionFacts:
    """One entry of `status.conditions`."""

    type: str
    status: str
    """`True`, `False` or `Unknown`."""
    reason: str = ""
    message: str = ""
    at: float | None = None
    """Last transition."""


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
    conditions: tuple[ConditionFacts, ...] = ()
    containers: tuple[ContainerFacts, ...] = ()
    gates: tuple[str, ...] = ()
    """Scheduling gates that hold it."""
    requests: Quantities = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class EventSight:
    """One Kubernetes event."""

    kind: str
    name: str
    """Of the object it is about."""
    reason: str
    message: str
    at: float | None = None
    count: int = 1
    warning: bool = True


@dataclass(frozen=True)
class JobSetSight:
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
    conditions: tuple[ConditionFacts, ...] = ()
    pods: int = 0
    """Pods that it is to have."""
    gpus: int = 0
    """GPUs of all its pods together."""


@dataclass(frozen=True)
class CheckSight:
    """One admission check of a Workload."""

    name: str
    state: str
    """`Pending`, `Ready`, `Retry` or `Rejected`."""
    message: str = ""


@dataclass(frozen=True)
class WorkloadSight:
    """A Workload of Kueue."""

    name: str
    owner: str = ""
    """Name of the JobSet (or other job) that it stands for."""
    uid: str = ""
    queue: str = ""
    cluster_queue: str = ""
    """Where quota is reserved; "" where none is."""
    priority: int = 0
    priority_class: str = ""
    active: bool = True
    created_at: float | None = None
    conditions: tuple[ConditionFacts, ...] = ()
    checks: tuple[CheckSight, ...] = ()
    requeue_at: float | None = None
    """Not looked at again before."""
    requeues: int = 0
    gpus: int = 0
    requests: Quantities = field(default_factory=dict[str, str])
    """All pods together, by resource."""

    def condition(self, kind: str) -> ConditionFacts | None:
        """The condition of that type."""
        return next((item for item in self.conditions if item.type == kind), None)

    def holds(self, kind: str) -> bool:
        """Whether the condition of that type is True."""
        found = self.condition(kind)
        return found is not None and found.status == "True"


@dataclass(frozen=True)
class QuotaSight:
    """Quota of one resource in one flavor of a ClusterQueue."""

    flavor: str
    resource: str
    nominal: str
    borrowing_limit: str = ""
    """"" where there is none."""
    used: str = "0"
    reserved: str = "0"
    borrowed: str = "0"


@dataclass(frozen=True)
class LocalQueueSight:
    """A LocalQueue of the namespace."""

    name: str
    cluster_queue: str = ""
    stopped: str = ""
    """Its stop policy; "" where it is not stopped."""
    pending: int = 0
    admitted: int = 0
    conditions: tuple[ConditionFacts, ...] = ()


@dataclass(frozen=True)
class ClusterQueueSight:
    """A ClusterQueue."""

    name: str
    cohort: str = ""
    stopped: str = ""
    strategy: str = "BestEffortFIFO"
    pending: int = 0
    admitted: int = 0
    conditions: tuple[ConditionFacts, ...] = ()
    quotas: tuple[QuotaSight, ...] = ()


@dataclass(frozen=True)
class StepSight:
    """One node of the attempt's workflow that is not done."""

    name: str
    kind: str
    """Argo's type: `Pod`, `Suspend`, `DAG`, …"""
    phase: str
    message: str = ""


@dataclass(frozen=True)
class WorkflowSight:
    """The attempt's workflow."""

    name: str
    phase: str = ""
    """"" while no controller has looked at it."""
    message: str = ""
    suspended: bool = False
    created_at: float | None = None
    steps: tuple[StepSight, ...] = ()


@dataclass(frozen=True)
class ClaimSight:
    """A PersistentVolumeClaim."""

    name: str
    phase: str
    storage_class: str = ""


@dataclass(frozen=True)
class ClusterSight:
    """What the cluster has of one run. Kinds that could not be read are named, and never count as absent."""

    workflow: WorkflowSight | None = None
    jobset: JobSetSight | None = None
    workload: WorkloadSight | None = None
    pods: tuple[PodSight, ...] = ()
    """Of the newest attempt."""
    leftovers: tuple[PodSight, ...] = ()
    """Of earlier attempts, not ended yet."""
    events: tuple[EventSight, ...] = ()
    """About the attempt's objects, oldest first."""
    nodes: tuple[NodeFacts, ...] = ()
    """Those of the run's pool."""
    candidates: tuple[NodeCandidate, ...] = ()
    """The same with what the ledger knows and who uses them."""
    claims: tuple[ClaimSight, ...] = ()
    others: tuple[WorkloadSight, ...] = ()
    """Every Workload of the namespace."""
    local_queues: tuple[LocalQueueSight, ...] = ()
    cluster_queues: tuple[ClusterQueueSight, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()
    """(kind, why) of what the cluster would not tell us."""


@dataclass(frozen=True)
class QueueSight:
    """What waits and what runs in a cluster's namespace."""

    jobsets: tuple[JobSetSight, ...] = ()
    pods: tuple[PodSight, ...] = ()
    """Of all JobSets."""
    owners: Mapping[str, str] = field(default_factory=dict[str, str])
    """Pod -> its JobSet."""
    workloads: tuple[WorkloadSight, ...] = ()
    """Empty where Kueue is not there."""
    local_queues: tuple[LocalQueueSight, ...] = ()
    cluster_queues: tuple[ClusterQueueSight, ...] = ()
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
    steps_per_second: float | None = None


@dataclass(frozen=True)
class NodeStock:
    """A Node."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    taints: tuple[str, ...] = ()
    """As `key=value:Effect`; the value may be empty."""
    capacity: Quantities = field(default_factory=dict[str, str])
    """What is built in; devices that are broken still count."""
    allocatable: Quantities = field(default_factory=dict[str, str])
    """What pods may take now."""
    ready: bool | None = None
    cordoned: bool = False
    leaving: bool = False
    """It is being deleted."""


@dataclass(frozen=True)
class FlavorStock:
    """A ResourceFlavor of Kueue."""

    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict[str, str])
    topology: str = ""
    """Name of its Topology; "" where it has none."""


@dataclass(frozen=True)
class VolumeStock:
    """A PersistentVolumeClaim."""

    name: str
    phase: str = "Pending"
    modes: tuple[str, ...] = ()
    """Access modes, e.g. `ReadWriteMany`."""
    storage_class: str = ""
    size: str = ""
    """What was bound, else what is asked for."""


@dataclass(frozen=True)
class ServiceStock:
    """A Service of any namespace."""

    name: str
    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    ports: tuple[tuple[str, int], ...] = ()
    """(name, number) of each; the name may be empty."""


@dataclass(frozen=True)
class Inventory:
    """Everything an import looks at."""

    context: str
    """Context of the kubeconfig; "" inside a cluster."""
    namespace: str
    namespace_exists: bool | None = None
    """None: it may not be read."""
    nodes: tuple[NodeStock, ...] = ()
    flavors: tuple[FlavorStock, ...] = ()
    topologies: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Node labels of each Topology's levels by its name, the widest first."""
    local_queues: tuple[LocalQueueSight, ...] = ()
    cluster_queues: tuple[ClusterQueueSight, ...] = ()
    """Those of the local queues, as far as they may be read."""
    priority_classes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Kubernetes' own PriorityClasses with their values."""
    workload_priority_classes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Kueue's."""
    volumes: tuple[VolumeStock, ...] = ()
    storage_classes: tuple[tuple[str, str], ...] = ()
    """(name, provisioner) of each."""
    services: tuple[ServiceStock, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict[str, str])
    """Kinds that the cluster would not tell, each with its words: nothing is known of them."""
