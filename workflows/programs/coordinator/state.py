"""Values of the coordinator: events, the state of a gang, orders to launchers, and effects. `reducer` connects them.

Every event carries its time, so that replaying the journal of events rebuilds the same state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Dict, Literal, Mapping, NamedTuple, Optional, Tuple, Union

from workflows.programs.coordinator.members import Members
from workflows.programs.coordinator.progress import Moment, Progress, StepRow
from workflows.status import RestartInPlace
from workflows.wire import RankEnd

Key = Tuple[str, int]
"""Role and index of a pod."""
RANK_FAILED: Literal["rank-failed"] = "rank-failed"
HANG: Literal["hang"] = "hang"
"""Reasons for a restart in place."""
GANG, ROLE, REPLICA = "gang", "role", "replica"
"""Which ranks restart together with a failed one: every essential role, its own role, or its replica group."""
SCOPES = (GANG, ROLE, REPLICA)


@dataclass(frozen=True)
class Resume:
    """From which checkpoint ranks restart inside their pods."""

    incarnation: int
    path: str
    """Value of the trainer's resume argument; "": from scratch."""
    step: Optional[int]


@dataclass(frozen=True)
class Order:
    """An order to launchers: stop the ranks, restart them, or collect their stacks."""

    number: int
    why: str
    save: bool
    """Whether ranks get the time to save."""
    source: Optional[Key] = None
    """The launcher that caused the order, and is not sent it."""
    resume: Optional[Resume] = None
    """Set for a restart."""
    stacks: str = ""
    """Set for a request for stacks: the id that answers carry."""
    roles: Tuple[str, ...] = ()
    """Roles whose launchers get the order; empty: all."""

    @property
    def is_stop(self) -> bool:
        """Whether the order ends the gang."""
        return self.resume is None and not self.stacks

    def to_json(self) -> Dict[str, Any]:
        """The order in the form that launchers read."""
        if self.stacks:
            return {"number": self.number, "order": "stacks", "why": self.why, "id": self.stacks}
        if self.resume is None:
            return {"number": self.number, "order": "stop", "why": self.why, "save": self.save}
        return {
            "number": self.number,
            "order": "restart",
            "why": self.why,
            "incarnation": self.resume.incarnation,
            "resume_from": self.resume.path,
            "resume_step": self.resume.step,
        }


@dataclass(frozen=True)
class Cause:
    """The reason for a restart in place."""

    kind: Literal["rank-failed", "hang"]
    why: str
    rank: Optional[int]
    node: str
    stacks: str = ""
    role: str = ""
    """Role of the rank; "": the deciding role."""
    at: Optional[float] = None
    """When it happened by the clock of its launcher, Unix seconds; None: not known."""


@dataclass(frozen=True)
class Failure:
    """A rank that failed by itself."""

    key: Key
    """Role and index of its pod."""
    end: RankEnd
    why: str


@dataclass(frozen=True)
class PendingDecision:
    """Failures on which the coordinator decides only when the other ranks' ends are known as well."""

    until: float
    """Unix time in seconds of the decision."""
    failures: Tuple[Failure, ...]
    latest: float
    """Unix time in seconds to which `until` moves while a save waits for its proof."""


FINAL_STATES = ("ended", "failed")


@dataclass(frozen=True)
class Member:
    """One launcher."""

    role: str
    pod_index: int
    pod: str = ""
    node: str = ""
    address: str = ""
    pods: int = 1
    """Pods of its role, from its command line."""
    processes: int = 1
    """Ranks in its pod."""
    essential: bool = True
    """Whether the gang cannot continue without it."""
    state: str = "joined"
    """`joined`, `running`, `leaving`, `ended`, `failed`."""
    pids: Mapping[str, int] = field(default_factory=lambda: {})
    """Process id of each rank, by the rank as text."""
    started_at: Optional[float] = None
    sequence: int = 0
    """Number of the last batch of reports, so that a batch sent twice counts once."""
    incarnation: int = 1
    """Incarnation of its ranks when it joined; higher than the coordinator's if that lost its journal."""
    heard_order: int = 0
    """Number of the last order that it had received when it joined."""
    resume_from: str = ""
    resume_step: Optional[int] = None
    """Step with which the attempt began; None: from scratch."""
    cleared: int = 1
    """Every rank of an incarnation before this one is dead in its pod."""

    @property
    def key(self) -> Key:
        """Role and index."""
        return self.role, self.pod_index

    @property
    def place(self) -> str:
        """Its node, or its pod where the node is not known."""
        return self.node or self.pod or f"{self.role} {self.pod_index}"


