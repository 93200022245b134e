"""What the coordinator answers to `GET /status`: the values that it writes, and their tolerant reader.

Standard library only, Python 3.9: it travels inside the program archive, beside `wire`, whose reports are part of it.
Not a part of `wire`, because every launcher loads that when it starts, and none needs this.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Callable, Dict, List, Literal, Optional, Tuple, Type, Union, cast, get_args, get_origin
from typing import get_type_hints as hints_of

from workflows.wire import NOT_FINITE, CheckpointSeen, RankEnd, T

Figure = Union[float, str]
"""A number; `nan`, `inf` or `-inf`, as text, where it is none."""

_FLAT = frozenset((bool, int, float, str, dict, type(None)))

TEXT_CHARACTERS = 4000
"""Of one text that are kept."""


@dataclass(frozen=True)
class MemberStatus:
    """A launcher with its ranks."""

    role: str = ""
    pod_index: int = 0
    pod: str = ""
    node: str = ""
    address: str = ""
    state: str = ""
    last_heard_at: Optional[float] = None
    """Unix seconds by the coordinator's clock."""
    ranks: List[int] = field(default_factory=lambda: [])
    pids: Dict[str, int] = field(default_factory=lambda: {})


@dataclass(frozen=True)
class FirstStep:
    """The first step of the attempt."""

    step: int
    at: float


@dataclass(frozen=True)
class SaveAdvice:
    """How often to save, and what that gains."""

    steps: int
    """Between two saves, at least 1."""
    seconds: float = 0.0
    """The same in seconds of training."""
    gain: float = 0.0
    """Share of the wall time that it saves against the interval of today; 0 where that is as good."""
    change: bool = False
    """Whether the gain is worth a change."""
    measured: bool = False
    """False: too little is known, and this is the interval of today."""
    why: str = ""


@dataclass(frozen=True)
class SavesStatus:
    """How far the newest saves are (steps), and what they cost (medians in seconds)."""

    staged: Optional[int] = None
    written: Optional[int] = None
    durable: Optional[int] = None
    count: int = 0
    stall_seconds: Optional[float] = None
    drain_seconds: Optional[float] = None
    steps_between: Optional[int] = None
    advice: Optional[SaveAdvice] = None


@dataclass(frozen=True)
class Right:
    """The right to restart in place that the flow has lent."""

    restarts: int = 0
    left: int = 0
    """Restarts in place that the coordinator may still do without asking."""
    window_seconds: Optional[float] = None
    scope: str = ""
    withheld: str = ""
    """Why it may not be used now; "": it may."""


@dataclass(frozen=True)
class RestartInPlace:
    """One use of the right to restart ranks inside their pods."""

    number: int
    """Within the attempt, from 1."""
    at: float
    """When it was decided, Unix seconds: the fault was noticed then."""
    incarnation: int
    """That began with it."""
    kind: Literal["rank-failed", "hang"] = "rank-failed"
    why: str = ""
    rank: Optional[int] = None
    """To blame; None: nobody could be named."""
    node: str = ""
    """Where it ran; "": not known."""
    step: Optional[int] = None
    """The last one before it."""
    resume_step: Optional[int] = None
    """None: from scratch."""
    resume_from: str = ""
    first_step: Optional[int] = None
    """The first one after it; None: not yet."""
    first_step_at: Optional[float] = None
    stacks: str = ""
    """After a hang: what the ranks were doing, alike ones together."""
    pods: Tuple[int, int] = (0, 0)
    """Of the replica group that alone began again, its first pod and the one after its last; else zeros."""
    share: float = 1.0
    """Of the ranks that train, those that began again; 0: of another role."""
    role: str = ""
    """Of the rank to blame, where it does not train."""
    scope: str = ""
    """Who began again: `gang`, `role` or `replica`."""
    happened_at: Optional[float] = None
    """When the rank ended, or the last sign of progress before a hang, by its launcher's clock; None: not known."""

    @property
    def alone(self) -> bool:
        """Others trained on meanwhile."""
        return self.share < 1.0

    @property
    def culprits(self) -> Tuple[Tuple[str, Optional[int]], ...]:
        """Node and rank to blame; ranks are those that train."""
        rank = None if self.role else self.rank
        return ((self.node, rank),) if self.node or rank is not None else ()

    @property
    def words(self) -> str:
        """Whose fault and from where, for people: `rank 1, from step 20`."""
        whose = "the gang" if self.rank is None else f"rank {self.rank}"
        if self.role:
            whose += f" of {self.role}"
        if self.pods[1] > self.pods[0]:
            whose += f" with its replica group (pods {self.pods[0]} to {self.pods[1] - 1})"
        return f"{whose}, {'from scratch' if self.resume_step is None else f'from step {self.resume_step}'}"


