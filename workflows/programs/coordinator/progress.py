"""How far the whole gang is, from the reports of its ranks. Pure: times stand in the reports."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple, Optional, Sequence, Tuple, Union

from workflows.programs.coordinator import saves as coordinator_saves
from workflows.programs.coordinator.saves import Saves
from workflows.programs.runtime.flags import replace
from workflows.wire import CheckpointSeen, PhaseSeen, StepSeen

RECENT_STEPS = 32
KEPT_CHECKPOINTS = 200
PROVEN = ("pass", "fail")
"""Verdicts of a checkpoint that was read."""
StepRow = Tuple[int, float, Optional[float], Optional[float]]
"""Step, Unix time, seconds and loss as the program said them."""


class Moment(NamedTuple):
    """The gang began or ended to load (`restore`) or to save (`checkpoint`) a checkpoint, or to evaluate."""

    kind: str
    """`<phase>-begin` or `<phase>-end`, with a phase of `STALLS`."""
    at: float
    """Unix time in seconds; a beginning may be told in hindsight, so times are not in order."""
    detail: str = ""
    """The line that said so."""


class Stall(NamedTuple):
    """The gang stands still since `at`."""

    phase: str
    """One of `STALLS`."""
    rank: int
    """The lowest one that said so; only its words end it."""
    at: float
    rows: int = 0
    """Steps that another rank has reported since."""


STALLS = ("restore", "checkpoint", "evaluation")


@dataclass(frozen=True)
class Progress:
    """Steps, phase and checkpoints of a gang."""

    reporting_rank: Optional[int] = None
    """The lowest rank that reports steps; only its reports count, since every rank may print the same."""
    first_step: Optional[Tuple[int, float]] = None
    """First step seen in this attempt and when: the proof of what was resumed."""
    recent: Tuple[StepRow, ...] = ()
    """The newest rows, oldest first."""
    interval: int = 1
    """Largest distance between two reported steps: the program's own logging interval."""
    first_nan_step: Optional[int] = None
    phase: str = ""
    phase_at: float = 0.0
    stall: Optional[Stall] = None
    checkpoints: Tuple[CheckpointSeen, ...] = ()
    last_checkpoint_step: Optional[int] = None
    """Of the newest one that was proven good."""
    incarnation: int = 1
    """Whose steps the newest rows are."""
    unproven: bool = False
    """A save has ended of which the prover has not spoken yet."""
    saves: Saves = field(default_factory=Saves)
    """What each save cost and how far it has come."""

    @property
    def step(self) -> Optional[int]:
        """The step reported last; not the highest one, since a program may fall back."""
        return self.recent[-1][0] if self.recent else None

    @property
    def loss(self) -> Optional[float]:
        """The newest loss that was reported."""
        return next((row[3] for row in reversed(self.recent) if row[3] is not None), None)

    @property
    def steps_per_second(self) -> Optional[float]:
        """Over the recent rows; None while there are too few, or where the program fell back among them."""
        if len(self.recent) < 2:
            return None
        (first, since, _, _), (last, until, _, _) = self.recent[0], self.recent[-1]
        return (last - first) / (until - since) if last > first and until > since else None

    @property
    def step_seconds(self) -> Optional[float]:
        """The upper median over the recent rows, which saves do not move; None while there are too few."""
        told = [row[2] for row in self.recent if row[2] is not None]
        if not told:
            pairs = zip(self.recent, self.recent[1:])  # noqa: B905 - 3.10
            told = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs if b[0] > a[0]]
        return coordinator_saves.middle(told)


class Learned(NamedTuple):
    """What a report changed."""

    progress: Progress
    row: Optional[StepRow] = None
    again: bool = False
    """The row stands for the newest step, about which more is known now."""
    moments: Tuple[Moment, ...] = ()
    """Beginnings and ends of stalls, to be added to those that were told before."""


def learn(progress: Progress, report: Union[StepSeen, PhaseSeen, CheckpointSeen]) -> Learned:
    """What is known after `report`."""
    if isinstance(report, CheckpointSeen):
        return Learned(_checkpoint(progress, report))
    if isinstance(report, PhaseSeen):
        if progress.reporting_rank is not None and report.rank > progress.reporting_rank:
            return Learned(progress)
        stall, moments = _entered(progress.stall, report)
        saved = any(moment.kind == "checkpoint-end" and moment.detail for moment in moments)
        progress = replace(progress, unproven=progress.unproven or saved, saves=_saved(progress, moments))
        return Learned(replace(progress, phase=report.phase, phase_at=report.at, stall=stall), moments=moments)
    if progress.reporting_rank is not None and report.rank > progress.reporting_rank:
        return Learned(progress)
    return _step(progress, report)


