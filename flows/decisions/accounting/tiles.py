"""Where every GPU-second went: tiles of wall time without gap or overlap, and their totals. Pure.

A run's time is a list of cuts (`flows.decisions.accounting.cuts`); each tile reaches to the next cut, so tiles cover
[begin, end] by construction. Times of different clocks are clamped to be monotone. Definitions: fault tolerance notes,
6.1; the ideal step time is the median of the attempt's steps. Which moments make which state: docs/reports.md. Where
only a part of the GPUs begins again, an absence lies over the tiles of the others.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from flows.decisions.accounting.cuts import (
    CUT_SECONDS,
    PAUSES,
    Cut,
    Interval,
    StepSpans,
    cuts_of,
    intervals,
    marks_of,
    on_our_clock,
    restores_of,
)
from profiles.vocabulary import Tile
from workflows.model.gang_status import REPLICA_BEGIN, REPLICA_END
from workflows.model.records import AttemptRecord, MarkRecord


class TileSpan(NamedTuple):
    """One stretch of wall time in one state."""

    begin: float
    end: float
    attempt: int
    state: Tile
    away: float = 0.0
    """Share of the GPUs whose replica groups begin again meanwhile, 0 to 1: theirs is `restart`."""

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.begin


class Absence(NamedTuple):
    """A replica group that begins again, from the moment at which that was decided to its first step."""

    begin: float
    end: float
    attempt: int
    share: float
    """Of the GPUs, 0 to 1."""


def absences(marks: Iterable[MarkRecord], end: float) -> list[Absence]:
    """Every one of a run. One without a known end reaches to what ended the attempt, else to `end` (now)."""
    mine = [mark for mark in marks if mark.kind in (REPLICA_BEGIN, REPLICA_END, "detected", "ended")]
    ends: dict[tuple[int, str], list[float]] = {}
    for mark in sorted(mine, key=lambda mark: mark.at):
        if mark.kind != REPLICA_BEGIN:
            whose = mark.detail if mark.kind == REPLICA_END else _EVERYBODY
            ends.setdefault((mark.attempt, whose), []).append(mark.at)
    found: list[Absence] = []
    for mark in mine:
        if mark.kind != REPLICA_BEGIN:
            continue
        number, _, rest = mark.detail.partition(" ")
        until = [
            times[place]
            for times in (ends.get((mark.attempt, whose), []) for whose in (number, _EVERYBODY))
            if (place := bisect_left(times, mark.at)) < len(times)
        ]
        share = _share_of(rest.partition(" ")[0])
        if share:
            found.append(Absence(mark.at, min([*until, end]), mark.attempt, share))
    return [one for one in found if one.end > one.begin]


def apart(spans: Sequence[TileSpan], found: Sequence[Absence]) -> list[TileSpan]:
    """The tiles, in order of time, cut where shares of the GPUs go away and come back, each with the share away."""
    edges = sorted({at for one in found for at in (one.begin, one.end)})
    if not edges:
        return list(spans)
    coming = sorted(found, key=lambda one: one.begin, reverse=True)
    gone: list[Absence] = []
    out: list[TileSpan] = []
    for span in spans:
        inside = edges[bisect_right(edges, span.begin) : bisect_left(edges, span.end)]
        for begin, end in itertools.pairwise([span.begin, *inside, span.end]):
            middle = (begin + end) / 2
            while coming and coming[-1].begin <= middle:
                gone.append(coming.pop())
            gone = [one for one in gone if one.end > middle]
            away = sum(one.share for one in gone if one.attempt == span.attempt)
            out.append(span._replace(begin=begin, end=end, away=min(1.0, away)))
    return out


_EVERYBODY = "*"
"""In the place of a replica group's number: what ends the absence of all of them."""