@dataclass(frozen=True)
class Straggler:
    """A rank that takes longer than its peers before it meets them."""

    rank: int
    node: str
    ratio: float
    """Times the peers' median."""
    since_step: Optional[int] = None
    cost_seconds: float = 0.0
    """What the gang has waited for it so far."""


@dataclass(frozen=True)
class Slower:
    """The whole gang became slower, no rank more than the others."""

    since_step: Optional[int]
    ratio: float
    before_seconds: float = 0.0
    after_seconds: float = 0.0


@dataclass(frozen=True)
class Jump:
    """A loss or a norm of gradients that is many times what it was, or no number."""

    step: int
    what: str
    """`loss` or `gradient_norm`."""
    value: Figure
    before: Optional[float]
    """The median of the values before it; None: there were none."""
    incarnation: int = 1
    """Of the ranks that reported it."""


@dataclass(frozen=True)
class Hang:
    """No progress for longer than the phase may take."""

    waited_seconds: float
    phase: str = ""
    verdict: Literal["suspect", "observer", "confirmed"] = "suspect"
    """`confirmed`: longer than its second window too. `observer`: so long, but most launchers were not heard meanwhile
    either, so that it may be the coordinator that does not hear."""
    why: str = ""
    rank: Optional[int] = None
    """For whom the others wait; None: not known."""
    node: str = ""
    stacks: str = ""
    step: Optional[int] = None
    budget_seconds: Optional[float] = None

    @property
    def confirmed(self) -> bool:
        """Whether it counts as hung."""
        return self.verdict == "confirmed"


@dataclass(frozen=True)
class CoordinatorStatus:
    """The whole answer. Times are Unix seconds; None: not known."""

    run: str = ""
    attempt: int = 0
    incarnation: int = 0
    members: List[MemberStatus] = field(default_factory=lambda: [])
    step: Optional[int] = None
    steps: Optional[int] = None
    """The planned last one."""
    loss: Optional[Figure] = None
    first_step: Optional[FirstStep] = None
    steps_per_second: Optional[float] = None
    step_interval: int = 1
    first_nan_step: Optional[int] = None
    last_checkpoint_step: Optional[int] = None
    checkpoints: List[CheckpointSeen] = field(default_factory=lambda: [])
    removed: List[CheckpointSeen] = field(default_factory=lambda: [])
    """The newest of those that nobody needed and that are gone."""
    saves: Optional[SavesStatus] = None
    unrecognised: Optional[str] = None
    """Why nothing that was saved can be resumed from; "": something can, or nothing was saved."""
    ended: List[RankEnd] = field(default_factory=lambda: [])
    phase: str = ""
    phase_at: Optional[float] = None
    orders: List[Dict[str, Any]] = field(default_factory=lambda: [])
    """As launchers hear them: `order` is `stop`, `restart` or `stacks`, and `why`."""
    restarts: List[RestartInPlace] = field(default_factory=lambda: [])
    right: Right = field(default_factory=Right)
    recent_steps: List[Any] = field(default_factory=lambda: [])
    started_at: Optional[float] = None
    launched_at: Optional[float] = None
    """When the ranks of this incarnation were started."""
    now: Optional[float] = None
    """By the coordinator's clock."""
    hang: Optional[Hang] = None
    """The worst doubt about any gang; None: all go on, as far as anybody knows."""
    stragglers: Optional[List[Straggler]] = None
    """The costliest first; None: nobody looks."""
    slower: Optional[Slower] = None
    numeric: List[Jump] = field(default_factory=lambda: [])
    """The newest figures that jumped or are none, oldest first."""


