"""What the coordinator hears: the events that `coordination` decides on, and what they are made of.

Times stand in the events, so that a journal of events rebuilds the same state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, NamedTuple, Optional, Tuple, Union

from workflows.programs.coordination_orders import Key

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
