"""The report of a run: where every second went, and what happened. Pure; the shapes of `primus report --json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flows.decisions.account import TileSpan, tile, to_json, totals
from flows.decisions.status import attempt_row, incident_row, timestamp
from workflows.records import StepRow, Story

Json = dict[str, Any]
Steps = Mapping[int, Sequence[StepRow]]
"""Completed steps of each attempt by its number."""


def tiles_of(story: Story, steps: Steps, now: float) -> tuple[TileSpan, ...]:
    """The states of the run from its submission to its end, or to `now`."""
    end = story.run.ended_at if story.run.ended_at is not None else now
    return tile(story.attempts, story.marks, steps, story.run.created_at, end)


def goodput_of(story: Story, steps: Steps, gpus: int, now: float) -> Json:
    """The `goodput` of `primus status --json`."""
    return totals(tiles_of(story, steps, now), gpus).goodput()


def report_of(story: Story, steps: Steps, gpus: int, now: float) -> Json:
    """The document of `primus report RUN --json`."""
    spans = tiles_of(story, steps, now)
    return {
        "run": story.run.name,
        "state": str(story.run.state),
        "why": story.run.why,
        "submitted_at": timestamp(story.run.created_at),
        "ended_at": timestamp(story.run.ended_at),
        "tiles": [
            {**item, "from": timestamp(item["from"]), "to": timestamp(item["to"])} for item in to_json(spans, gpus)
        ],
        "totals": totals(spans, gpus).goodput(),
        "attempts": [attempt_row(item) for item in story.attempts],
        "incidents": [incident_row(item, story) for item in story.incidents],
        "actions": [
            {"id": item.id, "kind": str(item.kind), "target": item.target, "state": item.state, "why": item.why}
            for item in story.actions
        ],
    }


def spent_gpu_seconds(story: Story, gpus: int, now: float) -> float:
    """GPU-seconds that the run's gangs held: from each attempt's JobSet to its end."""
    held = 0.0
    for attempt in story.attempts:
        begin = attempt.applied_at or attempt.submitted_at
        if begin is not None:
            held += max(0.0, (attempt.ended_at or now) - begin)
    return held * gpus
