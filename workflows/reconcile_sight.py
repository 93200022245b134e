"""What a reconciling look sees: runs of the ledger beside the objects of a cluster. Tasks look, flows decide.

Times are Unix seconds. A part that could not be read is None: nothing is concluded about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from profiles.vocabulary import Mode
from workflows.driven import OpenRun
from workflows.records import ApprovalRecord, Lease

ObjectKind = Literal["JobSet", "Workflow", "Pod"]


@dataclass(frozen=True)
class GangSeen:
    """A run that has not ended, with its newest attempt."""

    run: OpenRun
    mode: Mode
    paused: bool = False
    """The run itself is paused."""
    attempt: int = 0
    """Number of the newest attempt; 0: there is none."""
    submitted_at: float | None = None
    applied_at: float | None = None
    """Its JobSet was seen."""
    heard_at: float | None = None
    """The last step, the first sight of all pods running, or of the JobSet: whichever came last."""
    ended_at: float | None = None
    handled: bool = False
    """An incident of this attempt is being dealt with, or a person asked for the end."""


@dataclass(frozen=True)
class Fate:
    """What the ledger knows of a run whose name stands on objects."""

    cluster: str
    ended_at: float | None = None
    """None: it has not ended."""
    attempts: Mapping[int, float | None] = field(default_factory=dict[int, "float | None"])
    """Number -> when that attempt ended; None: it has not."""
    opened_at: float | None = None
    """When the run was opened in this ledger; None: it is not asked for."""


@dataclass(frozen=True)
class ObjectSeen:
    """One object with our label of a run."""

    kind: ObjectKind
    name: str
    run: str
    attempt: int = 0
    pipeline: str = ""
    state: str = "Running"
    """`Running`, or how it ended: `Completed` or `Failed`."""
    created_at: float | None = None
    leaving: bool = False
    """Its deletion was asked for."""
    idle: bool = False
    """A JobSet that counts ended pods and no living one but the coordinator's, and does not say that it ended."""
    ledger: str = ""
    """Identity of the ledger that it belongs to; "" where it says none."""

    @property
    def subject(self) -> str:
        """Kind and name: what a finding is about."""
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True)
class PodsSeen:
    """The pods of an attempt that looked suspicious."""

    living: int = 0
    """Of all roles but the coordinator's."""
    ended: int = 0
    failed: int = 0
    """Of those that ended."""
    coordinator: str = ""
    """Name of the coordinator's running pod; "" where none runs."""
    answers: bool | None = None
    """Whether the coordinator answers; None: nobody could tell, since the cluster itself did not answer."""


@dataclass(frozen=True)
class NodesSeen:
    """Nodes by name, and what the ledger says of them."""

    present: frozenset[str]
    marked: frozenset[str]
    """Those that carry our quarantine taint."""
    out: Mapping[str, str]
    """Those that the ledger holds out of service, each with why."""


@dataclass(frozen=True)
class Sight:
    """Everything that is looked at in one pass."""

    now: float
    cluster: str
    gangs: tuple[GangSeen, ...] = ()
    """Runs on this cluster that have not ended."""
    jobsets: Mapping[str, ObjectSeen] | None = None
    """JobSets of our runs by name; None: the cluster does not answer."""
    others: tuple[ObjectSeen, ...] | None = None
    """Workflows that have not ended; None: not looked at in this pass."""
    pods: tuple[ObjectSeen, ...] | None = None
    """Training pods that live; None: not looked at in this pass."""
    fates: Mapping[str, Fate] = field(default_factory=dict[str, Fate])
    """Runs of the ledger whose names stand on objects."""
    suspects: Mapping[str, PodsSeen] = field(default_factory=dict[str, PodsSeen])
    """Run -> the pods of its newest attempt, asked about only where something looked wrong."""
    approvals: tuple[ApprovalRecord, ...] = ()
    """Questions about runs and nodes of this cluster that nobody has answered."""
    watcher: Lease | None = None
    """The lease of the monitor's loop; None: nobody holds it."""
    watcher_alive: bool | None = None
    """Whether its holder lives; None: nobody here can tell."""
    nodes: NodesSeen | None = None
    """None: not looked at in this pass."""
    ledger: str = ""
    """Identity of ours."""