def _share_of(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        return 0.0
    return share if 0.0 < share <= 1.0 else 0.0


@dataclass(frozen=True)
class Totals:
    """Sums over tiles, in GPU-seconds."""

    wall_seconds: float
    gpus: int
    by_state: Mapping[Tile, float]

    @property
    def productive_gpu_seconds(self) -> float:
        """Steps of the final lineage, each at most at the ideal step time."""
        return self.by_state.get(Tile.PRODUCTIVE, 0.0)

    @property
    def ettr(self) -> float:
        """Productive share of all time since submission, 0 to 1."""
        return _share(self.productive_gpu_seconds, self.wall_seconds * self.gpus)

    @property
    def ettr_without_queue(self) -> float:
        """The same, without the time in queues."""
        return _share(self.productive_gpu_seconds, self.wall_seconds * self.gpus - self.by_state.get(Tile.QUEUE, 0.0))

    @property
    def lost(self) -> dict[str, float]:
        """GPU-seconds of every other state that took any."""
        return {s.value: round(v, 6) for s, v in self.by_state.items() if s is not Tile.PRODUCTIVE and v > 0}

    @property
    def gpu_hours(self) -> float:
        """Of all wall time: what the run took from its submission to its end, waiting included."""
        return self.wall_seconds * self.gpus / 3600.0

    def goodput(self) -> dict[str, Any]:
        """As `primus status --json` shows it."""
        return {
            "wall_seconds": round(self.wall_seconds, 6),
            "gpus": self.gpus,
            "productive_gpu_seconds": round(self.productive_gpu_seconds, 6),
            "ettr": round(self.ettr, 6),
            "ettr_without_queue": round(self.ettr_without_queue, 6),
            "lost": self.lost,
        }


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else 0.0


def tile(
    attempts: Sequence[AttemptRecord], marks: Sequence[MarkRecord], steps: StepSpans, begin: float, end: float
) -> tuple[TileSpan, ...]:
    """The states of a run from its submission to its end (or now). `marks` and `steps` may come in any order."""
    marks, steps = on_our_clock(attempts, marks, steps, end)
    spans = _spans(cuts_of(attempts, marks, steps, begin), begin, end)
    question_marks = [mark for mark in marks if mark.detail.startswith("approval")]
    waits = [mark for mark in marks if not mark.detail.startswith("approval")]
    spans = _overlay(spans, Tile.RESTORE, _restores(attempts, marks, steps, end))
    for state, found in (
        (Tile.QUEUE, intervals(waits, "waiting-begin", "waiting-end", end)),
        (Tile.PAUSED, intervals(question_marks, "waiting-begin", "waiting-end", end)),
        (Tile.STANDBY, intervals(marks, "standby-begin", "standby-end", end)),
        (Tile.PAUSED, intervals(marks, "paused", "unpaused", end)),
    ):
        everywhere = {span.attempt for span in spans} if found else ()
        spans = _overlay(spans, state, dict.fromkeys(everywhere, found))
    return tuple(apart(spans, absences(marks, end)))


def totals(spans: Iterable[TileSpan], gpus: int) -> Totals:
    """Sums of the tiles."""
    parts: dict[Tile, list[float]] = {}
    for span in spans:
        parts.setdefault(span.state, []).append(span.seconds * (1.0 - span.away))
        if span.away:
            parts.setdefault(Tile.RESTART, []).append(span.seconds * span.away)
    by_state = {state: math.fsum(parts[state]) * gpus for state in Tile if state in parts}
    return Totals(math.fsum(x for values in parts.values() for x in values), gpus, by_state)


def merge(first: Totals, second: Totals) -> Totals:
    """The totals of two disjoint stretches together.

    Raises:
        ValueError: they hold different numbers of GPUs.
    """
    if first.gpus != second.gpus:
        raise ValueError(f"gpus: cannot merge totals over {first.gpus} and {second.gpus} GPUs")
    states = [state for state in Tile if state in first.by_state or state in second.by_state]
    summed = {state: first.by_state.get(state, 0.0) + second.by_state.get(state, 0.0) for state in states}
    return Totals(first.wall_seconds + second.wall_seconds, first.gpus, summed)


def window(spans: Iterable[TileSpan], begin: float, end: float) -> tuple[TileSpan, ...]:
    """The tiles cut to [begin, end], e.g. for a sliding hour."""
    cut = (s._replace(begin=max(s.begin, begin), end=min(s.end, end)) for s in spans)
    return tuple(span for span in cut if span.end > span.begin)


def sliding(spans: Sequence[TileSpan], seconds: float = 3600.0, points: int = 200) -> tuple[tuple[float, float], ...]:
    """The productive share of the last hour over time.

    The window is shorter at the run's beginning; `points` are spread evenly over the run.

    Returns:
        (Unix seconds of the window's end, share 0 to 1), the last one at the run's end.
    """
    if not spans:
        return ()
    begin, end = spans[0].begin, spans[-1].end
    edges = [span.end for span in spans]
    useful = [1.0 - s.away if s.state is Tile.PRODUCTIVE else 0.0 for s in spans]
    done = list(accumulate((s.seconds * share for s, share in zip(spans, useful, strict=True)), initial=0.0))

    def productive_until(at: float) -> float:
        index = min(bisect_left(edges, at), len(spans) - 1)
        span = spans[index]
        return done[index] + max(0.0, min(at, span.end) - span.begin) * useful[index]

    found: list[tuple[float, float]] = []
    for number in range(1, points + 1):
        at = begin + (end - begin) * number / points
        since = max(begin, at - seconds)
        found.append((at, _share(productive_until(at) - productive_until(since), at - since)))
    return tuple(found)


def to_json(spans: Iterable[TileSpan], gpus: int) -> list[dict[str, Any]]:
    """As `primus report --json` shows them; times in Unix seconds.

    Where some replica groups begin again while others go on, `restart_gpu_seconds` is theirs.
    """
    return [
        {
            "from": span.begin,
            "to": span.end,
            "attempt": span.attempt,
            "state": span.state.value,
            "gpu_seconds": span.seconds * (1.0 - span.away) * gpus,
            **({"restart_gpu_seconds": span.seconds * span.away * gpus} if span.away else {}),
        }
        for span in spans
    ]


def _spans(cuts: Sequence[Cut], begin: float, end: float) -> list[TileSpan]:
    """Tiles between cuts, clamped to be monotone and to [begin, end]; equal neighbours of one attempt become one."""
    end = max(begin, end)
    spans: list[TileSpan] = []
    at, attempt, state = begin, 0, Tile.INIT
    for cut in cuts:
        here = min(max(cut.at, at), end)
        if here - at > CUT_SECONDS:
            _append(spans, TileSpan(at, here, attempt, state))
            at = here
        attempt, state = cut.attempt, cut.state
    if end > at:
        _append(spans, TileSpan(at, end, attempt, state))
    return spans


def _append(spans: list[TileSpan], span: TileSpan) -> None:
    last = spans[-1] if spans else None
    if last is not None and last[1:] == (span.begin, *span[2:]):
        spans[-1] = spans[-1]._replace(end=span.end)
    else:
        spans.append(span)


_UNTOUCHED = frozenset({Tile.PRODUCTIVE, Tile.ROLLBACK, Tile.STRAGGLER_LOSS, *PAUSES})
"""While steps are made, the run neither waits nor is it paused, whatever the automation does."""


def _restores(
    attempts: Sequence[AttemptRecord], marks: Sequence[MarkRecord], steps: StepSpans, end: float
) -> dict[int, list[Interval]]:
    """When the ranks of each attempt loaded a checkpoint: at the latest, until the next attempt was planned."""
    mine = marks_of(marks)
    ends = [*(following.planned_at for following in attempts[1:]), end]
    return {
        attempt.number: restores_of(attempt, mine.get(attempt.number, ()), steps.get(attempt.number, ()), until)
        for attempt, until in zip(attempts, ends, strict=False)
    }


def _overlay(spans: Sequence[TileSpan], state: Tile, found: Mapping[int, Sequence[Interval]]) -> list[TileSpan]:
    """The tiles with `state` in the intervals of their attempt, but for tiles of steps.

    Each attempt's intervals are in order and disjoint.
    """
    if not any(found.values()):
        return list(spans)
    out: list[TileSpan] = []
    for span in spans:
        at = span.begin
        for opened, closed in () if span.state in _UNTOUCHED else found.get(span.attempt, ()):
            begin, end = max(opened, at), min(closed, span.end)
            if end - begin <= CUT_SECONDS:
                continue
            if begin - at > CUT_SECONDS:
                _append(out, span._replace(begin=at, end=begin))
            else:
                begin = at
            _append(out, TileSpan(begin, end, span.attempt, state))
            at = end
        if span.end > at:
            _append(out, span._replace(begin=at))
    return out
