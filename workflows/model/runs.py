"""What is known about many runs at once: who drives them, their flow runs, their objects, findings and accounts.

Tasks read these values and store them, flows decide on them. Times are Unix seconds; durations are wall seconds of the
whole gang, which times GPUs gives GPU-seconds. A part of a reconciling look (`Sight`) that could not be read is None:
nothing is concluded about it. Lines over all runs are slim, and the account of a run is small enough to read ten
thousand of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple

from profiles.vocabulary import FINISHED, Action, Mode, RunState
from workflows.model.records import ActionRecord, Actor, ApprovalRecord, IncidentRecord, Lease


class Phase(StrEnum):
    """Where a flow run of the Prefect server stands, as far as it matters to the runner that serves it."""

    WAITING = "waiting"
    """Scheduled: whoever serves the deployment may claim it."""
    CLAIMED = "claimed"
    """Somebody claimed it and starts its driver."""
    RUNNING = "running"
    PAUSED = "paused"
    """A person pressed Pause or Suspend; its process may still live."""
    CANCELLING = "cancelling"
    """A person pressed Cancel; nothing was ended yet."""
    CANCELLED = "cancelled"
    ENDED = "ended"
    """Completed, failed or crashed."""


ENDS = frozenset({Phase.CANCELLED, Phase.ENDED})
"""Phases that nothing follows unless somebody schedules the flow run again."""


@dataclass(frozen=True)
class OpenRun:
    """A run of the ledger that has not ended, and its driver."""

    name: str
    state: RunState
    cluster: str
    """Name of its cluster profile."""
    since: float
    """When it was opened, or continued by a person: Unix seconds."""
    lease: Lease | None = None
    """None: nobody drove it yet, or its driver let go."""
    alive: bool | None = None
    """Whether the lease's holder lives; None: nobody here can tell."""


@dataclass(frozen=True)
class FlowRunSeen:
    """One flow run of the deployment that a runner serves."""

    id: str
    phase: Phase
    since: float
    """When it came into this phase: Unix seconds."""
    run: str = ""
    """The run it belongs to; "": it was not opened yet."""


@dataclass(frozen=True)
class Due:
    """A flow run whose time has come and which no runner has claimed yet."""

    id: str
    deployment: str
    """Id of its deployment."""
    at: float
    """When it was to start: Unix seconds."""
    scheduled: bool
    """A timetable made it; else a person or a program asked for it."""


@dataclass(frozen=True)
class Plain:
    """A flow run of a deployment that trains nothing: it lives and dies with the process that runs it."""

    id: str
    deployment: str
    phase: Phase
    since: float
    """When it came into this phase: Unix seconds."""
    begun: int = 0
    """How often it has begun to run."""


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


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run with the state of its newest attempt."""

    name: str
    state: RunState
    why: str
    profile: str
    cluster: str
    created_at: float
    """Unix seconds."""
    ended_at: float | None = None
    paused: bool = False
    """This run by itself; everything may be paused as well."""
    owner: str = ""
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    attempts: int = 0
    step: int | None = None
    """The last step of the newest attempt."""
    loss: float | None = None
    last_step_at: float | None = None


@dataclass(frozen=True, slots=True)
class IncidentLine:
    """One incident with what became of it."""

    incident: IncidentRecord
    run_state: RunState | None = None
    """None: it is about no run."""

    @property
    def is_open(self) -> bool:
        """Whether it is not over: its run has not ended, something is done about it, and no step was made since."""
        if self.run_state is None or self.run_state in FINISHED:
            return False
        return self.incident.action is not Action.NONE and self.incident.resumed_at is None


@dataclass(frozen=True, slots=True)
class ApprovalLine:
    """One question that waits, with what an answer decides about."""

    approval: ApprovalRecord
    run_state: RunState | None = None
    """None: it is about nodes, not about a run."""
    actions: tuple[ActionRecord, ...] = ()
    """What is done on a yes, and refused on a no."""


@dataclass(frozen=True)
class IncidentQuery:
    """Which incidents are asked for."""

    run: str = ""
    """Of this run; "": of all."""
    since: float = 0.0
    """Detected at this moment (Unix seconds) or later."""
    fault_class: str = ""
    """Of this class; "": of any."""
    open_only: bool = False
    limit: int = 0
    """At most so many, the newest ones; 0: all."""


@dataclass(frozen=True)
class FindingRecord:
    """Something that is not as the ledger says it should be, or that no process looked after."""

    id: str
    """`<cluster>/<kind>/<subject>@<second it was first seen>`."""
    cluster: str
    kind: str
    """One of `flows.decisions.monitoring.reconcile`'s kinds."""
    subject: str
    """What it is about: a run, an attempt, an object, a node, an approval."""
    run: str
    """"" where it belongs to no run that the ledger knows."""
    why: str
    action: str
    """What is done about it, in words; `none: ...` where it is left alone."""
    first_at: float
    """Unix seconds."""
    last_at: float
    closed_at: float | None = None
    """When it was no longer seen."""


@dataclass(frozen=True)
class CursorRecord:
    """How far a reader of something ordered has come; also a heartbeat."""

    name: str
    position: int
    at: float
    """When it was written: Unix seconds."""


@dataclass(frozen=True)
class HistoryRow:
    """One line of the history with its place in it."""

    seq: int
    at: float
    run: str
    kind: str
    subject: str
    why: str
    data: str
    """JSON text: the record when it was created, afterwards what changed."""
    by: Actor | None = None
    """The person who did it; None: we did."""


class Stretch(NamedTuple):
    """A part of a run's time; of training at most about an hour, so that a window may begin within a run."""

    begin: float
    end: float
    by_state: dict[str, float]
    """State -> seconds; they sum to the length."""
    lost_by_class: dict[str, float]
    """Fault class -> seconds that its incidents cost within the stretch."""


@dataclass(frozen=True)
class RunSummary:
    """The account of one run."""

    run: str
    cluster: str
    begin: float
    """Its submission, or the window's begin."""
    end: float
    """Its end, or the moment of the reading, or the window's end."""
    gpus: int
    """On CPU nodes: ranks."""
    nodes: int
    """Pods of the deciding role."""
    price_per_gpu_hour: float | None
    """None: its pool had no price when it was submitted."""
    currency: str
    by_state: dict[str, float] = field(default_factory=lambda: {})
    """State -> seconds; they sum to `end - begin`."""
    lost_by_class: dict[str, float] = field(default_factory=lambda: {})
    """Fault class -> seconds that its incidents cost: from the first lost step to the first new one."""
    stretches: tuple[Stretch, ...] = ()
    """The same, piece by piece; empty where nobody asked for them."""


class HeldGang(NamedTuple):
    """When the gang of one attempt held its nodes."""

    run: str
    begin: float
    """Its JobSet was seen, else its workflow was submitted."""
    end: float | None
    """None: it holds them still."""


class WindowIncident(NamedTuple):
    """One incident, as the account of all runs needs it."""

    run: str
    detected_at: float
    fault_class: str | None
    """None: not diagnosed (yet)."""
    action: str | None
    culprit_nodes: tuple[str, ...]


class WindowRun(NamedTuple):
    """One run that lived in the window."""

    run: str
    cluster: str
    state: str
    begin: float
    end: float | None
    summary: RunSummary | None
    """None: it lives, or ended before summaries were kept."""


@dataclass(frozen=True)
class LedgerWindow:
    """What the ledger knows of all runs between two moments, read in one transaction."""

    since: float
    until: float
    runs: tuple[WindowRun, ...]
    held: tuple[HeldGang, ...]
    incidents: tuple[WindowIncident, ...]
