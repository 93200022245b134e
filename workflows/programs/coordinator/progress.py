"""Progress of a gang, from the reports of its ranks. Pure: reports carry their times."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple, Optional, Sequence, Tuple, Union

from workflows.programs.coordinator import saves as coordinator_saves
from workflows.programs.coordinator.saves import Saves
from workflows.programs.progress.pace import step_seconds
from workflows.programs.runtime.flags import replace
from workflows.wire import REMOVED, UNRECOGNISED, CheckpointSeen, PhaseSeen, StepSeen

RECENT_STEPS = 32
KEPT_CHECKPOINTS = 200
PROVEN = ("pass", "fail")
"""Verdicts on a checkpoint that was read."""
StepRow = Tuple[int, float, Optional[float], Optional[float]]
"""Step, Unix time, seconds and loss as the program reported them."""


class Moment(NamedTuple):
    """The begin or end of a stall: loading (`restore`) or saving (`checkpoint`) a checkpoint, or an evaluation."""

    kind: str
    """`<phase>-begin` or `<phase>-end`, with a phase of `STALLS`."""
    at: float
    """Unix time in seconds; a begin may be reported later, so times are not in order."""
    detail: str = ""
    """The program's line that reported it."""


class Stall(NamedTuple):
    """A phase in which the gang stands still, since `at`."""

    phase: str
    """One of `STALLS`."""
    rank: int
    """Lowest rank that reported it; only that rank's reports end it."""
    at: float
    rows: int = 0
    """Steps that other ranks have reported since."""


STALLS = ("restore", "checkpoint", "evaluation")


@dataclass(frozen=True)
class Progress:
    """Steps, phase and checkpoints of a gang."""

    reporting_rank: Optional[int] = None
    """The lowest living rank that reports steps; only its reports count, since every rank may print the same."""
    first_step: Optional[Tuple[int, float]] = None
    """First step of this attempt and its Unix time: the proof of what was resumed."""
    recent: Tuple[StepRow, ...] = ()
    """The newest rows, oldest first."""
    readings: Tuple[Tuple[int, float], ...] = ()
    """The last step of each of the newest bundles of rows that bear one time, and that time, oldest first."""
    interval: int = 1
    """Largest distance in steps between two reports: the program's logging interval."""
    first_nan_step: Optional[int] = None
    phase: str = ""
    phase_at: float = 0.0
    stall: Optional[Stall] = None
    checkpoints: Tuple[CheckpointSeen, ...] = ()
    removed: Tuple[CheckpointSeen, ...] = ()
    """The newest reports on checkpoints that nobody needed and that are gone."""
    last_checkpoint_step: Optional[int] = None
    """Step of the newest checkpoint that was proven good."""
    incarnation: int = 1
    """Incarnation of the newest rows."""
    unproven: bool = False
    """Whether a save has ended that the prover has not reported on yet."""
    saves: Saves = field(default_factory=Saves)
    unrecognised: str = ""
    """Why nothing that was saved can be resumed from; "": something can, or nothing was saved."""

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
        """Over the newest bundles; None while there are too few, or where the program fell back among them."""
        if len(self.readings) < 2:
            return None
        (first, since), (last, until) = self.readings[0], self.readings[-1]
        return (last - first) / (until - since) if last > first and until > since else None

    @property
    def step_seconds(self) -> Optional[float]:
        """The upper median of what recent steps took, which saves do not move; None while there are too few."""
        seconds = [row[2] for row in self.recent if row[2] is not None]
        return coordinator_saves.upper_median(seconds) if seconds else step_seconds(self.readings)


class ProgressUpdate(NamedTuple):
    """Progress after a report, and what it changed."""

    progress: Progress
    row: Optional[StepRow] = None
    replaces_last: bool = False
    """The row replaces the newest one, as it says more about the same step."""
    moments: Tuple[Moment, ...] = ()
    """New begins and ends of stalls."""


def apply_report(progress: Progress, report: Union[StepSeen, PhaseSeen, CheckpointSeen]) -> ProgressUpdate:
    """Progress after `report`."""
    if isinstance(report, CheckpointSeen):
        return ProgressUpdate(_checkpoint(progress, report))
    if isinstance(report, PhaseSeen):
        if progress.reporting_rank is not None and report.rank > progress.reporting_rank:
            return ProgressUpdate(progress)
        stall, moments = _enter_phase(progress.stall, report)
        saved = any(moment.kind == "checkpoint-end" and moment.detail for moment in moments)
        progress = replace(progress, unproven=progress.unproven or saved, saves=_update_saves(progress, moments))
        return ProgressUpdate(replace(progress, phase=report.phase, phase_at=report.at, stall=stall), moments=moments)
    known = progress.step if report.incarnation == progress.incarnation else None
    if progress.reporting_rank is None:
        behind = known is not None and report.step <= known
    elif report.rank < progress.reporting_rank:
        # Launchers batch their reports: what another rank has told already is no step once more.
        behind = known is not None and report.step < known
    else:
        behind = report.rank > progress.reporting_rank
    return ProgressUpdate(progress) if behind else _step(progress, report)


def after_end(progress: Progress, rank: int) -> Progress:
    """Progress after a rank has ended by itself: where others train on, the lowest of them reports from there."""
    return replace(progress, reporting_rank=None) if rank == progress.reporting_rank else progress


def after_restart(progress: Progress, at: float) -> ProgressUpdate:
    """Progress after all ranks were killed at `at` for a restart, which also ends a stall."""
    moments: Tuple[Moment, ...] = ()
    if progress.stall is not None:
        # A save that was not finished is cancelled.
        moments = (_stall_end(progress.stall, progress.stall.at if progress.stall.phase == "checkpoint" else at),)
    progress = replace(progress, saves=_update_saves(progress, moments))
    return ProgressUpdate(replace(progress, phase="init", phase_at=at, stall=None, unproven=False), moments=moments)


