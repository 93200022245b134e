"""Node objects as a watch keeps them, and what was found about nodes. Pure.

They are slim, since a large cluster has many nodes. Times are Unix seconds by the writer's clock. Absent means not
known. `told_by_node_object` reads what the kubelet offers and whether it is ready; the object is read by whoever may
read nodes, which the pod of a preflight may not. `fit` and `joins` say of it whether a node that joins may take work:
Ready is not enough, since a kubelet is Ready before any device plug-in has told of a GPU.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from profiles.vocabulary import FaultClass, VerdictWord
from workflows import labels
from workflows.model.manifest import Condition, Json, conditions, items, part, seconds
from workflows.programs.parsers.text import ParsedOutput, Reading

if TYPE_CHECKING:
    from profiles.cluster import ClusterProfile, Pool
    from profiles.hardware import HardwareProfile

WATCHER = "monitor"
DEPTH = "condition"
"""Depth of a verdict that comes from a node's condition, not from a test."""


def watcher_of(cluster: str) -> str:
    """Name under which a cluster's monitor holds its lease and writes; the slash keeps it apart from runs."""
    return f"{WATCHER}/{cluster}"


def people_of(cluster: str) -> str:
    """Name under which people's acts about a cluster and its nodes are written; the slash keeps it apart from runs."""
    return f"people/{cluster}"


def beat_of(cluster: str) -> str:
    """Name of the cursor that a cluster's monitor moves while its loop turns."""
    return f"beat/{cluster}"


MESSAGE_CHARACTERS = 240
"""Of a condition's message that are kept."""
READY = "Ready"
STATES = {"True": True, "False": False}
"""Words for which a kubelet stands; `Unknown` is the control plane's word for a kubelet that is silent."""
OF_THE_CLUSTER = "node.kubernetes.io/"
"""Taints with this prefix repeat conditions and cordons, which are told as such."""


@dataclass(frozen=True, slots=True)
class Taint:
    """One entry of `spec.taints`, whole: the list is written back when ours is added."""

    key: str
    value: str
    effect: str
    added: str = ""
    """`timeAdded`, as it was written; "" where there is none."""

    @property
    def text(self) -> str:
        """As people and profiles write it."""
        return f"{self.key}={self.value}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Node:
    """A Node, slim: of 5 to 20 KB of text about 1 KB, since a large cluster has many. Equal ones differ in no news."""

    name: str
    pool: str = ""
    """Of the cluster's profile; "" where nobody asked for it."""
    version: str = field(default="", compare=False)
    """Its resourceVersion: a write is meant for what was seen."""
    created_at: float | None = None
    conditions: tuple[Condition, ...] = ()
    taints: tuple[Taint, ...] = ()
    cordoned: bool = False
    leaving: bool = False
    """It is being deleted."""
    verdict: str = ""
    """Our label; "": it has none."""
    verdict_at: float | None = None
    """When the test was that it tells, Unix seconds, whole ones."""
    rack: str = ""
    block: str = ""
    spare: bool = False

    @property
    def ready(self) -> bool | None:
        """What the condition Ready says; None: the cluster does not know (silent)."""
        found = self._ready()
        return None if found is None else STATES.get(found.status)

    @property
    def reason(self) -> str:
        """Why it is ready or not, in one word."""
        found = self._ready()
        return "" if found is None else found.reason

    @property
    def quarantined(self) -> bool:
        """Whether our taint stands on it."""
        return any(taint.key == labels.QUARANTINE_TAINT for taint in self.taints)

    @property
    def joining(self) -> bool:
        """Whether the taint with which nodes join stands on it."""
        return any(taint.key == labels.STARTUP_TAINT for taint in self.taints)

    def taints_against(self, tolerated: Collection[str]) -> tuple[str, ...]:
        """Taints, ours excluded, that keep pods away which tolerate these, all written as `key=value:Effect`."""
        hard = (taint for taint in self.taints if taint.effect != "PreferNoSchedule")
        foreign = (item for item in hard if not item.key.startswith((labels.QUARANTINE_TAINT, OF_THE_CLUSTER)))
        return tuple(taint.text for taint in foreign if taint.text not in tolerated)

    def _ready(self) -> Condition | None:
        return next((item for item in self.conditions if item.type == READY), None)


def node_of(node: Json, pool: str = "") -> Node:
    """A Node, which belongs to this pool."""
    metadata, spec = part(node, "metadata"), part(node, "spec")
    marks = part(metadata, "labels")
    return Node(
        name=sys.intern(str(metadata.get("name", ""))),
        pool=pool,
        version=str(metadata.get("resourceVersion", "")),
        created_at=seconds(metadata.get("creationTimestamp")),
        conditions=conditions(node, MESSAGE_CHARACTERS),
        taints=tuple(_taint(item) for item in items(spec, "taints")),
        cordoned=bool(spec.get("unschedulable")),
        leaving="deletionTimestamp" in metadata,
        verdict=sys.intern(str(marks.get(labels.VERDICT, ""))),
        verdict_at=seconds(part(metadata, "annotations").get(labels.VERDICT_AT)),
        rack=sys.intern(str(marks.get(labels.RACK, ""))),
        block=sys.intern(str(marks.get(labels.BLOCK, ""))),
        spare=marks.get(labels.SPARE) == "true",
    )


