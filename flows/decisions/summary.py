"""The account of a run in a few numbers, and how a window cuts it. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from flows.decisions.account import TileSpan
from flows.decisions.cuts import PAUSES, Steps
from flows.decisions.report import tiles_of
from profiles.resolve import Resolved
from profiles.vocabulary import Tile
from workflows.records import IncidentRecord, Story
from workflows.summary import RunSummary, Stretch

STRETCH_SECONDS = 3600.0
"""Training is cut into pieces of this length: a window that begins within one takes its share by length."""
WORKING = frozenset({Tile.PRODUCTIVE, Tile.STRAGGLER_LOSS, Tile.ROLLBACK, Tile.OTHER, *PAUSES})
BEFORE_ALARM = frozenset({Tile.ROLLBACK, Tile.DETECT})
"""Lost to the incident that comes after them."""
AFTER_ALARM = frozenset(
    {
        Tile.DIAGNOSE,
        Tile.RESTART,
        Tile.RESTORE,
        Tile.PREFLIGHT,
        Tile.QUEUE,
        Tile.INIT,
        Tile.PAUSED,
        Tile.STANDBY,
    }
)
"""Lost to the incident before them; before the first one they are the run's own start."""
UNDIAGNOSED = "unknown"
_AT_ONCE = 1e-6


def summarise(story: Story, steps: Steps, resolved: Resolved, now: float) -> RunSummary:
    """The account of a run from its submission to its end, or to `now`."""
    pieces = stretches(tiles_of(story, steps, now), story.troubles)
    end = story.run.ended_at if story.run.ended_at is not None else now
    return RunSummary(
        story.run.name,
        story.run.cluster,
        story.run.created_at,
        max(end, story.run.created_at),
        resolved.gpus,
        resolved.run.deciding_role.replicas,
        resolved.pool.price_per_gpu_hour,
        resolved.cluster.currency,
        _sum(piece.by_state for piece in pieces),
        _sum(piece.lost_by_class for piece in pieces),
        pieces,
    )


def clip(summary: RunSummary, since: float, until: float) -> RunSummary:
    """The part of the account that lies in [since, until]; a piece that an edge cuts counts by its length.

    Needs the summary's stretches where the window cuts the run.
    """
    if summary.begin >= since and summary.end <= until:
        return summary
    pieces = tuple(cut for piece in summary.stretches if (cut := _cut(piece, since, until)) is not None)
    return replace(
        summary,
        begin=max(summary.begin, since),
        end=max(min(summary.end, until), summary.begin, since),
        by_state=_sum(piece.by_state for piece in pieces),
        lost_by_class=_sum(piece.lost_by_class for piece in pieces),
        stretches=pieces,
    )


def stretches(spans: Sequence[TileSpan], incidents: Sequence[IncidentRecord]) -> tuple[Stretch, ...]:
    """The tiles as pieces: training joined up to `STRETCH_SECONDS`, every other tile as it is."""
    blame = _Blame(incidents)
    made: list[Stretch] = []
    joinable = False
    for span in spans:
        seconds, working = span.end - span.begin, span.state in WORKING
        short = made and span.end - made[-1].begin <= STRETCH_SECONDS
        if not (joinable and working and short):
            made.append(Stretch(span.begin, span.end, {}, {}))
        piece = made[-1] = made[-1]._replace(end=span.end)
        _add(piece.by_state, span.state.value, seconds)
        if culprit := blame.of(span):
            _add(piece.lost_by_class, culprit, seconds)
        joinable = working
    return tuple(made)


class _Blame:
    """Which incident's class a lost tile counts for."""

    def __init__(self, incidents: Sequence[IncidentRecord]) -> None:
        self._incidents = sorted(incidents, key=lambda item: (item.detected_at, item.id))
        self._times = [item.detected_at for item in self._incidents]

    def of(self, span: TileSpan) -> str:
        if span.state in BEFORE_ALARM:
            index = bisect_left(self._times, span.end - _AT_ONCE)
        elif span.state in AFTER_ALARM:
            index = bisect_right(self._times, span.begin + _AT_ONCE) - 1
        else:
            return ""
        if not 0 <= index < len(self._incidents):
            return ""
        found = self._incidents[index].fault_class
        return UNDIAGNOSED if found is None else found.value


def _cut(piece: Stretch, since: float, until: float) -> Stretch | None:
    begin, end = max(piece.begin, since), min(piece.end, until)
    if end <= begin:
        return None
    share = (end - begin) / (piece.end - piece.begin)
    if share >= 1:
        return piece
    parts = ({name: value * share for name, value in part.items()} for part in (piece.by_state, piece.lost_by_class))
    return Stretch(begin, end, *parts)


def _sum(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    summed: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            _add(summed, name, value)
    return summed


def _add(sums: dict[str, float], name: str, value: float) -> None:
    sums[name] = sums.get(name, 0.0) + value