@dataclass(frozen=True)
class RoleSize:
    """How many launchers of a role there are and should be."""

    joined: int
    pods: int
    processes: int


@dataclass(frozen=True)
class Meeting:
    """Rendezvous address of a role's ranks."""

    incarnation: int
    address: str
    port: int


@dataclass(frozen=True)
class LauncherJoined:
    """A launcher joined, for the first time or again."""

    at: float
    member: Member


@dataclass(frozen=True)
class MeetingPublished:
    """The launcher of rank 0 published its gang's rendezvous address."""

    at: float
    role: str
    meeting: Meeting
    pod_index: int = 0
    """Pod of that launcher."""


@dataclass(frozen=True)
class ReportsReceived:
    """A batch of reports from a launcher, or one report that a rank posted itself."""

    at: float
    key: Key
    sequence: int
    reports: Tuple[Any, ...]
    state: str = ""
    """New state of the member; "": unchanged."""
    why: str = ""
    pids: Mapping[str, int] = field(default_factory=lambda: {})
    incarnation: int = 1
    """Incarnation to which `state` and `pids` belong."""
    posted: bool = False
    """Whether a rank posted it; `sequence` is then the number of its launcher's last batch."""


@dataclass(frozen=True)
class PodCleared:
    """Every rank of an earlier incarnation is dead in the pod of `key`."""

    at: float
    key: Key
    incarnation: int


@dataclass(frozen=True)
class TimePassed:
    """The moment came at which a pending decision is due."""

    at: float
    gang: int = 0
    """Index of the gang whose decision is due."""


@dataclass(frozen=True)
class StopRequested:
    """The flow requested the end of the whole gang."""

    at: float
    why: str
    save: bool


@dataclass(frozen=True)
class HangSuspected:
    """The gang may be hung: the coordinator needs the stacks of its ranks."""

    at: float
    incarnation: int
    why: str
    gang: int = 0


@dataclass(frozen=True)
class HangConfirmed:
    """The gang is hung."""

    at: float
    incarnation: int
    why: str
    rank: Optional[int] = None
    """The rank for which the others wait; None: none could be named."""
    node: str = ""
    stacks: str = ""
    """Stacks of the ranks as text."""
    gang: int = 0


class SlowVote(NamedTuple):
    """A rank that was slower than its peers in one window of steps."""

    rank: int
    seconds: float
    """Local seconds of one step, before the barrier."""
    ratio: float
    """`seconds` divided by the peers' median."""


@dataclass(frozen=True)
class WindowClosed:
    """A window of steps closed, with the ranks that were slow in it."""

    at: float
    incarnation: int
    step: int
    """First step of the window."""
    slow: Tuple[SlowVote, ...]
    gang: int = 0


@dataclass(frozen=True)
class RightChanged:
    """The flow withdrew its permission to restart in place, or gave it back."""

    at: float
    withheld: str
    """Why the permission is withdrawn; "": it holds."""


Event = Union[
    LauncherJoined,
    MeetingPublished,
    ReportsReceived,
    PodCleared,
    TimePassed,
    StopRequested,
    HangSuspected,
    HangConfirmed,
    WindowClosed,
    RightChanged,
]


@dataclass(frozen=True)
class AppendStep:
    """Append a row to the attempt's steps."""

    row: StepRow


@dataclass(frozen=True)
class ReplaceStep:
    """Replace the newest row by one that says more about the same step."""

    row: StepRow


@dataclass(frozen=True)
class AppendMoment:
    """Append the beginning or the end of a stall."""

    moment: Moment


@dataclass(frozen=True)
class GiveOrder:
    """Send this order to the launchers that poll for orders."""

    order: Order


@dataclass(frozen=True)
class Announce:
    """Answer the launchers that poll for the rendezvous of a gang, which is complete now."""

    role: str


Effect = Union[AppendStep, ReplaceStep, AppendMoment, GiveOrder, Announce]


