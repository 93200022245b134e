"""What a coordinator tells of a gang beyond its steps: restarts in place, slow ranks, numbers that jumped."""

from __future__ import annotations

from dataclasses import dataclass

from profiles.recovery import RecoveryProfile
from profiles.vocabulary import Action, Mode
from workflows.status import Hang, Jump, RestartInPlace, Slower, Straggler

RESTART_MARK = "restart-in-place"
REPLICA_BEGIN, REPLICA_END = "replica-begin", "replica-end"
"""A replica group alone begins again: number of the restart and share of the GPUs; it trains again: the number."""
STRAGGLERS_MARK, SLOWER_MARK, JUMP_MARK = "stragglers", "slower", "jump"
"""Kinds of moments: the ranks that lag, as JSON, from now on; the gang became slower; a number jumped."""
PROGRAM_MARKS = frozenset(
    {"restore-begin", "restore-end", "checkpoint-begin", "checkpoint-end", "evaluation-begin", "evaluation-end"}
)
"""Moments that the programs in the pods tell: the ranks stood still to load or to save a checkpoint, or to evaluate."""
CLOCK_SECONDS = 5.0
"""Clocks that are kept in time differ by less. What lies further outside its attempt's life was told by a wrong one."""
SAME_ADVICE = 1.25
"""The cost of an interval is flat around its best value."""


@dataclass(frozen=True)
class GangNews:
    """What a flow takes from `/status` beyond steps; what is absent is not known."""

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
    unrecognised: str | None = None
    """Why nothing that was saved can be resumed from; "": something can, or nothing was saved; None: not heard."""
    advised_steps: int | None = None
    """Steps between saves at which least is lost: today's where a change is not worth it; None: not known."""


def alike(advised: int, before: int | None) -> bool:
    """Whether an advice is the one that was written down: measurements waver from save to save."""
    return before is not None and advised <= before * SAME_ADVICE and before <= advised * SAME_ADVICE


def lent_restarts(recovery: RecoveryProfile, mode: Mode, *, paused: bool) -> int:
    """Restarts in place that an attempt may do without asking.

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
