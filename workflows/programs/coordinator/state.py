"""What the coordinator knows and causes: the state that `coordination` decides on, and its effects.

What the coordinator hears: the events that `coordination` decides on, and what they are made of.

Times stand in the events, so that a journal of events rebuilds the same state.

What the coordinator orders, and what leads to it: values of `coordination` and `coordination_restart`.
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
"""What a restart in place answers."""
GANG, ROLE, REPLICA = "gang", "role", "replica"
"""Who begins again with a rank: all roles without which the attempt fails, its own role, or its replica group."""
SCOPES = (GANG, ROLE, REPLICA)


@dataclass(frozen=True)
class Resume:
    """How ranks begin again inside their pods."""

    incarnation: int
    path: str
    """As the trainer is told; "": from scratch."""
    step: Optional[int]


@dataclass(frozen=True)
class Order:
    """What launchers are told to do: to stop, to start their ranks again, or to say where they stand."""

    number: int
    why: str
    save: bool
    """Whether ranks get the time to save."""
    source: Optional[Key] = None
    """Who caused it, and knows already."""
    resume: Optional[Resume] = None
    """How ranks begin again; None: they do not."""
    stacks: str = ""
    """Name of the answer where stacks are asked for; "": they are not."""
    roles: Tuple[str, ...] = ()
    """Whose launchers it concerns; none: everybody's."""

    @property
    def stops(self) -> bool:
        """It is the end of the gang."""
        return self.resume is None and not self.stacks

    def told(self) -> Dict[str, Any]:
        """As launchers read it."""
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
    """Why ranks should begin again."""

    kind: Literal["rank-failed", "hang"]
    why: str
    rank: Optional[int]
    node: str
    stacks: str = ""
    role: str = ""
    """Of the rank; "": the deciding one."""


@dataclass(frozen=True)
class Failure:
    """A rank that ended wrongly by itself."""

    key: Key
    """Its pod."""
    end: RankEnd
    why: str


@dataclass(frozen=True)
class Settling:
    """Ranks have failed, and what became of the others is waited for."""

    until: float
    """Unix time in seconds."""
    failures: Tuple[Failure, ...]
    latest: float
    """Unix time in seconds: `until` is put off to then where a save is still to be proven."""


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
    pod_index: int = 0
    """Of the launcher that says so."""


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
    posted: bool = False
    """A rank has told it, not the launcher, whose batches are numbered: `sequence` is the last one of those."""


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
    gang: int = 0
    """Place of the gang that waits for it."""


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
    gang: int = 0


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
    gang: int = 0


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
    gang: int = 0


@dataclass(frozen=True)
class RightSaid:
    """The flow says whether the right that it has lent holds now."""

    at: float
    withheld: str
    """Why it does not; "": it does."""


Event = Union[Joined, Published, Reported, Cleared, Ticked, StopAsked, Suspected, HangFound, Voted, RightSaid]


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
    """Everything the coordinator knows of one gang: ranks that meet, and that begin again together."""

    deciding_role: str
    """Its role; of several the one that decides how the attempt ends."""
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
    """Restarts in place that this attempt may do without asking, in any `window_seconds`."""
    window_seconds: float = 0.0
    """0: in all of its life."""
    withheld: str = ""
    """Why the right may not be used now; "": it may."""
    elsewhere: Tuple[RestartInPlace, ...] = ()
    """Uses of the same right by the attempt's other gangs."""
    mttf_seconds: float = 0.0
    """Mean time to failure of the whole gang, as the flow believes it; 0: not known."""
    restarts: Tuple[RestartInPlace, ...] = ()
    settling: Optional[Settling] = None
    cleared: int = 0
    """Pods in which no rank of an earlier incarnation lives."""
    first_pod: int = 0
    """Index of the first pod: a replica group is a part of a role."""
    companions: Tuple[str, ...] = ()
    """Other roles whose ranks begin again with those of the deciding one."""
    scope: str = ROLE
    """What begins again together, in words: `GANG`, `ROLE` or `REPLICA`."""
    share: float = 1.0
    """Of the deciding role's ranks."""

    def restarts_left(self, at: float) -> int:
        """How often ranks may begin again as things are.

        None are left when the memory of an earlier time was lost: what happened where is not known then.

        Args:
            at: Unix time in seconds.
        """
        if self.withheld or self.incarnation != 1 + len(self.restarts):
            return 0
        since = at - self.window_seconds if self.window_seconds else -math.inf
        used = sum(one.at > since for one in (*self.restarts, *self.elsewhere))
        return max(0, self.restarts_lent - used)

    @property
    def has_right(self) -> bool:
        """Whether a right was lent, used up or not; nothing is restarted nor killed for a hang without."""
        return self.restarts_lent > 0 and not self.withheld

    def together(self, role: str) -> bool:
        """Whether ranks of `role` begin again when those of this gang do."""
        return role == self.deciding_role or role in self.companions

    @property
    def first_key(self) -> Key:
        """Of the pod with its first rank, which says where it meets and what it began with."""
        return self.deciding_role, self.first_pod

    @property
    def pods_together(self) -> int:
        """Launchers that must have left nothing alive before anybody meets again."""
        return self.pods + sum(self.sizes[role].pods for role in self.companions if role in self.sizes)

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
