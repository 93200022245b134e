"""Tiles of wall time in which a part of the GPUs begins again while the others train on. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from profiles.vocabulary import Tile
from workflows.gang_news import REPLICA_BEGIN, REPLICA_END
from workflows.records import MarkRecord


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
    """Every one of a run. One whose end nobody told reaches to what ended the attempt, else to `end` (now)."""
    mine = [mark for mark in marks if mark.kind in (REPLICA_BEGIN, REPLICA_END, "detected", "ended")]
    found: list[Absence] = []
    for mark in mine:
        if mark.kind != REPLICA_BEGIN:
            continue
        number, _, rest = mark.detail.partition(" ")
        until = [
            other.at for other in mine if other.attempt == mark.attempt and other.at >= mark.at and _ends(other, number)
        ]
        share = _share(rest.partition(" ")[0])
        if share:
            found.append(Absence(mark.at, min([*until, end]), mark.attempt, share))
    return [one for one in found if one.end > one.begin]


def apart(spans: Sequence[TileSpan], found: Sequence[Absence]) -> list[TileSpan]:
    """The tiles cut where shares of the GPUs go away and come back, each with the share that is away in it."""
    edges = sorted({at for one in found for at in (one.begin, one.end)})
    if not edges:
        return list(spans)
    out: list[TileSpan] = []
    for span in spans:
        inside = [at for at in edges if span.begin < at < span.end]
        cuts = [span.begin, *inside, span.end]
        for begin, end in itertools.pairwise(cuts):
            middle = (begin + end) / 2
            away = sum(one.share for one in found if one.attempt == span.attempt and one.begin <= middle < one.end)
            out.append(span._replace(begin=begin, end=end, away=min(1.0, away)))
    return out


def _ends(mark: MarkRecord, number: str) -> bool:
    return mark.kind in ("detected", "ended") or (mark.kind == REPLICA_END and mark.detail == number)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        return 0.0
    return share if 0.0 < share <= 1.0 else 0.0
