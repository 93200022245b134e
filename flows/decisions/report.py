"""The report of a run: where every second went, and what happened. Pure; the shapes of `primus report --json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flows.decisions.account import TileSpan, Totals, sliding, tile, to_json, totals
from flows.decisions.advice import Advice, advise, held_seconds, measured
from flows.decisions.cuts import lineage_of
from flows.decisions.status import attempt_rows, incident_row, timestamp
from profiles.resolve import Resolved
from workflows.checkpoint_record import CheckpointRecord
from workflows.records import StepRow, Story

Json = dict[str, Any]
Steps = Mapping[int, Sequence[StepRow]]
"""Completed steps of each attempt by its number."""
Curve = Sequence[tuple[int, float, float | None, bool]]
"""Step, Unix seconds of its completion, loss, and whether its result was kept."""


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
    kept = lineage_of({number: sorted(rows, key=lambda row: (row.at, row.step)) for number, rows in steps.items()})
    found = [
        (row.step, row.at, row.loss, index in kept.get(number, ()))
        for number, rows in sorted(steps.items())
        for index, row in enumerate(sorted(rows, key=lambda row: (row.at, row.step)))
    ]
    return sorted(found, key=lambda row: row[1])


def cost_of(summed: Totals, held: float, resolved: Resolved) -> Json | None:
    """What the gangs' time cost: queueing is free, since nothing is held. None where the pool has no price.

    Args:
        summed: of the run.
        held: seconds in which a gang held its nodes.
        resolved: the run's profile, with the price as it was at its submission.
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
    last = {(item.path, item.tier): item for item in sorted(checkpoints, key=lambda item: item.at)}
    return sorted(last.values(), key=lambda item: (item.attempt, item.step, item.tier))


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
