"""Nodes as a watch keeps them: slim, since a large cluster has many, and what was found about them.

Times are Unix seconds as the writer's clock says. Absent means not known.

What Kubernetes itself says of a node: what its kubelet offers there, and whether that kubelet is ready.

Pure: the object is read by whoever may read nodes, which the pod of a preflight may not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from profiles.vocabulary import FaultClass, VerdictWord
from workflows.programs.parsers.text import ParsedOutput, Reading

WATCHER = "monitor"
DEPTH = "condition"
"""Depth of a verdict that comes from a node's condition, not from a test."""


def watcher_of(cluster: str) -> str:
    """Name under which a cluster's monitor holds its lease and writes; the slash keeps it apart from runs."""
    return f"{WATCHER}/{cluster}"


def beat_of(cluster: str) -> str:
    """Name of the cursor that a cluster's monitor moves while its loop turns."""
    return f"beat/{cluster}"


@dataclass(frozen=True, slots=True)
class TaintSeen:
    """One entry of `spec.taints`, whole: the list is written back when ours is added."""

    key: str
    value: str
    effect: str
    added: str = ""
    """`timeAdded`, as it was written; "" where there is none."""


@dataclass(frozen=True, slots=True)
class ConditionSeen:
    """One entry of `status.conditions`."""

    type: str
    status: str
    """`True`, `False` or `Unknown`; anything else counts as `Unknown`."""
    since: float | None = None
    """Last transition."""
    heard_at: float | None = None
    """Last heartbeat."""
    reason: str = ""
    message: str = ""
    """At most `MESSAGE_CHARACTERS` of it."""


MESSAGE_CHARACTERS = 240


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """One node of a pool of ours."""

    name: str
    pool: str
    version: str = ""
    """Its resourceVersion: a write is meant for what was seen."""
    created_at: float | None = None
    conditions: tuple[ConditionSeen, ...] = ()
    taints: tuple[TaintSeen, ...] = ()
    cordoned: bool = False
    leaving: bool = False
    """It is being deleted."""
    verdict: str = ""
    """Our label; "": it has none."""
    verdict_at: float | None = None
    """When the test was that it tells, Unix seconds, whole ones."""


@dataclass(frozen=True, slots=True)
class NodeFinding:
    """What a node's conditions say against it."""

    node: str
    pool: str
    condition: str
    verdict: VerdictWord
    """`fail`: a fault that has stood its time. `unknown`: it may be one, and nothing is done."""
    fault_class: FaultClass
    why: str
    since: float | None = None
    certain: bool = False
    """It does not flap: it counted at once."""
    due_at: float | None = None
    """Where it is unknown because it has not stood long enough: when it will have."""
    judged: bool = False
    """It comes from a test whose verdict stands in the ledger already."""

    @property
    def key(self) -> str:
        """The same for the same standing of the same condition, whoever looks and however often."""
        return f"{self.node}/{self.condition}/{self.since or 0:.0f}"


Step = Literal["quarantine", "record", "ask", "leave"]


@dataclass(frozen=True, slots=True)
class Settled:
    """What becomes of one finding, and why."""

    finding: NodeFinding
    step: Step
    """`record`: mode observe, written down only. `leave`: nothing is written."""
    why: str


@dataclass(frozen=True, slots=True)
class NodeQuestion:
    """What a person is asked about the nodes of one pool."""

    pool: str
    text: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Settlement:
    """What becomes of findings that were looked at together."""

    settled: tuple[Settled, ...] = ()
    questions: tuple[NodeQuestion, ...] = ()
    approval_seconds: float = 86400.0
    """How long a question waits for its answer."""

    def of(self, step: Step) -> tuple[Settled, ...]:
        """Those with this step, in the order in which they were settled."""
        return tuple(item for item in self.settled if item.step == step)


