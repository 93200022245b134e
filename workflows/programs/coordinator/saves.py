"""What the saves of a gang cost and how far each has come. Pure: times stand in the reports.

A save is *staged* when the ranks train on (their state was copied away), *written* when its last file was, and
*durable* when it was read back from the storage and proven: only that one survives the loss of a node.

`advice` says how often to save, from the stalls and drains of past saves: Young, Daly and the exact optimum. It is
applied to the next attempt, and only where the profile allows. In the formulas d is the stall of one save, M the mean
time to failure of the whole gang, R the time of a restart, t the training between two saves (without the save itself).
Sources: Young, CACM 1974; Daly, FGCS 2006, and vectors of its figures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import List, NamedTuple, Optional, Sequence, Tuple

from workflows.programs.runtime.flags import replace
from workflows.status import SaveAdvice, SavesStatus
from workflows.wire import CheckpointSeen

_HALVINGS = 80
"""Bisections that bring an interval of days below the resolution of a float."""
LEAST_SAVES = 3
"""Saves that advice needs; the first save of a program makes folders and warms caches."""
LEAST_GAIN = 0.01
"""Share of the wall time that another interval must gain to be worth a change."""

KEPT_SAVES = 32


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
    """Best interval for saves that are written in the background: only the stall costs time.

    Each save must be durable (after `drain_seconds`) before the next begins, since a staged one is lost with the node.
    """
    return max(optimal_seconds(stall_seconds, mttf_seconds), drain_seconds)


def advice(
    stalls: Sequence[float],
    drains: Sequence[float],
    step_seconds: float,
    steps_between: int,
    mttf_seconds: float,
) -> SaveAdvice:
    """Advice from measurements; with too few saves or an unknown figure it keeps the present interval and says why.

    `stalls` [saves] has the seconds that ranks stood still for each save, `drains` [saves] those until it was durable
    (empty: not known, counts as none); `mttf_seconds` is the mean time to failure of the whole gang.

    The time of a restart makes every interval dearer by the same factor, so it changes neither advice nor gain.
    """
    today = max(1, steps_between) * step_seconds
    if not (math.isfinite(step_seconds) and math.isfinite(mttf_seconds)) or step_seconds <= 0 or mttf_seconds <= 0:
        return SaveAdvice(max(1, steps_between), today, why="step time or mean time to failure is not known")
    if len(stalls) < LEAST_SAVES:
        return SaveAdvice(max(1, steps_between), today, why=f"{len(stalls)} of {LEAST_SAVES} saves measured so far")
    stall, drain = upper_median(stalls) or 0.0, upper_median(drains) or 0.0
    steps = max(1, round(asynchronous_seconds(stall, drain, mttf_seconds) / step_seconds))
    steps = max(steps, math.ceil(drain / step_seconds))
    cost, best = (overhead(one, stall, 0.0, mttf_seconds) for one in (today, steps * step_seconds))
    gain = max(0.0, 1 - best / cost) if math.isfinite(cost) else float(math.isfinite(best))
    must = today < drain  # saves that overtake each other never become durable in time
    why = f"a save stalls {stall:.3g} s and is durable after {drain:.3g} s, a failure every {mttf_seconds:.3g} s"
    return SaveAdvice(steps, steps * step_seconds, gain, must or gain >= LEAST_GAIN, measured=True, why=why)


class Save(NamedTuple):
    """One save. Unix times in seconds."""

    step: Optional[int]
    """Last step completed before it began; None: none was seen."""
    begun_at: float
    stall_seconds: Optional[float] = None
    """How long the ranks stood still; None: they still do."""
    written_at: Optional[float] = None
    durable_at: Optional[float] = None


@dataclass(frozen=True)
class Saves:
    """The saves of an attempt."""

    recent: Tuple[Save, ...] = ()
    """The newest ones, in order of their begin."""
    count: int = 0
    """Saves staged in the whole attempt."""
    staged: Optional[int] = None
    """Newest step that was staged; likewise below."""
    written: Optional[int] = None
    durable: Optional[int] = None

    @property
    def stalls(self) -> List[float]:
        """[saves] Seconds that ranks stood still."""
        return [one.stall_seconds for one in self.recent if one.stall_seconds is not None]

    @property
    def drains(self) -> List[float]:
        """[saves] Seconds from the begin of a save until it was durable."""
        return [one.durable_at - one.begun_at for one in self.recent if one.durable_at is not None]

    @property
    def steps_between(self) -> int:
        """Upper median of the steps from one save to the next; 0: not known."""
        steps = [one.step for one in self.recent if one.step is not None]
        pairs = zip(steps, steps[1:])  # noqa: B905, RUF007 - 3.10
        gaps = sorted(later - earlier for earlier, later in pairs if later > earlier)
        return gaps[len(gaps) // 2] if gaps else 0


def begin_save(saves: Saves, step: Optional[int], at: float) -> Saves:
    """A save begins: the ranks stand still."""
    return replace(saves, recent=(*saves.recent, Save(step, at))[-KEPT_SAVES:])


def end_save(saves: Saves, at: float) -> Saves:
    """The ranks go on after a save; an end at the time of the beginning cancels the save."""
    if not saves.recent or saves.recent[-1].stall_seconds is not None:
        return saves
    last, before = saves.recent[-1], saves.recent[:-1]
    if at <= last.begun_at:
        return replace(saves, recent=before)
    last = last._replace(stall_seconds=at - last.begun_at)
    staged = saves.staged if last.step is None else last.step
    return replace(saves, recent=(*before, last), count=saves.count + 1, staged=staged)


def note_written(saves: Saves, report: CheckpointSeen, interval: int) -> Saves:
    """The prover found a checkpoint complete, but has not read it yet.

    `interval` is the distance between two reported steps: the save may have begun after a step that was not reported.
    """
    if report.written_at is None:
        return saves
    newest = report.step if saves.written is None else max(saves.written, report.step)
    return _note_progress(replace(saves, written=newest), report, report.written_at, interval)


def note_examined(saves: Saves, report: CheckpointSeen, good: Optional[int], interval: int) -> Saves:
    """The prover read a checkpoint; `good` is the newest step that is now proven good, `interval` as above."""
    saves = replace(saves, durable=good)
    return note_written(saves, report, interval) if report.verdict == "pass" else saves


def _note_progress(saves: Saves, report: CheckpointSeen, written_at: float, interval: int) -> Saves:
    """Update the save that wrote the reported checkpoint."""
    places = [
        place
        for place, one in enumerate(saves.recent)
        if one.step is not None and one.step <= report.step < one.step + interval and one.begun_at <= report.at
    ]
    if not places or saves.recent[places[-1]].durable_at is not None:
        return saves
    changed = list(saves.recent)
    one = changed[places[-1]]
    # Times of files come from the clock of the storage, which may differ.
    known = min(max(written_at, one.begun_at), report.at) if one.written_at is None else one.written_at
    changed[places[-1]] = one._replace(written_at=known, durable_at=report.at if report.verdict == "pass" else None)
    return replace(saves, recent=tuple(changed))


def advice_for(saves: Saves, step_seconds: Optional[float], mttf_seconds: float) -> Optional[SaveAdvice]:
    """How often to save; None while the mean time to failure, the step time or the present interval is not known."""
    if mttf_seconds <= 0 or step_seconds is None or not saves.steps_between:
        return None
    return advice(saves.stalls, saves.drains, step_seconds, saves.steps_between, mttf_seconds)


def status_of(saves: Saves, found: Optional[SaveAdvice]) -> SavesStatus:
    """Saves as `/status` shows them, with medians of what they cost."""
    return SavesStatus(
        staged=saves.staged,
        written=saves.written,
        durable=saves.durable,
        count=saves.count,
        stall_seconds=upper_median(saves.stalls),
        drain_seconds=upper_median(saves.drains),
        steps_between=saves.steps_between or None,
        advice=found,
    )


def upper_median(values: Sequence[float]) -> Optional[float]:
    """Upper median, which is rather too long than too short; None without values."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None
