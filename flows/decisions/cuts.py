"""What a run was doing from which moment on: the cuts between its tiles of wall time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from statistics import median
from typing import NamedTuple

from profiles.vocabulary import Tile
from workflows.records import AttemptRecord, MarkRecord, StepRow

CUT_SECONDS = 1e-9
"""Shorter tiles are not kept."""

Interval = tuple[float, float]
Steps = Mapping[int, Sequence[StepRow]]


class Cut(NamedTuple):
    """From `at` on, the run is in this state."""

    at: float
    attempt: int
    state: Tile


class Work(NamedTuple):
    """The steps of one attempt, in order of time."""

    attempt: int
    rows: Sequence[StepRow]
    kept: frozenset[int]
    """Indices of rows whose result is part of what the run is now."""
    ideal: float
    """Median step time in seconds; of the other attempts where this one has a single step."""
    saves: Sequence[Interval]
    """When checkpoints were written."""


def cuts_of(
    attempts: Sequence[AttemptRecord], marks: Sequence[MarkRecord], steps: Steps, begin: float
) -> tuple[Cut, ...]:
    """All cuts in the order in which they happened; times are as the clocks said, not yet made monotone."""
    rows = {number: _spread(sorted(mine, key=lambda row: (row.at, row.step))) for number, mine in steps.items()}
    kept = lineage_of(rows)
    usual = median([_ideal(mine) for mine in rows.values() if len(mine) > 1] or [0.0])
    cuts: list[Cut] = []
    for place, attempt in enumerate(attempts):
        number = attempt.number
        mine = [mark for mark in marks if mark.attempt == number]
        work = Work(
            number,
            rows.get(number, []),
            kept.get(number, frozenset()),
            _ideal(rows.get(number, [])) or usual,
            intervals(mine, "checkpoint-begin", "checkpoint-end"),
        )
        cuts += _before_steps(attempt, mine, begin if place == 0 else None)
        cuts += _during_steps(work, cuts[-1].at)
        cuts += _after_steps(attempt, mine, work.rows)
    return tuple(cuts)


def _spread(rows: Sequence[StepRow]) -> list[StepRow]:
    """Steps whose lines were read at one moment, evenly over the time since the moment before.

    A program with short steps prints several between two looks at its output; without this they would take no time.
    """
    spread: list[StepRow] = []
    before: float | None = None
    for at, group in groupby(rows, key=lambda row: row.at):
        together = list(group)
        said = math.fsum(row.seconds for row in together if row.seconds is not None and 0 < row.seconds < math.inf)
        began = at - said if before is None else before
        share = (at - began) / len(together)
        spread += [replace(row, at=began + share * place) for place, row in enumerate(together[:-1], 1)]
        spread.append(together[-1])
        before = at
    return spread


def lineage_of(rows: Steps) -> dict[int, frozenset[int]]:
    """By attempt: indices of steps whose result was kept, because no later step has the same or a smaller number."""
    kept: dict[int, set[int]] = {}
    lowest = math.inf
    for number in sorted(rows, reverse=True):
        for index in range(len(rows[number]) - 1, -1, -1):
            if rows[number][index].step < lowest:
                kept.setdefault(number, set()).add(index)
                lowest = rows[number][index].step
    return {number: frozenset(indices) for number, indices in kept.items()}


def _ideal(rows: Sequence[StepRow]) -> float:
    gaps = [later.at - earlier.at for earlier, later in pairwise(rows) if later.step > earlier.step]
    said = [row.seconds for row in rows if row.seconds is not None and math.isfinite(row.seconds)]
    return max(0.0, median(gaps or said or [0.0]))


def _before_steps(attempt: AttemptRecord, marks: Sequence[MarkRecord], begin: float | None) -> list[Cut]:
    """From the submission of the run (`begin`), or the end of the attempt before, to the first step."""
    number, first = attempt.number, begin is not None
    starting = Tile.INIT if first else Tile.RESTART
    moments = (
        (attempt.planned_at if begin is None else begin, starting),
        (attempt.submitted_at or _last(marks, "submitted"), Tile.PREFLIGHT),
        (attempt.applied_at or _last(marks, "applied"), Tile.QUEUE if first else Tile.RESTART),
        (attempt.running_at or _last(marks, "running"), starting),
    )
    return [Cut(at, number, state) for at, state in moments if at is not None]


def _during_steps(work: Work, start: float) -> list[Cut]:
    """One step after the other; a step number that comes again was a restart in place."""
    cuts: list[Cut] = []
    before: StepRow | None = None
    position = 0
    for index, row in enumerate(work.rows):
        length = row.seconds if row.seconds is not None and math.isfinite(row.seconds) else work.ideal
        opened = max(start, row.at - length) if before is None else before.at
        if before is not None and row.step <= before.step:
            cuts.append(Cut(opened, work.attempt, Tile.RESTART))
            opened = max(opened, row.at - length)
        while position < len(work.saves) and work.saves[position][1] <= opened:
            position += 1
        cuts += _step(work, index, opened, covered(work.saves, position, opened, row.at))
        before = row
    return cuts


def _step(work: Work, index: int, opened: float, stall: float) -> list[Cut]:
    """One step: at most the ideal time is productive; a save is a stall; the rest of the step's own time is a loss."""
    row, number = work.rows[index], work.attempt
    if index not in work.kept:
        return [Cut(opened, number, Tile.ROLLBACK)]
    whole = max(0.0, row.at - opened)
    useful = min(work.ideal, whole)
    stall = min(stall, whole - useful)
    own = whole if row.seconds is None or not math.isfinite(row.seconds) else row.seconds
    slow = min(max(0.0, own - useful), whole - useful - stall)
    cuts = [Cut(opened, number, Tile.PRODUCTIVE)]
    at = opened + useful
    for state, seconds in (
        (Tile.STRAGGLER_LOSS, slow),
        (Tile.OTHER, whole - useful - slow - stall),
        (Tile.CHECKPOINT_STALL, stall),
    ):
        if seconds > CUT_SECONDS:
            cuts.append(Cut(at, number, state))
            at += seconds
    return cuts


