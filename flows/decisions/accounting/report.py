"""The report of a run: where every second went, and what happened. Pure; the shapes of `primus report --json`.

`summarise` gives a run's account in a few numbers, `clip` the part of it that lies in a window of time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flows.decisions.accounting.advice import Advice, advise, held_seconds, measured
from flows.decisions.accounting.cuts import PAUSES, StepSpans, lineage_of, spread
from flows.decisions.accounting.tiles import TileSpan, Totals, sliding, tile, to_json, totals
from flows.decisions.text import timestamp
from flows.decisions.views.status import attempt_rows, incident_row
from profiles.resolve import Resolved
from profiles.vocabulary import Tile
from workflows.model.checkpoints import standing
from workflows.model.records import CheckpointRecord, IncidentRecord, StepRow, Story
from workflows.model.runs import RunSummary, Stretch

Json = dict[str, Any]
Steps = Mapping[int, Sequence[StepRow]]
"""Completed steps of each attempt by its number."""
Curve = Sequence[tuple[int, float, float | None, bool]]
"""Step, Unix seconds of its completion, loss, and whether its result was kept."""

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


def tiles_of(story: Story, steps: Steps, now: float) -> tuple[TileSpan, ...]:
    """The states of the run from its submission to its end, or to `now`."""
    end = story.run.ended_at if story.run.ended_at is not None else now
    return tile(story.attempts, story.marks, steps, story.run.created_at, end)


def goodput_of(story: Story, steps: Steps, gpus: int, now: float) -> Json:
    """The `goodput` of `primus status --json`."""
    return totals(tiles_of(story, steps, now), gpus).goodput()


def report_of(story: Story, steps: Steps, resolved: Resolved, now: float) -> Json:
    """The document of `primus report RUN --json`."""
    spans = tiles_of(story, steps, now)
    summed = totals(spans, resolved.gpus)
    return {
        "run": story.run.name,
        "state": str(story.run.state),
        "why": story.run.why,
        "profile": story.run.profile,
        "cluster": story.run.cluster,
        "submitted_at": timestamp(story.run.created_at),
        "ended_at": timestamp(story.run.ended_at),
        "tiles": [
            {**item, "from": timestamp(item["from"]), "to": timestamp(item["to"])}
            for item in to_json(spans, resolved.gpus)
        ],
        "totals": summed.goodput(),
        "cost": cost_of(summed, held_seconds(story, now), resolved),
        "ettr_by_hour": [{"at": timestamp(at), "ettr": round(share, 6)} for at, share in sliding(spans)],
        "advice": advice_row(advise(measured(story, steps, spans, resolved, now))),
        "attempts": attempt_rows(story, steps),
        "incidents": [incident_row(item) for item in story.incidents],
        "checkpoints": [_checkpoint(item) for item in _newest(story.checkpoints)],
        "actions": [
            {"id": item.id, "kind": str(item.kind), "target": item.target, "state": item.state, "why": item.why}
            for item in story.actions
        ],
    }


def curve_of(steps: Steps) -> Curve:
    """Every step in the order of completion, those that were thrown away too."""
    ordered = {n: spread(sorted(rows, key=lambda row: (row.at, row.step))) for n, rows in sorted(steps.items())}
    kept = lineage_of(ordered)
    found = [
        (row.step, row.at, row.loss, index in kept.get(number, ()))
        for number, rows in ordered.items()
        for index, row in enumerate(rows)
    ]
    return sorted(found, key=lambda row: row[1])


def cost_of(summed: Totals, held: float, resolved: Resolved) -> Json | None:
    """What the gangs' time cost: queueing is free, since nothing is held. None where the pool has no price.

    `held`: seconds in which a gang held its nodes.
    """
    price = resolved.pool.price_per_gpu_hour
    if price is None:
        return None
    total = held * summed.gpus / 3600.0 * price
    productive = summed.productive_gpu_seconds / 3600.0 * price
    return {
        "currency": resolved.cluster.currency,
        "price_per_gpu_hour": price,
        "total": round(total, 2),
        "productive": round(productive, 2),
        "lost": round(max(0.0, total - productive), 2),
    }


def advice_row(advice: Advice) -> Json:
    """The `advice` of the report. Seconds; null: not known."""
    found = advice.measured
    low, high = found.rate.mttf_interval_hours(found.nodes)
    return {
        "text": advice.text,
        "best_interval_seconds": _rounded(advice.best_interval_seconds),
        "best_interval_steps": advice.best_interval_steps,
        "interval_seconds": _rounded(found.interval_seconds),
        "stall_seconds": _rounded(found.stall_seconds),
        "saves": found.saves,
        "restart_seconds": _rounded(found.restart_seconds),
        "step_seconds": _rounded(found.step_seconds),
        "failures": found.rate.failures,
        "node_days": _rounded(found.rate.node_days),
        "mttf_hours": _rounded(found.mttf_seconds / 3600.0),
        "counted_mttf_hours": _rounded(found.rate.mttf_hours(found.nodes)),
        "counted_mttf_hours_low": _rounded(low),
        "counted_mttf_hours_high": _rounded(high),
        "expected_ettr": _rounded(advice.expected_ettr),
        "simulated_ettr": _rounded(advice.simulated_ettr),
        "best_ettr": _rounded(advice.best_ettr),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _newest(checkpoints: Sequence[CheckpointRecord]) -> list[CheckpointRecord]:
    """What holds about each checkpoint, in the order in which they were written."""
    return sorted(standing(checkpoints), key=lambda item: (item.attempt, item.step, item.tier))


def _checkpoint(item: CheckpointRecord) -> Json:
    return {
        "step": item.step,
        "path": item.path,
        "tier": item.tier,
        "attempt": item.attempt,
        "at": timestamp(item.at),
        "bytes": item.bytes,
        "verdict": str(item.verdict),
        "why": item.why,
    }


def spent_gpu_seconds(story: Story, gpus: int, now: float) -> float:
    """GPU-seconds that the run's gangs held: from each attempt's JobSet to its end."""
    return held_seconds(story, now) * gpus


def summarise(story: Story, steps: StepSpans, resolved: Resolved, now: float) -> RunSummary:
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
