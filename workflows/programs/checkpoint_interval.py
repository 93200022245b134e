"""How often to save, told to the coordinator by its own measurements: Young, Daly, the exact optimum, advice. Pure.

d is the stall of one save, M the mean time to failure of the whole gang, R the time of a restart, t the training
between two saves (the save itself excluded). Sources: Young, CACM 1974; Daly, FGCS 2006, and vectors of its figures.

The coordinator gathers `stalls` and `drains` (`coordination_saves`) and asks for `advice`; what it answers is applied
to the next attempt, and only where the profile allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import List, Sequence

_HALVINGS = 80
"""Of an interval of days down to less than a float tells apart."""
LEAST_SAVES = 3
"""The first save of a program makes folders and warms caches: fewer measurements are no measure."""
WORTH = 0.01
"""Of the wall time: another interval that gains less is not worth a change."""


def young_seconds(stall_seconds: float, mttf_seconds: float) -> float:
    """Young's first order interval: sqrt(2 d M)."""
    return math.sqrt(2 * stall_seconds * mttf_seconds)


def daly_seconds(stall_seconds: float, mttf_seconds: float) -> float:
    """Daly's higher order interval; the mean time to failure where saves take longer than twice that."""
    if stall_seconds >= 2 * mttf_seconds:
        return mttf_seconds
    ratio = stall_seconds / (2 * mttf_seconds)
    return math.sqrt(2 * stall_seconds * mttf_seconds) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - stall_seconds


def overhead(interval_seconds: float, stall_seconds: float, restart_seconds: float, mttf_seconds: float) -> float:
    """Expected wall time of a second of training (Daly): M e^(R/M) (e^((t+d)/M) - 1) / t; infinite past any float."""
    try:
        grown = math.expm1((interval_seconds + stall_seconds) / mttf_seconds)
        return mttf_seconds * math.exp(restart_seconds / mttf_seconds) * grown / interval_seconds
    except (OverflowError, ZeroDivisionError):
        return math.inf


def optimal_seconds(stall_seconds: float, mttf_seconds: float) -> float:
    """Where `overhead` is least; the restart changes the cost, not the place of its minimum.

    There 1 - t/M = e^(-(t+d)/M), which has one solution between 0 and M.
    """
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if -math.expm1(-(middle + stall_seconds / mttf_seconds)) > middle:
            low = middle
        else:
            high = middle
    return low * mttf_seconds


def asynchronous_seconds(stall_seconds: float, drain_seconds: float, mttf_seconds: float) -> float:
    """Of saves that are written in the background: only the stall costs, but one must be durable before the next.

    Args:
        stall_seconds: ranks stand still so long for one save.
        drain_seconds: until a save is durable; a staged one helps nobody after the node is lost.
        mttf_seconds: of the whole gang.
    """
    return max(optimal_seconds(stall_seconds, mttf_seconds), drain_seconds)


@dataclass(frozen=True)
class Advice:
    """How often to save, and what that gains."""

    seconds: float
    """Of training between two saves."""
    steps: int
    """The same in steps, at least 1."""
    gain: float
    """Share of the wall time that it saves against the interval of today; 0 where that is as good."""
    change: bool
    """Whether the gain is worth a change."""
    why: str
    measured: bool = True
    """False: too little is known, and this is the interval of today."""


def advice(
    stalls: Sequence[float],
    drains: Sequence[float],
    step_seconds: float,
    steps_between: int,
    mttf_seconds: float,
) -> Advice:
    """Advice from what was measured; too few saves or an unknown figure: the interval of today, and why.

    Args:
        stalls: [saves] seconds that ranks stood still for each save.
        drains: [saves] seconds from the begin of each save until it was durable; empty: not known, counts as none.
        step_seconds: typical step.
        steps_between: two saves today.
        mttf_seconds: of the whole gang, believed from the fleet's failures; see the flows' failure rate.

    How long a restart takes makes every interval dearer by the same factor, so it changes neither advice nor gain.
    """
    today = max(1, steps_between) * step_seconds
    if not (math.isfinite(step_seconds) and math.isfinite(mttf_seconds)) or step_seconds <= 0 or mttf_seconds <= 0:
        return Advice(today, max(1, steps_between), 0.0, False, "step time or mean time to failure is not known", False)
    if len(stalls) < LEAST_SAVES:
        return Advice(
            today, max(1, steps_between), 0.0, False, f"{len(stalls)} of {LEAST_SAVES} saves measured so far", False
        )
    stall, drain = _middle(stalls), _middle(drains)
    steps = max(1, round(asynchronous_seconds(stall, drain, mttf_seconds) / step_seconds))
    steps = max(steps, math.ceil(drain / step_seconds))
    cost, best = (overhead(one, stall, 0.0, mttf_seconds) for one in (today, steps * step_seconds))
    gain = max(0.0, 1 - best / cost) if math.isfinite(cost) else float(math.isfinite(best))
    must = today < drain  # saves that overtake each other never become durable in time
    why = f"a save stalls {stall:.3g} s and is durable after {drain:.3g} s, a failure every {mttf_seconds:.3g} s"
    return Advice(steps * step_seconds, steps, gain, must or gain >= WORTH, why)


def _middle(values: Sequence[float]) -> float:
    """Their upper median, rather too long than too short; 0 for none."""
    ordered: List[float] = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0.0