def _step(progress: Progress, report: StepSeen) -> ProgressUpdate:
    row: StepRow = (report.step, report.at, report.seconds, report.loss)
    if report.incarnation != progress.incarnation:
        # A repeated step is progress now, and a rate over the pause would be meaningless.
        progress = replace(progress, incarnation=report.incarnation, recent=(), readings=())
    again = progress.step == report.step
    if again:
        last = progress.recent[-1]
        row = (last[0], last[1], row[2] if row[2] is not None else last[2], row[3] if row[3] is not None else last[3])
        if row == last:
            lower = report.rank != progress.reporting_rank
            return ProgressUpdate(replace(progress, reporting_rank=report.rank) if lower else progress)
    kept = progress.recent[:-1] if again else progress.recent
    gap = report.step - (progress.step if progress.step is not None else report.step)
    finite = report.loss is None or math.isfinite(report.loss)
    stall, moments = (progress.stall, ()) if again else _end_stall_by_step(progress.stall, report)
    progress = replace(
        progress,
        reporting_rank=report.rank,
        first_step=progress.first_step or (report.step, report.at),
        recent=(*kept, row)[-RECENT_STEPS:],
        readings=_with_reading(progress.readings, row[0], row[1]),
        interval=max(progress.interval, gap),
        first_nan_step=progress.first_nan_step if finite or progress.first_nan_step is not None else report.step,
        phase="step",
        phase_at=report.at,
        stall=stall,
        saves=_update_saves(progress, moments),
    )
    return ProgressUpdate(progress, row, again, moments)


def _with_reading(readings: Tuple[Tuple[int, float], ...], step: int, at: float) -> Tuple[Tuple[int, float], ...]:
    """The readings with one more row."""
    same = bool(readings) and readings[-1][1] == at
    return (*(readings[:-1] if same else readings), (step, at))[-RECENT_STEPS:]


def _update_saves(progress: Progress, moments: Sequence[Moment]) -> Saves:
    """The saves after these begins and ends of stalls."""
    saves = progress.saves
    for moment in moments:
        if moment.kind == "checkpoint-begin":
            saves = coordinator_saves.begin_save(saves, progress.step, moment.at)
        elif moment.kind == "checkpoint-end":
            saves = coordinator_saves.end_save(saves, moment.at)
    return saves


def _enter_phase(stall: Optional[Stall], report: PhaseSeen) -> Tuple[Optional[Stall], Tuple[Moment, ...]]:
    """The stall, and its begins and ends, after a rank entered a phase."""
    if report.phase in STALLS:
        begun = Stall(report.phase, report.rank, report.at)
        opened = Moment(f"{report.phase}-begin", report.at, report.detail)
        if stall is None:
            return begun, (opened,)
        if stall.phase == report.phase:
            return stall._replace(rank=min(stall.rank, report.rank)), ()
        given_up = stall.phase == "checkpoint" and report.phase == "restore"
        return begun, (_stall_end(stall, stall.at if given_up else report.at), opened)
    if stall is None or stall.rank != report.rank:
        return stall, ()
    given_up = stall.phase == "checkpoint" and report.phase == "init"
    return None, (_stall_end(stall, stall.at if given_up else report.at, report.detail),)


def _end_stall_by_step(stall: Optional[Stall], report: StepSeen) -> Tuple[Optional[Stall], Tuple[Moment, ...]]:
    """A step ends every stall; but the line of the step before a save may arrive after the save has begun.

    Ranks that report steps also report their phase. Where one rank saves and another reports steps, as with Megatron,
    their lines arrive in any order, so only the second step ends a save whose end was not reported.
    """
    if stall is None or (stall.phase == "checkpoint" and stall.rows == 0):
        return (None if stall is None else stall._replace(rows=1)), ()
    return None, (_stall_end(stall, report.at),)


def _stall_end(stall: Stall, at: float, detail: str = "") -> Moment:
    """The end of a stall; an end at the time of its begin cancels it."""
    return Moment(f"{stall.phase}-end", max(stall.at, at), detail)


def _checkpoint(progress: Progress, report: CheckpointSeen) -> Progress:
    if report.verdict not in PROVEN and report.format == UNRECOGNISED:
        return replace(progress, unrecognised=report.why)
    if report.verdict not in PROVEN and report.format == REMOVED:
        left = tuple(one for one in progress.checkpoints if one.path != report.path)
        return replace(progress, checkpoints=left, removed=(*progress.removed, report)[-KEPT_CHECKPOINTS:])
    if report.verdict not in PROVEN:
        # The files are complete but unread: it shows how far the save is, and nobody may resume from it.
        return replace(progress, saves=coordinator_saves.note_written(progress.saves, report, progress.interval))
    checkpoints = (*progress.checkpoints, report)[-KEPT_CHECKPOINTS:]
    good = _newest_good(checkpoints)
    saves = coordinator_saves.note_examined(progress.saves, report, good, progress.interval)
    unrecognised = "" if report.verdict == "pass" else progress.unrecognised
    return replace(progress, checkpoints=checkpoints, last_checkpoint_step=good, unproven=False, saves=saves,
                   unrecognised=unrecognised)  # fmt: skip


def _newest_good(checkpoints: Sequence[CheckpointSeen]) -> Optional[int]:
    """Highest step whose last verdict is good: several arrive newest first, and a verdict may be withdrawn."""
    verdicts = {one.path: one for one in checkpoints}
    return max((one.step for one in verdicts.values() if one.verdict == "pass"), default=None)