def _taint(item: Json) -> Taint:
    value, added = str(item.get("value") or ""), str(item.get("timeAdded") or "")
    return _shared_taint(str(item.get("key", "")), value, str(item.get("effect", "")), added)


@lru_cache(maxsize=4096)
def _shared_taint(key: str, value: str, effect: str, added: str) -> Taint:
    return Taint(key, value, effect, added)


def taint_manifest(taint: Taint) -> dict[str, str]:
    """The entry of `spec.taints` as it was read."""
    value = {"value": taint.value} if taint.value else {}
    added = {"timeAdded": taint.added} if taint.added else {}
    return {"key": taint.key, **value, "effect": taint.effect, **added}


Step = Literal["quarantine", "record", "ask", "leave"]


PARTS_SHOWN = 4


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
        """The same for the same standing of the same condition, in any process and at any time."""
        return f"{self.node}/{self.condition}/{self.since or 0:.0f}"


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


def told_by_node_object(manifest: Json, gpu_resource: str, nic_resource: str = "") -> ParsedOutput:
    """Readings of the probe `kubernetes-node`.

    `gpu_resource`: extended resource that counts GPUs (`resource_name` of the hardware); "": it has none to offer.
    `nic_resource`: the same of NICs (`nic_resource_name`); "": nobody counts them.

    Returns:
        `allocatable_gpus` and `allocatable_nics` (count, of those resources that are named) and `kubelet_ready` (the
        word `True` or `False`). A silent kubelet leaves that word out: what it offers may be gone, so all is unknown.
    """
    why: list[str] = []
    found: list[Reading] = []
    offered = part(manifest, "status").get("allocatable")
    allocatable = part(manifest, "status", "allocatable") if isinstance(offered, dict) else None
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


def _count(allocatable: Json | None, resource: str) -> tuple[float | None, str]:
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


def _ready(manifest: Json) -> tuple[str, str]:
    """The word of the condition Ready, and what says so."""
    ready = next((one for one in items(manifest, "status", "conditions") if one.get("type") == READY), None)
    if ready is None:
        return "", "the Node has no condition Ready: its kubelet has not told yet how it is"
    fields = {name: str(value) for name, value in ready.items()}
    state, reason = fields.get("status", ""), fields.get("reason", "no reason")
    if state not in STATES:
        since = fields.get("lastHeartbeatTime") or fields.get("lastTransitionTime") or "a time that is not told"
        return state, f"the kubelet has been silent since {since} ({reason})"
    return state, f"Ready is {state}: {reason}"


SHOWN_CHARACTERS = 240
"""Of what a test said that are shown."""


def joins(node: Json) -> bool:
    """Whether the start-up taint stands on a node, with whatever value and effect."""
    return any(taint.get("key") == labels.STARTUP_TAINT for taint in items(node, "spec", "taints"))


def identity_of(node: Json) -> str:
    """What tells a node from another one of its name, before or after it."""
    return str(part(node, "metadata").get("uid", ""))


def without_startup_taint(taints: Sequence[Json]) -> list[Json]:
    """The entries of `spec.taints` of everybody else."""
    return [taint for taint in taints if taint.get("key") != labels.STARTUP_TAINT]


def fit(node: Json, hardware: HardwareProfile) -> tuple[VerdictWord, str]:
    """Whether a node is Ready and offers exactly the GPUs of its hardware, and what says so.

    Unknown: its kubelet is silent, or has not told yet what it offers.
    """
    ready = node_of(node).ready
    if ready is None:
        return VerdictWord.UNKNOWN, "its kubelet tells nothing"
    if not ready:
        return VerdictWord.FAIL, f"it is not Ready: {node_of(node).reason or 'no reason is told'}"
    if not hardware.gpus_per_node:
        return VerdictWord.PASS, "Ready"
    told = told_by_node_object(node, hardware.resource_name)
    counted = [reading for reading in told.readings if reading.quantity == "allocatable_gpus"]
    if not counted or counted[0].value is None:
        return VerdictWord.UNKNOWN, told.unknown
    found, wanted = int(counted[0].value), hardware.gpus_per_node
    if found == wanted:
        return VerdictWord.PASS, f"Ready, {found} {hardware.resource_name}"
    return VerdictWord.FAIL, f"{found} of {wanted} {hardware.resource_name} in allocatable"


def last_test(node: Json) -> str:
    """What the last test of a node said, as it stands on the node; "" where none was ever written there."""
    text = part(node, "metadata", "annotations").get(labels.VERDICT_EVIDENCE)
    try:
        found = part({"said": json.loads(str(text)) if text else None}, "said")
    except ValueError:
        return ""
    words = [str(found.get(name) or "") for name in ("verdict", "depth", "evidence")]
    return ": ".join(word for word in words if word)[:SHOWN_CHARACTERS]


def pool_of(marks: Mapping[str, Any], profile: ClusterProfile) -> Pool | None:
    """The first pool of the profile whose nodes carry these labels."""
    for pool in profile.pools:
        wanted = pool.labels if profile.engine == "kubernetes" else {labels.POOL: pool.name}
        if all(marks.get(key) == value for key, value in wanted.items()):
            return pool
    return None