def restarted(progress: Progress, at: float) -> Learned:
    """What is known when all ranks were killed at `at` to begin again: a stall has ended with them."""
    moments: Tuple[Moment, ...] = ()
    if progress.stall is not None:
        # A save that was not finished is taken back.
        moments = (_over(progress.stall, progress.stall.at if progress.stall.phase == "checkpoint" else at),)
    progress = replace(progress, saves=_saved(progress, moments))
    return Learned(replace(progress, phase="init", phase_at=at, stall=None, unproven=False), moments=moments)


def _step(progress: Progress, report: StepSeen) -> Learned:
    row: StepRow = (report.step, report.at, report.seconds, report.loss)
    if report.incarnation != progress.incarnation:
        # The same step once more is progress now, and a rate over the pause would be none.
        progress = replace(progress, incarnation=report.incarnation, recent=())
    again = progress.step == report.step
    if again:
        last = progress.recent[-1]
        row = (last[0], last[1], row[2] if row[2] is not None else last[2], row[3] if row[3] is not None else last[3])
        if row == last:
            return Learned(progress)
    kept = progress.recent[:-1] if again else progress.recent
    gap = report.step - (progress.step if progress.step is not None else report.step)
    finite = report.loss is None or math.isfinite(report.loss)
    stall, moments = (progress.stall, ()) if again else _stepped(progress.stall, report)
    progress = replace(
        progress,
        reporting_rank=report.rank,
        first_step=progress.first_step or (report.step, report.at),
        recent=(*kept, row)[-RECENT_STEPS:],
        interval=max(progress.interval, gap),
        first_nan_step=progress.first_nan_step if finite or progress.first_nan_step is not None else report.step,
        phase="step",
        phase_at=report.at,
        stall=stall,
        saves=_saved(progress, moments),
    )
    return Learned(progress, row, again, moments)


def _saved(progress: Progress, moments: Sequence[Moment]) -> Saves:
    """The saves after what was told of stalls."""
    saves = progress.saves
    for moment in moments:
        if moment.kind == "checkpoint-begin":
            saves = coordinator_saves.begun(saves, progress.step, moment.at)
        elif moment.kind == "checkpoint-end":
            saves = coordinator_saves.ended(saves, moment.at)
    return saves


def _entered(stall: Optional[Stall], report: PhaseSeen) -> Tuple[Optional[Stall], Tuple[Moment, ...]]:
    """What a rank's new phase begins and ends."""
    if report.phase in STALLS:
        begun = Stall(report.phase, report.rank, report.at)
        opened = Moment(f"{report.phase}-begin", report.at, report.detail)
        if stall is None:
            return begun, (opened,)
        if stall.phase == report.phase:
            return stall._replace(rank=min(stall.rank, report.rank)), ()
        given_up = stall.phase == "checkpoint" and report.phase == "restore"
        return begun, (_over(stall, stall.at if given_up else report.at), opened)
    if stall is None or stall.rank != report.rank:
        return stall, ()
    given_up = stall.phase == "checkpoint" and report.phase == "init"
    return None, (_over(stall, stall.at if given_up else report.at, report.detail),)


def _stepped(stall: Optional[Stall], report: StepSeen) -> Tuple[Optional[Stall], Tuple[Moment, ...]]:
    """A step ends every stall; but the line of the step before a save may arrive after the save has begun.

    Ranks that report steps say their phase themselves. Where one rank saves and another reports the steps, as with
    Megatron, clocks and ways differ, so it is the second step that tells of a save whose end nobody told.
    """
    if stall is None or (stall.phase == "checkpoint" and stall.rows == 0):
        return (None if stall is None else stall._replace(rows=1)), ()
    return None, (_over(stall, report.at),)


def _over(stall: Stall, at: float, detail: str = "") -> Moment:
    """The end of a stall; one at its own beginning takes it back."""
    return Moment(f"{stall.phase}-end", max(stall.at, at), detail)


def _checkpoint(progress: Progress, report: CheckpointSeen) -> Progress:
    if report.verdict not in PROVEN:
        # Whole, but nobody has read it: it is told how far the save is, and is nothing that anybody may go on from.
        return replace(progress, saves=coordinator_saves.written(progress.saves, report, progress.interval))
    checkpoints = (*progress.checkpoints, report)[-KEPT_CHECKPOINTS:]
    good = _newest_good(checkpoints)
    saves = coordinator_saves.examined(progress.saves, report, good, progress.interval)
    return replace(progress, checkpoints=checkpoints, last_checkpoint_step=good, unproven=False, saves=saves)


def _newest_good(checkpoints: Sequence[CheckpointSeen]) -> Optional[int]:
    """The highest step of which the last word is good: several are told newest first, and one may be taken back."""
    verdicts = {one.path: one for one in checkpoints}
    return max((one.step for one in verdicts.values() if one.verdict == "pass"), default=None)
