"""What the coordinator knows, hears and causes: the values that `coordination` decides on.

Times stand in the events, so that a journal of events rebuilds the same state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, NamedTuple, Optional, Tuple, Union

from workflows.programs.coordination_members import Members
from workflows.programs.coordination_orders import Key, Order, Restart, Settling
from workflows.programs.gang_progress import Moment, Progress, StepRow
from workflows.reports import RankEnd

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
    """Pods of its role, as it was told by its builder."""
    processes: int = 1
    """Ranks in its pod."""
    essential: bool = True
    """Whether the gang cannot go on without it."""
    state: str = "joined"
    """`joined`, `running`, `leaving`, `ended`, `failed`."""
    pids: Mapping[str, int] = field(default_factory=lambda: {})
    """Process of each rank, by its number as text."""
    started_at: Optional[float] = None
    sequence: int = 0
    """Of the last batch of reports: a batch that is sent twice counts once."""
    incarnation: int = 1
    """Whose ranks it ran when it joined; more than the coordinator's own where that has lost its memory."""
    heard_order: int = 0
    """Number of the last order that it had heard when it joined."""
    resume_from: str = ""
    resume_step: Optional[int] = None
    """What the attempt began with; None: from scratch."""
    cleared: int = 1
    """The incarnation before which none of its ranks lives any more."""

    @property
    def key(self) -> Key:
        """Role and index."""
        return self.role, self.pod_index

    @property
    def place(self) -> str:
        """Its node; where that is not known, the pod stands for it."""
        return self.node or self.pod or f"{self.role} {self.pod_index}"


@dataclass(frozen=True)
class RoleSize:
    """How many launchers of a role there are and should be."""

    joined: int
    pods: int
    processes: int


@dataclass(frozen=True)
class Meeting:
    """Where the ranks of a role meet."""

    incarnation: int
    address: str
    port: int


@dataclass(frozen=True)
class Joined:
    """A launcher presents itself, first or again."""

    at: float
    member: Member


@dataclass(frozen=True)
class Published:
    """The launcher of rank 0 says where its gang meets."""

    at: float
    role: str
    meeting: Meeting


@dataclass(frozen=True)
class Reported:
    """A launcher's batch of reports."""

    at: float
    key: Key
    sequence: int
    reports: Tuple[Any, ...]
    state: str = ""
    """New state of the member; "": unchanged."""
    why: str = ""
    pids: Mapping[str, int] = field(default_factory=lambda: {})
    incarnation: int = 1
    """That `state` and `pids` are about."""


@dataclass(frozen=True)
class Cleared:
    """No rank of an earlier incarnation lives any more in the pod of `key`."""

    at: float
    key: Key
    incarnation: int


@dataclass(frozen=True)
class Ticked:
    """Time passed."""

    at: float


@dataclass(frozen=True)
class StopAsked:
    """The flow asks for the end of the whole gang."""

    at: float
    why: str
    save: bool


@dataclass(frozen=True)
class Suspected:
    """The gang may be hung: where its ranks stand is to be looked at."""

    at: float
    incarnation: int
    why: str


@dataclass(frozen=True)
class HangFound:
    """The gang is hung."""

    at: float
    incarnation: int
    why: str
    rank: Optional[int] = None
    """For whom the others wait; None: nobody could be named."""
    node: str = ""
    stacks: str = ""
    """Where the ranks stand, in words."""


class Slow(NamedTuple):
    """A rank that was slower than its peers in one window of steps."""

    rank: int
    seconds: float
    """Own time before the barrier, of one step."""
    ratio: float
    """Times the peers' median."""


@dataclass(frozen=True)
class Voted:
    """A window of steps has closed: who was slow in it."""

    at: float
    incarnation: int
    step: int
    """The first one of the window."""
    slow: Tuple[Slow, ...]


Event = Union[Joined, Published, Reported, Cleared, Ticked, StopAsked, Suspected, HangFound, Voted]


@dataclass(frozen=True)
class AppendStep:
    """A further row of the attempt's steps."""

    row: StepRow


@dataclass(frozen=True)
class ReplaceStep:
    """The newest row again, with more known about it."""

    row: StepRow


@dataclass(frozen=True)
class AppendMoment:
    """A further beginning or end of a stall."""

    moment: Moment


@dataclass(frozen=True)
class GiveOrder:
    """Launchers that wait for orders get this one."""

    order: Order


@dataclass(frozen=True)
class Announce:
    """A gang is complete: launchers that wait for it go on."""

    role: str


Effect = Union[AppendStep, ReplaceStep, AppendMoment, GiveOrder, Announce]


@dataclass(frozen=True)
class State:
    """Everything the coordinator knows."""

    deciding_role: str
    pods: int = 1
    """Pods of the deciding role."""
    processes: int = 1
    """Ranks in each."""
    steps: int = 0
    """Planned steps; 0: not known."""
    started_at: float = 0.0
    incarnation: int = 1
    members: Members[Member] = field(default_factory=Members[Member])
    sizes: Mapping[str, RoleSize] = field(default_factory=lambda: {})
    """By role; counted when somebody joins, since thousands of launchers ask at the moment the last one came."""
    meetings: Mapping[str, Meeting] = field(default_factory=lambda: {})
    orders: Tuple[Order, ...] = ()
    progress: Progress = field(default_factory=Progress)
    ended: Tuple[RankEnd, ...] = ()
    """Of the present incarnation."""
    restarts_lent: int = 0
    """Restarts in place that this attempt may do without asking."""
    mttf_seconds: float = 0.0
    """Mean time to failure of the whole gang, as the flow believes it; 0: not known."""
    restarts: Tuple[Restart, ...] = ()
    settling: Optional[Settling] = None
    cleared: int = 0
    """Pods of the deciding role in which no rank of an earlier incarnation lives."""

    @property
    def restarts_left(self) -> int:
        """None are left when the memory of an earlier one was lost: what happened where is not known then."""
        forgotten = self.incarnation != 1 + len(self.restarts)
        return 0 if forgotten else max(0, self.restarts_lent - len(self.restarts))

    @property
    def stopping(self) -> bool:
        """The gang was told to stop."""
        return any(order.stops for order in self.orders)

    @property
    def launched_at(self) -> Optional[float]:
        """Unix time when the last pod of the deciding role had started its ranks; None while one has not."""
        starts = [one.started_at for one in self.members.values() if one.role == self.deciding_role]
        known = [at for at in starts if at is not None]
        return max(known) if len(known) >= self.pods else None


class Next(NamedTuple):
    """What follows from an event."""

    state: State
    effects: Tuple[Effect, ...] = ()


class RefusedError(Exception):
    """An event contradicts what is known.

    Args:
        status: HTTP status that says so.
        message: what is wrong.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
