"""What a coordinator tells of a gang beyond its steps: restarts in place, slow ranks, numbers that jumped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from profiles.recovery import RecoveryProfile
from profiles.vocabulary import Action, Mode

RESTART_MARK = "restart-in-place"
REPLICA_BEGIN, REPLICA_END = "replica-begin", "replica-end"
"""A replica group alone begins again: number of the restart and share of the GPUs; it trains again: the number."""
STRAGGLERS_MARK, SLOWER_MARK, JUMP_MARK = "stragglers", "slower", "jump"
"""Kinds of moments: the ranks that lag, as JSON, from now on; the gang became slower; a number jumped."""
PROGRAM_MARKS = frozenset(
    {"restore-begin", "restore-end", "checkpoint-begin", "checkpoint-end", "evaluation-begin", "evaluation-end"}
)
"""Moments that the programs in the pods tell: the ranks stood still to load or to save a checkpoint, or to evaluate."""
SAME_ADVICE = 1.25
"""The cost of an interval is flat around its best value."""


@dataclass(frozen=True)
class RestartInPlace:
    """One use of the right to restart ranks inside their pods."""

    number: int
    """Within the attempt, from 1."""
    at: float
    """When it was decided, Unix seconds: the fault was noticed then."""
    incarnation: int
    """That began with it."""
    kind: Literal["rank-failed", "hang"]
    why: str
    rank: int | None
    """To blame; None: nobody could be named."""
    node: str
    step: int | None
    """The last one before it."""
    resume_step: int | None
    """None: from scratch."""
    resume_from: str = ""
    first_step: int | None = None
    """The first one after it; None: not yet."""
    first_step_at: float | None = None
    stacks: str = ""
    """What the ranks were doing, alike ones together."""
    pods: tuple[int, int] = (0, 0)
    """Of the replica group that alone began again, its first pod and the one after its last; else zeros."""

    share: float = 1.0
    """Of the ranks that train, those that began again; 0: of another role."""

    role: str = ""
    """Of the rank to blame, where it does not train."""

    @property
    def alone(self) -> bool:
        """Others trained on meanwhile."""
        return self.share < 1.0

    @property
    def culprits(self) -> tuple[tuple[str, int | None], ...]:
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
    since_step: int | None = None
    cost_seconds: float = 0.0
    """What the gang has waited for it so far."""


@dataclass(frozen=True)
class Slower:
    """The whole gang became slower, no rank more than the others."""

    since_step: int | None
    ratio: float


@dataclass(frozen=True)
class Jump:
    """A loss or a norm of gradients that is many times what it was, or no number."""

    step: int
    what: str
    """`loss` or `gradient_norm`."""
    value: float | str
    """`nan`, `inf` or `-inf`, as text, where it is no number."""
    before: float | None
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
    rank: int | None = None
    """For whom the others wait; None: not known."""
    node: str = ""
    stacks: str = ""

    @property
    def confirmed(self) -> bool:
        """Whether it counts as hung."""
        return self.verdict == "confirmed"


@dataclass(frozen=True)
class GangNews:
    """What is known beyond steps; what is absent is not known."""

    restarts: tuple[RestartInPlace, ...] = ()
    left: int = 0
    """Restarts in place that it may still do without asking."""
    stopping: bool = False
    """The gang was told to stop."""
    stop_why: str = ""
    """Why, in words; "" while it was not."""
    stragglers: tuple[Straggler, ...] | None = None
    """None: nobody looks, or not enough was seen yet."""
    slower: Slower | None = None
    hang: Hang | None = None
    """Suspected; None: it goes on, as far as anybody knows."""
    jumps: tuple[Jump, ...] = ()
    advised_steps: int | None = None
    """Steps between saves at which least is lost: today's where a change is not worth it; None: not known."""


def alike(advised: int, before: int | None) -> bool:
    """Whether an advice is the one that was written down: measurements waver from save to save."""
    return before is not None and advised <= before * SAME_ADVICE and before <= advised * SAME_ADVICE


def lent_restarts(recovery: RecoveryProfile, mode: Mode, *, paused: bool) -> int:
    """Restarts in place that an attempt may do without asking anybody.

    None where nothing is done automatically, or where a person wants to be asked before.
    """
    return 0 if withheld(recovery, mode, paused=paused) else recovery.in_place_restarts


def withheld(recovery: RecoveryProfile, mode: Mode, *, paused: bool) -> str:
    """Why a right that was lent may not be used now; "": it may."""
    if paused:
        return "automation is paused"
    if mode is Mode.OBSERVE:
        return "mode observe"
    asked = mode is Mode.ASK and Action.RESTART_IN_PLACE in recovery.ask_before
    return "a person wants to be asked before" if asked else ""
