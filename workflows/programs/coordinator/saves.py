"""What the saves of a gang cost and how far each has come. Pure: times stand in the reports.

A save is *staged* when the ranks train on (their state was copied away), *written* when the last of its files was, and
*durable* when it was read back from the storage and proven: that one alone is there after a node is lost.

How often to save, told to the coordinator by its own measurements: Young, Daly, the exact optimum, advice. Pure.

d is the stall of one save, M the mean time to failure of the whole gang, R the time of a restart, t the training
between two saves (the save itself excluded). Sources: Young, CACM 1974; Daly, FGCS 2006, and vectors of its figures.

The coordinator gathers `stalls` and `drains` (`coordination_saves`) and asks for `advice`; what it answers is applied
to the next attempt, and only where the profile allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import List, NamedTuple, Optional, Sequence, Tuple

from workflows.programs.runtime.flags import replace
from workflows.status import SaveAdvice, SavesStatus
from workflows.wire import CheckpointSeen

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


def advice(
    stalls: Sequence[float],
    drains: Sequence[float],
    step_seconds: float,
    steps_between: int,
    mttf_seconds: float,
) -> SaveAdvice:
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
        return SaveAdvice(max(1, steps_between), today, why="step time or mean time to failure is not known")
    if len(stalls) < LEAST_SAVES:
        return SaveAdvice(max(1, steps_between), today, why=f"{len(stalls)} of {LEAST_SAVES} saves measured so far")
    stall, drain = _middle(stalls), _middle(drains)
    steps = max(1, round(asynchronous_seconds(stall, drain, mttf_seconds) / step_seconds))
    steps = max(steps, math.ceil(drain / step_seconds))
    cost, best = (overhead(one, stall, 0.0, mttf_seconds) for one in (today, steps * step_seconds))
    gain = max(0.0, 1 - best / cost) if math.isfinite(cost) else float(math.isfinite(best))
    must = today < drain  # saves that overtake each other never become durable in time
    why = f"a save stalls {stall:.3g} s and is durable after {drain:.3g} s, a failure every {mttf_seconds:.3g} s"
    return SaveAdvice(steps, steps * step_seconds, gain, must or gain >= WORTH, measured=True, why=why)


def _middle(values: Sequence[float]) -> float:
    """Their upper median, rather too long than too short; 0 for none."""
    ordered: List[float] = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0.0


KEPT_SAVES = 32


class Save(NamedTuple):
    """One save. Unix times in seconds."""

    step: Optional[int]
    """The step that was completed last when it began; None: none was seen."""
    begun_at: float
    stall_seconds: Optional[float] = None
    """The ranks stood still for so long; None: they still do."""
    written_at: Optional[float] = None
    durable_at: Optional[float] = None


@dataclass(frozen=True)
class Saves:
    """The saves of an attempt."""

    recent: Tuple[Save, ...] = ()
    """The newest ones, in order of their begin."""
    count: int = 0
    """Saves that were staged, over the whole attempt."""
    staged: Optional[int] = None
    """Newest step of that kind."""
    written: Optional[int] = None
    durable: Optional[int] = None

    @property
    def stalls(self) -> List[float]:
        """[saves] seconds that ranks stood still."""
        return [one.stall_seconds for one in self.recent if one.stall_seconds is not None]

    @property
    def drains(self) -> List[float]:
        """[saves] seconds from the begin of a save until it was durable."""
        return [one.durable_at - one.begun_at for one in self.recent if one.durable_at is not None]

    @property
    def steps_between(self) -> int:
        """Steps from one save to the next, the upper median; 0: not known."""
        steps = [one.step for one in self.recent if one.step is not None]
        pairs = zip(steps, steps[1:])  # noqa: B905, RUF007 - 3.10
        gaps = sorted(later - earlier for earlier, later in pairs if later > earlier)
        return gaps[len(gaps) // 2] if gaps else 0


def begun(saves: Saves, step: Optional[int], at: float) -> Saves:
    """The ranks stand still to save."""
    return replace(saves, recent=(*saves.recent, Save(step, at))[-KEPT_SAVES:])


def ended(saves: Saves, at: float) -> Saves:
    """The ranks go on; an end at its own beginning takes the save back."""
    if not saves.recent or saves.recent[-1].stall_seconds is not None:
        return saves
    last, before = saves.recent[-1], saves.recent[:-1]
    if at <= last.begun_at:
        return replace(saves, recent=before)
    last = last._replace(stall_seconds=at - last.begun_at)
    staged = saves.staged if last.step is None else last.step
    return replace(saves, recent=(*before, last), count=saves.count + 1, staged=staged)


def written(saves: Saves, report: CheckpointSeen, interval: int) -> Saves:
    """The prover has found a checkpoint whole, and not read it yet.

    Args:
        saves: what is known.
        report: what it found.
        interval: steps from one reported step to the next: the save may have begun after steps that nobody told.
    """
    if report.written_at is None:
        return saves
    newest = report.step if saves.written is None else max(saves.written, report.step)
    return _came_so_far(replace(saves, written=newest), report, report.written_at, interval)


def examined(saves: Saves, report: CheckpointSeen, good: Optional[int], interval: int) -> Saves:
    """The prover has read a checkpoint.

    Args:
        saves: what is known.
        report: what it found.
        good: newest step that is proven good, with this report.
        interval: as for `written`.
    """
    saves = replace(saves, durable=good)
    return written(saves, report, interval) if report.verdict == "pass" else saves


def _came_so_far(saves: Saves, report: CheckpointSeen, written_at: float, interval: int) -> Saves:
    """With what is known now of the save that the report is about."""
    places = [
        place
        for place, one in enumerate(saves.recent)
        if one.step is not None and one.step <= report.step < one.step + interval and one.begun_at <= report.at
    ]
    if not places or saves.recent[places[-1]].durable_at is not None:
        return saves
    changed = list(saves.recent)
    one = changed[places[-1]]
    # Files are stamped by the clock of the storage, which may be another one.
    known = min(max(written_at, one.begun_at), report.at) if one.written_at is None else one.written_at
    changed[places[-1]] = one._replace(written_at=known, durable_at=report.at if report.verdict == "pass" else None)
    return replace(saves, recent=tuple(changed))


def advised(saves: Saves, step_seconds: Optional[float], mttf_seconds: float) -> Optional[SaveAdvice]:
    """How often to save; None: nobody told how often the gang fails, or how often it saves is not known yet.

    Args:
        saves: of the attempt.
        step_seconds: typical step without saves; None: not known.
        mttf_seconds: mean time to failure of the whole gang; 0: not known.
    """
    if mttf_seconds <= 0 or step_seconds is None or not saves.steps_between:
        return None
    return advice(saves.stalls, saves.drains, step_seconds, saves.steps_between, mttf_seconds)


def told(saves: Saves, found: Optional[SaveAdvice]) -> SavesStatus:
    """As `/status` says it."""
    return SavesStatus(
        staged=saves.staged,
        written=saves.written,
        durable=saves.durable,
        count=saves.count,
        stall_seconds=middle(saves.stalls),
        drain_seconds=middle(saves.drains),
        steps_between=saves.steps_between or None,
        advice=found,
    )


def middle(values: Sequence[float]) -> Optional[float]:
    """Their upper median; None for none."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None