def plain(value: Any) -> Any:
    """A status as JSON can say it; of what is no object no copy is made: a gang has thousands of ranks."""
    if type(value) is list:
        listed = cast("List[Any]", value)
        return [plain(item) for item in listed] if listed and dataclasses.is_dataclass(listed[0]) else listed
    if not dataclasses.is_dataclass(value):
        return value
    fields = vars(value)
    deep = {name: plain(item) for name, item in fields.items() if type(item) not in _FLAT}
    return {**fields, **deep}


def read_status(body: bytes) -> Optional[CoordinatorStatus]:
    """The status in an answer, as far as it can be read; None where it is no object at all. Never raises."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return known(CoordinatorStatus, found)


UNREADABLE: Any = object()


def known(kind: Type[T], told: Any) -> Optional[T]:
    """What can be read of an object of JSON: a field that cannot be read has its default, as if it were absent.

    None where it is no object, or where a field without a default cannot be read.
    """
    if not isinstance(told, dict):
        return None
    values: Dict[str, Any] = {}
    for name, read, required in _fields(kind):
        value = read(cast("Dict[str, Any]", told).get(name))
        if value is not UNREADABLE:
            values[name] = value
        elif required:
            return None
    return kind(**values)


@lru_cache(maxsize=None)
def _fields(kind: Any) -> Tuple[Tuple[str, Callable[[Any], Any], bool], ...]:
    hints = hints_of(kind)
    return tuple(
        (item.name, _reader(hints[item.name]), item.default is item.default_factory)
        for item in dataclasses.fields(kind)
    )


def _reader(hint: Any) -> Callable[[Any], Any]:
    """What reads a value of that type, or says `UNREADABLE`."""
    origin, of = get_origin(hint), get_args(hint)
    if hint == Figure:
        return lambda told: told if told in NOT_FINITE else _number(told)
    if origin is Union:
        inner = _reader(next(item for item in of if item is not type(None)) if len(of) == 2 else Figure)
        return lambda told: None if told is None else inner(told)
    if origin is Literal:
        return lambda told: told if told in of else UNREADABLE
    if origin in (list, tuple):
        return _items_reader(_reader(of[0]), len(of) if origin is tuple else None)
    if dataclasses.is_dataclass(hint):
        return lambda told: UNREADABLE if (found := known(cast("Type[Any]", hint), told)) is None else found
    if hint in (float, str):
        return _number if hint is float else _text
    return lambda told: told if hint is Any or type(told) is (origin or hint) else UNREADABLE


def _items_reader(read: Callable[[Any], Any], length: Optional[int]) -> Callable[[Any], Any]:
    """Of a list, in which what cannot be read is left out; of a tuple of `length`, which is read as a whole or not."""

    def items(value: Any) -> Any:
        if not isinstance(value, list):
            return UNREADABLE
        found = [item for item in map(read, cast("List[Any]", value)) if item is not UNREADABLE]
        if length is None:
            return found
        return tuple(found) if len(found) == len(cast("List[Any]", value)) == length else UNREADABLE

    return items


def _number(value: Any) -> Any:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return UNREADABLE
    try:
        return float(value) if math.isfinite(value) else UNREADABLE
    except OverflowError:
        return UNREADABLE


def _text(value: Any) -> Any:
    """A text, or its lines."""
    if isinstance(value, list):
        value = "\n".join(map(str, cast("List[Any]", value)))
    return value[:TEXT_CHARACTERS] if isinstance(value, str) else UNREADABLE