@dataclass(frozen=True)
class State:
    """State of one gang: ranks that share a rendezvous and restart together."""

    deciding_role: str
    """Role of the gang; where it has several, the one whose end decides how the attempt ends."""
    pods: int = 1
    """Pods of the deciding role."""
    processes: int = 1
    """Ranks in each of these pods."""
    steps: int = 0
    """Planned steps; 0: not known."""
    started_at: float = 0.0
    incarnation: int = 1
    members: Members[Member] = field(default_factory=Members[Member])
    sizes: Mapping[str, RoleSize] = field(default_factory=lambda: {})
    """By role. Counted at each join, because thousands of launchers ask at once when the last one has joined."""
    meetings: Mapping[str, Meeting] = field(default_factory=lambda: {})
    orders: Tuple[Order, ...] = ()
    progress: Progress = field(default_factory=Progress)
    rank_ends: Tuple[RankEnd, ...] = ()
    """Ends of ranks of the present incarnation."""
    restarts_lent: int = 0
    """Restarts in place that the flow allows this attempt in any `window_seconds`."""
    window_seconds: float = 0.0
    """0: the whole attempt is one window."""
    withheld: str = ""
    """Why restarts in place are not allowed now; "": they are."""
    restarts_elsewhere: Tuple[RestartInPlace, ...] = ()
    """Restarts by the attempt's other gangs, which count against the same budget."""
    mttf_seconds: float = 0.0
    """Mean time to failure of the whole gang, estimated by the flow; 0: not known."""
    restarts: Tuple[RestartInPlace, ...] = ()
    pending: Optional[PendingDecision] = None
    cleared_pods: int = 0
    """Number of pods in which every rank of an earlier incarnation is dead."""
    first_pod: int = 0
    """Index of the first pod; above 0 only for a replica group."""
    companions: Tuple[str, ...] = ()
    """Other roles whose ranks restart with those of the deciding role."""
    scope: str = ROLE
    """Which ranks restart together: one of `SCOPES`."""
    share: float = 1.0
    """Share of the deciding role's ranks in this gang, from 0 to 1."""

    def restarts_left(self, at: float) -> int:
        """Restarts in place that are still allowed at `at` (Unix time in seconds).

        None are left once a journal was lost, because then nobody knows which restarts happened where.
        """
        if self.withheld or self.incarnation != 1 + len(self.restarts):
            return 0
        since = at - self.window_seconds if self.window_seconds else -math.inf
        used = sum(one.at > since for one in (*self.restarts, *self.restarts_elsewhere))
        return max(0, self.restarts_lent - used)

    @property
    def has_right(self) -> bool:
        """Whether the flow allows restarts at all, used up or not; without, a hang is only reported."""
        return self.restarts_lent > 0 and not self.withheld

    @property
    def trains_on(self) -> bool:
        """Whether its ranks train, and nobody may be about to go back to an earlier checkpoint or be reading one."""
        stopping = any(order.is_stop for order in self.orders)
        if stopping or self.rank_ends or self.pending is not None or self.progress.first_nan_step is not None:
            return False
        if any(one.state != "running" for one in self.members.values() if self.restarts_together(one.role)):
            return False
        begun = self.progress.incarnation == self.incarnation if self.progress.recent else self.incarnation == 1
        return begun and self.progress.phase not in ("init", "restore")

    def restarts_together(self, role: str) -> bool:
        """Whether ranks of `role` restart together with this gang."""
        return role == self.deciding_role or role in self.companions

    @property
    def first_key(self) -> Key:
        """Key of the pod with the gang's first rank: it publishes the rendezvous and knows the first checkpoint."""
        return self.deciding_role, self.first_pod

    @property
    def pods_together(self) -> int:
        """Pods in which all old ranks must be dead before the gang may meet again."""
        return self.pods + sum(self.sizes[role].pods for role in self.companions if role in self.sizes)

    @property
    def is_stopping(self) -> bool:
        """Whether the gang was ordered to stop."""
        return any(order.is_stop for order in self.orders)

    @property
    def launched_at(self) -> Optional[float]:
        """Unix time when the last pod of the deciding role had started its ranks; None while one has not."""
        starts = [one.started_at for one in self.members.values() if one.role == self.deciding_role]
        known = [at for at in starts if at is not None]
        return max(known) if len(known) >= self.pods else None


class Transition(NamedTuple):
    """The next state and the effects of an event."""

    state: State
    effects: Tuple[Effect, ...] = ()


class RefusedError(Exception):
    """An event contradicts the state; `status` is the HTTP status of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
