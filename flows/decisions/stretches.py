"""Stretches of time: between marks of two kinds, joined, and how much of one lies in others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from workflows.records import MarkRecord

Interval = tuple[float, float]
"""Begin and end, Unix seconds."""


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