def _after_steps(attempt: AttemptRecord, marks: Sequence[MarkRecord], rows: Sequence[StepRow]) -> list[Cut]:
    """From the last good step on: detection, diagnosis, and from the decision on the restart; else nothing known."""
    number = attempt.number
    detected = _last(marks, "detected")
    ended = attempt.ended_at or _last(marks, "ended")
    last = rows[-1].at if rows else _last(marks, "fault")
    if detected is None:
        at = last if last is not None else ended
        return [] if at is None else [Cut(at, number, Tile.OTHER)]
    decided = max((mark.at for mark in marks if mark.kind == "decided" and mark.at >= detected), default=None)
    cuts = [] if last is None else [Cut(min(last, detected), number, Tile.DETECT)]
    cuts.append(Cut(detected, number, Tile.DIAGNOSE))
    return cuts if decided is None else [*cuts, Cut(decided, number, Tile.RESTART)]


def _last(marks: Iterable[MarkRecord], kind: str) -> float | None:
    return max((mark.at for mark in marks if mark.kind == kind), default=None)


def intervals(marks: Iterable[MarkRecord], opened: str, closed: str, end: float | None = None) -> list[Interval]:
    """Intervals between marks of two kinds; one that is still open reaches to `end` (None: it is left out)."""
    found: list[Interval] = []
    since: float | None = None
    ordered = sorted((mark for mark in marks if mark.kind in (opened, closed)), key=lambda mark: mark.at)
    for at, together in groupby(ordered, key=lambda mark: mark.at):
        kinds = {mark.kind for mark in together}
        if since is not None and closed in kinds:
            found.append((since, at))
            since = at if opened in kinds else None
        elif since is None and kinds == {opened}:
            since = at  # opened and closed at one moment is no interval, in whatever order it was written
    if since is not None and end is not None and end > since:
        found.append((since, end))
    return found


def covered(found: Sequence[Interval], position: int, begin: float, end: float) -> float:
    """Seconds of [begin, end] inside the intervals from `position` on."""
    seconds = 0.0
    while position < len(found) and found[position][0] < end:
        seconds += max(0.0, min(end, found[position][1]) - max(begin, found[position][0]))
        position += 1
    return seconds
