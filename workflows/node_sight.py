"""Nodes as a watch keeps them: slim, since a large cluster has many, and what was found about them.

Times are Unix seconds as the writer's clock says. Absent means not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from profiles.vocabulary import FaultClass, VerdictWord

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
