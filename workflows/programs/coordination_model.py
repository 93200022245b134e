"""What the coordinator knows and causes: the state that `coordination` decides on, and its effects."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Mapping, NamedTuple, Optional, Tuple, Union

from workflows.programs.coordination_events import Meeting, Member, RoleSize
from workflows.programs.coordination_members import Members
from workflows.programs.coordination_orders import ROLE, Key, Order, Restart, Settling
from workflows.programs.gang_progress import Moment, Progress, StepRow
from workflows.reports import RankEnd


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
    elsewhere: Tuple[Restart, ...] = ()
    """Uses of the same right by the attempt's other gangs."""
    mttf_seconds: float = 0.0
    """Mean time to failure of the whole gang, as the flow believes it; 0: not known."""
    restarts: Tuple[Restart, ...] = ()
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
