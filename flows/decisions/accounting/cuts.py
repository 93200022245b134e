"""What a run was doing from which moment on: the cuts between its tiles of wall time.

`intervals`, `union` and `covered` handle stretches of time: those between marks of two kinds, their union, and how much
of a span lies in them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise, repeat
from statistics import median
from typing import NamedTuple, TypeGuard

from flows.decisions.recovery.incarnations import begins_again, first_restart_in
from profiles.vocabulary import Tile
from workflows.model.gang_status import CLOCK_SECONDS, PROGRAM_MARKS, RESTART_MARK
from workflows.model.records import AttemptRecord, MarkRecord, StepRow

Interval = tuple[float, float]
"""Begin and end, Unix seconds."""
Pauses = Mapping[Tile, Sequence[Interval]]
StepSpans = Mapping[int, Sequence[StepRow]]

CUT_SECONDS = 1e-9
"""Shorter tiles are not kept."""
QUIET_SHARE = 0.05
"""A step in whose time less than this share was spent on saves says how long a step takes. Not zero: the lines of a
step and of the save after it are read a moment late, and not by the same moment."""

PAUSES: Mapping[Tile, str] = {
    Tile.CHECKPOINT_STALL: "checkpoint",
    Tile.EVAL: "evaluation",
    Tile.DATA_STALL: "data",
}
"""What makes ranks stand still between steps; its marks are `<word>-begin` and `<word>-end`. Where two overlap, the
earlier one here counts."""


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
    """Median step time in seconds, without pauses; of the other attempts where this one has a single step."""
    pauses: Pauses
    """When the ranks stood still, by the state that this was."""
    restarts: Sequence[float] = ()
    """When a fault was noticed for which the ranks began again in place, in order."""


def cuts_of(
    attempts: Sequence[AttemptRecord], marks: Sequence[MarkRecord], steps: StepSpans, begin: float
) -> tuple[Cut, ...]:
    """All cuts in the order in which they happened; times are as the clocks said, not yet made monotone."""
    rows = {number: spread(sorted(mine, key=lambda row: (row.at, row.step))) for number, mine in steps.items()}
    kept = lineage_of(rows)
    mine = marks_of(marks)
    pauses = {number: _pauses(mine.get(number, ())) for number in rows}
    ideals = {
        number: _ideal(rows[number], union(pair for mine in pauses[number].values() for pair in mine))
        for number in rows
    }
    usual = median([ideals[number] for number in rows if len(rows[number]) > 1] or [0.0])
    cuts: list[Cut] = []
    for place, attempt in enumerate(attempts):
        number = attempt.number
        work = Work(
            number,
            rows.get(number, []),
            kept.get(number, frozenset()),
            ideals.get(number) or usual,
            pauses.get(number, {}),
            sorted(mark.at for mark in mine.get(number, ()) if mark.kind == RESTART_MARK),
        )
        cuts += _before_steps(attempt, mine.get(number, ()), begin if place == 0 else None)
        cuts += _during_steps(work, cuts[-1].at)
        cuts += _after_steps(attempt, mine.get(number, ()), work)
    return tuple(cuts)


def on_our_clock(
    attempts: Sequence[AttemptRecord], marks: Sequence[MarkRecord], steps: StepSpans, end: float
) -> tuple[Sequence[MarkRecord], StepSpans]:
    """Marks and steps with what programs told by a clock that is wrong moved into the life of their attempt.

    Within an attempt all of it is moved alike, so that distances stay. `end`: of the run, or now.
    """
    moved: dict[int, float] = {}
    for place, attempt in enumerate(attempts):
        rows = steps.get(attempt.number)
        if rows:
            ended = attempts[place + 1].planned_at if place + 1 < len(attempts) else end
            until = attempt.ended_at if attempt.ended_at is not None else ended
            times = [row.at for row in rows]
            began = next(at for at in (attempt.running_at, attempt.applied_at, attempt.planned_at) if at is not None)
            offset = _offset(min(times), max(times), began, until)
            moved |= {attempt.number: offset} if offset else {}
    if not moved:
        return marks, steps
    ours = [
        replace(one, at=one.at + moved.get(one.attempt, 0.0)) if one.kind in PROGRAM_MARKS else one for one in marks
    ]
    return ours, {n: [replace(row, at=row.at + moved.get(n, 0.0)) for row in rows] for n, rows in steps.items()}


def _offset(first: float, last: float, began: float, until: float) -> float:
    """By how much steps are to be moved to lie between two moments; 0 where they nearly do."""
    if last > until + CLOCK_SECONDS:
        return max(until - last, began - first)
    return began - first if first < began - CLOCK_SECONDS else 0.0


def marks_of(marks: Iterable[MarkRecord]) -> dict[int, list[MarkRecord]]:
    """The marks of each attempt by its number."""
    found: dict[int, list[MarkRecord]] = {}
    for mark in marks:
        found.setdefault(mark.attempt, []).append(mark)
    return found


def lineage_of(rows: StepSpans) -> dict[int, frozenset[int]]:
    """By attempt: indices of steps whose result was kept, because no later step has the same or a smaller number."""
    kept: dict[int, set[int]] = {}
    lowest = math.inf
    for number in sorted(rows, reverse=True):
        for index in range(len(rows[number]) - 1, -1, -1):
            if rows[number][index].step < lowest:
                kept.setdefault(number, set()).add(index)
                lowest = rows[number][index].step
    return {number: frozenset(indices) for number, indices in kept.items()}


def restores_of(
    attempt: AttemptRecord, marks: Sequence[MarkRecord], steps: Sequence[StepRow], end: float
) -> list[Interval]:
    """When the attempt's ranks loaded a checkpoint.

    Where its program says nothing of that, and was given one to resume from: from the moment its pods ran to its first
    step. That is too long by what every start takes (imports, rendezvous, compiling), and the best that is known.
    `end`: the attempt's end, or now. A restore without a known end reaches to it, to the next step, or to the moment
    when something was noticed.
    """
    begun = _last(marks, "restore-begin")
    if begun is not None:
        noticed = (mark.at for mark in marks if mark.kind in ("detected", "ended"))
        end = min([end, *(at for at in (*noticed, *(row.at for row in steps)) if at > begun)])
    found = intervals(marks, "restore-begin", "restore-end", end)
    has_restore_marks = any(mark.kind.startswith("restore-") for mark in marks)
    if has_restore_marks or not attempt.resume_path or attempt.running_at is None or not steps:
        return found
    return [(attempt.running_at, max(attempt.running_at, min(row.at for row in steps)))]


def intervals(marks: Iterable[MarkRecord], opened: str, closed: str, end: float | None = None) -> list[Interval]:
    """Intervals between marks of two kinds; one that is still open reaches to `end` (None: it is left out)."""
    found: list[Interval] = []
    since: float | None = None
    ordered = sorted((mark for mark in marks if mark.kind in (opened, closed)), key=lambda mark: mark.at)
    for at, together in groupby(ordered, key=lambda mark: mark.at):
        # What opened and closed at one moment is no interval, in whatever order it was written.
        kinds = [mark.kind for mark in together]
        more = kinds.count(opened) - kinds.count(closed)
        if since is not None and closed in kinds:
            found.append((since, at))
            since = at if more >= 0 else None
        elif since is None and more > 0:
            since = at
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


def union(found: Iterable[Interval]) -> list[Interval]:
    """All intervals in order, those that touch as one."""
    merged: list[Interval] = []
    for begin, end in sorted(found):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def stalls_in(stretches: Iterable[Interval], pauses: Sequence[Interval]) -> Iterator[float]:
    """Seconds of each stretch that were paused; both in order, `pauses` disjoint."""
    position = 0
    for begin, end in stretches:
        while position < len(pauses) and pauses[position][1] <= begin:
            position += 1
        yield covered(pauses, position, begin, end)


def _pauses(marks: Sequence[MarkRecord]) -> Pauses:
    found = {state: intervals(marks, f"{word}-begin", f"{word}-end") for state, word in PAUSES.items()}
    return {state: mine for state, mine in found.items() if mine}


def spread(rows: Sequence[StepRow]) -> list[StepRow]:
    """Steps whose lines were read at one moment, evenly over the time since the moment before.

    A program with short steps prints several between two looks at its output; without this they would take no time.
    """
    spread: list[StepRow] = []
    before: float | None = None
    for at, group in groupby(rows, key=lambda row: row.at):
        together = list(group)
        own_seconds = math.fsum(
            row.seconds for row in together if row.seconds is not None and 0 < row.seconds < math.inf
        )
        began = at - own_seconds if before is None else before
        share = (at - began) / len(together)
        spread += [replace(row, at=began + share * place) for place, row in enumerate(together[:-1], 1)]
        spread.append(together[-1])
        before = at
    return spread


def _ideal(rows: Sequence[StepRow], pauses: Sequence[Interval]) -> float:
    """The median distance of two steps between which nothing paused; else what the program itself said, else any."""
    pairs = [(earlier, later) for earlier, later in pairwise(rows) if later.step > earlier.step]
    gaps = [later.at - earlier.at for earlier, later in pairs]
    stalls = stalls_in(((earlier.at, later.at) for earlier, later in pairs), pauses) if pauses else repeat(0.0)
    quiet = [gap for gap, stall in zip(gaps, stalls, strict=False) if stall <= gap * QUIET_SHARE]
    if quiet:
        return max(0.0, median(quiet))
    reported = [later.seconds * (later.step - earlier.step) for earlier, later in pairs if _is_time(later.seconds)]
    own = [row.seconds for row in rows if _is_time(row.seconds)]
    return max(0.0, median(reported or gaps or own or [0.0]))


def _is_time(seconds: float | None) -> TypeGuard[float]:
    return seconds is not None and math.isfinite(seconds)


def _before_steps(attempt: AttemptRecord, marks: Sequence[MarkRecord], begin: float | None) -> list[Cut]:
    """From the submission of the run (`begin`), or the end of the attempt before, to the first step."""
    number, first = attempt.number, begin is not None
    starting = Tile.INIT if first else Tile.RESTART
    moments = (
        (attempt.planned_at if begin is None else begin, starting),
        (_known(attempt.submitted_at, marks, "submitted"), Tile.PREFLIGHT),
        (_known(attempt.applied_at, marks, "applied"), Tile.QUEUE if first else Tile.RESTART),
        (_known(attempt.running_at, marks, "running"), starting),
    )
    return [Cut(at, number, state) for at, state in moments if at is not None]


def _during_steps(work: Work, start: float) -> list[Cut]:
    """One step after the other; between two there may have been a restart in place."""
    again = begins_again(work.rows, work.restarts)
    opened = [_opened(work, index, start, again=again[index]) for index in range(len(work.rows))]
    stretches = [(begin, row.at) for begin, row in zip(opened, work.rows, strict=True)]
    paused = [stalls_in(stretches, mine) for mine in work.pauses.values()]
    stalls = zip(*paused, strict=True) if paused else repeat((), len(stretches))
    cuts: list[Cut] = []
    for index, stall in enumerate(stalls):
        if again[index]:
            last = work.rows[index - 1].at
            alarm = first_restart_in(work.restarts, last, opened[index])
            cuts += [] if alarm is None else [Cut(last, work.attempt, Tile.DETECT)]
            cuts.append(Cut(last if alarm is None else alarm, work.attempt, Tile.RESTART))
        cuts += _step(work, index, opened[index], stall)
    return cuts


def _opened(work: Work, index: int, start: float, *, again: bool) -> float:
    """When a step began: at the end of the one before, unless there is none to follow."""
    row = work.rows[index]
    own = row.at - (row.seconds if _is_time(row.seconds) else work.ideal)
    if not index:
        return max(start, own)
    before = work.rows[index - 1]
    return max(before.at, own) if again else before.at


def _step(work: Work, index: int, opened: float, stalls: Sequence[float]) -> list[Cut]:
    """One step: first the pauses after the step before, then at most the ideal time is productive, the rest is lost."""
    row, number = work.rows[index], work.attempt
    if index not in work.kept:
        return [Cut(opened, number, Tile.ROLLBACK)]
    whole = max(0.0, row.at - opened)
    useful = min(work.ideal, whole)
    room = whole - useful
    parts: list[tuple[Tile, float]] = []
    for state, stall in zip(work.pauses, stalls, strict=True):
        parts.append((state, min(stall, room)))
        room -= parts[-1][1]
    own = row.seconds if _is_time(row.seconds) else whole
    slow = min(max(0.0, own - useful), room)
    cuts: list[Cut] = []
    at = opened
    for state, seconds in (
        *parts,
        (Tile.PRODUCTIVE, useful),
        (Tile.STRAGGLER_LOSS, slow),
        (Tile.OTHER, room - slow),
    ):
        if seconds > CUT_SECONDS or state is Tile.PRODUCTIVE:
            cuts.append(Cut(at, number, state))
            at += seconds
    return cuts


def _after_steps(attempt: AttemptRecord, marks: Sequence[MarkRecord], work: Work) -> list[Cut]:
    """From the last good step on: detection, diagnosis, and from the decision on the restart; else nothing known."""
    number = attempt.number
    detected = _last(marks, "detected")
    last = work.rows[-1].at if work.rows else _last(marks, "fault")
    until = math.inf if detected is None else detected
    restarted = first_restart_in(work.restarts, -math.inf if last is None else last, until)
    before = Tile.OTHER if detected is restarted is None else Tile.DETECT
    since = last if last is not None or before is Tile.DETECT else _known(attempt.ended_at, marks, "ended")
    cuts = [] if since is None else [Cut(min(since, until), number, before)]
    cuts += [] if since is None and detected is None else _last_pauses(work, min(until, restarted or until), before)
    cuts += [] if restarted is None else [Cut(restarted, number, Tile.RESTART)]
    if detected is None:
        return cuts
    decided = max((mark.at for mark in marks if mark.kind == "decided" and mark.at >= detected), default=None)
    cuts.append(Cut(detected, number, Tile.DIAGNOSE))
    return cuts if decided is None else [*cuts, Cut(decided, number, Tile.RESTART)]


def _last_pauses(work: Work, until: float, following: Tile) -> list[Cut]:
    """What paused after the last step; from the end of each pause on the run is in the state `following`."""
    cuts: list[Cut] = []
    last = work.rows[-1].at if work.rows else math.inf
    for begin, end, state in sorted((*pair, state) for state, mine in work.pauses.items() for pair in mine):
        if end > last and begin < until:
            cuts.append(Cut(max(begin, last), work.attempt, state))
            cuts.append(Cut(min(end, until), work.attempt, following))
    return cuts


def _known(at: float | None, marks: Sequence[MarkRecord], kind: str) -> float | None:
    """A time of the attempt's own, which may be zero; else that of its newest mark of this kind."""
    return at if at is not None else _last(marks, kind)


def _last(marks: Iterable[MarkRecord], kind: str) -> float | None:
    return max((mark.at for mark in marks if mark.kind == kind), default=None)