@dataclass(frozen=True)
class LedgerGround:
    """What the ledger says at the moment at which findings are settled; read in the transaction that writes."""

    now: float
    paused: str | None = None
    """Why everything is paused; None: it is not."""
    out: frozenset[str] = frozenset()
    """Those of the found nodes that we hold out of service already."""
    states: Mapping[str, str] = field(default_factory=dict[str, str])
    """Key of a finding -> state of the action that was planned for it before."""
    quarantined: Mapping[str, int] = field(default_factory=dict[str, int])
    """Pool -> nodes of it that we hold out of service."""
    evictions: Mapping[str, int] = field(default_factory=dict[str, int])
    """Pool -> how often we took one out within the brake's window."""
    asked: frozenset[str] = frozenset()
    """Pools about which a person was asked, and the answer was not carried over yet."""


READY = "Ready"
STATES = ("True", "False")
"""Words for which a kubelet stands; `Unknown` is the control plane's word for a kubelet that is silent."""
PARTS_SHOWN = 4


def told_by_node_object(manifest: Mapping[str, Any], gpu_resource: str, nic_resource: str = "") -> ParsedOutput:
    """Readings of the probe `kubernetes-node`.

    Args:
        manifest: the Node as the API gives it.
        gpu_resource: extended resource that counts GPUs (`resource_name` of the hardware); "": it has none to offer.
        nic_resource: extended resource that counts NICs (`nic_resource_name`); "": nobody counts them.

    Returns:
        `allocatable_gpus` and `allocatable_nics` (count, of those resources that are named) and `kubelet_ready` (the
        word `True` or `False`). A silent kubelet leaves that word out: what it offers may be gone, so all is unknown.
    """
    why: list[str] = []
    found: list[Reading] = []
    allocatable = _part(manifest, "status", "allocatable")
    for quantity, resource in (("allocatable_gpus", gpu_resource), ("allocatable_nics", nic_resource)):
        if resource:
            count, line = _count(allocatable, resource)
            if count is None:
                why.append(line)
            else:
                found.append(Reading(quantity, count, "count", line=line))
    state, line = _ready(manifest)
    if state in STATES:
        found.append(Reading("kubelet_ready", word=state, line=line))
    else:
        why.append(line)
    return ParsedOutput(tuple(found), "; ".join(why))


def _part(manifest: Mapping[str, Any], *path: str) -> Mapping[str, Any] | None:
    """The map at that path; None where there is none."""
    found: Any = manifest
    for name in path:
        found = cast("Mapping[str, Any]", found).get(name) if isinstance(found, Mapping) else None
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else None


def _count(allocatable: Mapping[str, Any] | None, resource: str) -> tuple[float | None, str]:
    """How many devices are offered, and what says so; without a count the reason."""
    if allocatable is None:
        return None, "the Node has no status.allocatable: its kubelet has not told yet what it offers"
    text = str(allocatable.get(resource, "")).strip()
    if resource not in allocatable:
        parts = [name for name in sorted(allocatable) if name.partition("/")[0] == resource.partition("/")[0]]
        instead = f"; it offers {', '.join(parts[:PARTS_SHOWN])}" if parts else ""
        return 0.0, f"the kubelet offers no {resource}: its device plug-in never told of any{instead}"
    if not text.isascii() or not text.isdigit():
        return None, f"status.allocatable[{resource}] reads {text[:40]!r}, which is no whole number"
    return float(int(text)), f"status.allocatable[{resource}] = {text}"


def _ready(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """The word of the condition Ready, and what says so."""
    listed = (_part(manifest, "status") or {}).get("conditions")
    conditions = cast("list[Any]", listed if isinstance(listed, list) else [])
    maps = [cast("Mapping[str, Any]", one) for one in conditions if isinstance(one, Mapping)]
    ready = next((one for one in maps if one.get("type") == READY), None)
    if ready is None:
        return "", "the Node has no condition Ready: its kubelet has not told yet how it is"
    told = {name: str(value) for name, value in ready.items()}
    state, reason = told.get("status", ""), told.get("reason", "no reason")
    if state not in STATES:
        since = told.get("lastHeartbeatTime") or told.get("lastTransitionTime") or "a time that is not told"
        return state, f"the kubelet has been silent since {since} ({reason})"
    return state, f"Ready is {state}: {reason}"
