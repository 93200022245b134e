"""Why a run does not train: the closed list of reasons, and what each answer consists of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from workflows.model.cluster import Event
from workflows.model.manifest import Condition

Standing = Literal["finished", "running", "waiting", "unknown"]


class Hold(StrEnum):
    """What holds a run, in the order in which they block: an earlier one hides what later ones would do."""

    ENDED = "ended"
    """It has ended; nothing is waited for."""
    APPROVAL = "approval"
    PAUSED = "paused"
    OBSERVE = "observe"
    """Mode observe: decided and not done."""
    NO_DRIVER = "no-driver"
    """Nobody does the next thing."""
    CONTROL_PLANE = "control-plane"
    """The cluster does not answer: what it does is not known."""
    LEFTOVERS = "leftovers"
    """Pods of the attempt before do not end."""
    BACK_OFF = "back-off"
    """The decision says to wait."""
    DRIVER_WORKS = "driver-works"
    """Its driver is about to do the next thing."""
    WORKFLOW_UNSEEN = "workflow-unseen"
    """Argo's controller has not looked at the workflow."""
    WORKFLOW_FAILED = "workflow-failed"
    WORKFLOW_SUSPENDED = "workflow-suspended"
    SUSPENDED = "suspended"
    """A person suspended the JobSet."""
    UNQUEUED = "unqueued"
    """The JobSet waits for Kueue, and Kueue has not looked at it."""
    DEACTIVATED = "deactivated"
    QUEUE_MISSING = "queue-missing"
    QUEUE_STOPPED = "queue-stopped"
    REQUEUE_LATER = "requeue-later"
    """Kueue lets it rest after an eviction."""
    QUOTA_NEVER = "quota-never"
    """It asks for more than the queue can ever give."""
    FLAVOR = "flavor"
    """No ResourceFlavor fits its taints, selectors or topology."""
    TOPOLOGY = "topology"
    PREEMPTING = "preempting"
    """Others are being preempted for it."""
    QUOTA = "quota"
    PODS_READY = "pods-ready"
    """Kueue admits nobody before the pods of the last one are ready."""
    PREEMPTED = "preempted"
    QUEUED = "queued"
    """Kueue has not decided yet."""
    ADMISSION_CHECK = "admission-check"
    PODS_REFUSED = "pods-refused"
    """The API server refuses its pods: namespace quota, policy, webhook."""
    NO_PODS = "no-pods"
    """The JobSet is to run and has no pods."""
    SCHEDULING_GATE = "scheduling-gate"
    CLAIM = "claim"
    """A volume claim is missing or not bound."""
    RESOURCES = "resources"
    """Nodes fit but are full."""
    TAINTS = "taints"
    SELECTOR = "selector"
    NEIGHBOURS = "neighbours"
    """Rules about pods beside each other, and spread."""
    CORDONED = "cordoned"
    NO_NODE = "no-node"
    """The scheduler says no for another reason."""
    UNPLACED = "unplaced"
    """The scheduler has said nothing yet."""
    IMAGE = "image"
    CONTAINER_CONFIG = "container-config"
    CRASH_LOOP = "crash-loop"
    MOUNT = "mount"
    SANDBOX = "sandbox"
    NODE_SILENT = "node-silent"
    """Placed on a node that does not answer."""
    STARTING = "starting"
    WORKFLOW_WORKS = "workflow-works"
    """The gate and the check of the checkpoint are under way."""
    INITIALISING = "initialising"
    """All pods run; no step is completed yet."""
    NO_PROGRESS = "no-progress"
    """It has made steps, and none for too long."""
    UNWATCHED = "unwatched"
    """It trains, and nobody drives it."""
    RUNNING = "running"
    UNKNOWN = "unknown"


BLOCKS_FIRST = {hold: place for place, hold in enumerate(Hold)}
"""Place of each in the order of blocking."""


@dataclass(frozen=True)
class Witness:
    """One object and what it says."""

    kind: str
    name: str
    condition: str = ""
    """`QuotaReserved=False`, `PodScheduled=False`, `container trainer`, `event`, …"""
    reason: str = ""
    message: str = ""
    at: float | None = None


@dataclass(frozen=True)
class Reason:
    """One thing that holds the run."""

    hold: Hold
    sentence: str
    advice: str = ""
    witnesses: tuple[Witness, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """Why a run stands where it stands."""

    state: Standing
    reasons: tuple[Reason, ...]
    """What blocks first stands first; never empty."""
    since: float | None = None
    """Since when, as far as the objects tell it."""
    notes: tuple[str, ...] = ()
    """What does not hold it and is worth knowing."""


def of_condition(kind: str, name: str, condition: Condition) -> Witness:
    """The condition of an object as a witness."""
    state = f"{condition.type}={condition.status}"
    return Witness(kind, name, state, condition.reason, condition.message, condition.at)


def of_event(event: Event) -> Witness:
    """An event as a witness."""
    times = f" ({event.count} times)" if event.count > 1 else ""
    return Witness(event.kind, event.name, f"event{times}", event.reason, event.message, event.at)
