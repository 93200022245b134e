"""Runs, a line each. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flows.decisions.spans import age, timestamp
from profiles.vocabulary import FINISHED
from workflows.overview import RunLine

Json = dict[str, Any]


def document(line: RunLine) -> Json:
    """One entry of `primus runs --json`."""
    return {
        "run": line.name,
        "state": str(line.state),
        "profile": line.profile,
        "cluster": line.cluster,
        "step": line.step,
        "loss": line.loss,
        "attempts": line.attempts,
        "why": line.why,
        "paused": line.paused,
        "created_at": timestamp(line.created_at),
        "ended_at": timestamp(line.ended_at),
        "last_step_at": timestamp(line.last_step_at),
    }


def row(line: RunLine, now: float) -> Json:
    """The run in one line."""
    return {
        "run": line.name,
        "state": f"{line.state} (paused)" if line.paused and line.state not in FINISHED else str(line.state),
        "profile": line.profile,
        "cluster": line.cluster,
        "age": age(now - line.created_at),
        "step": line.step,
        "attempts": line.attempts,
        "why": line.why,
    }


def headline(lines: Sequence[RunLine], *, more: bool) -> str:
    """How many are shown, how many of them have not ended, and how to see older ones."""
    living = sum(line.state not in FINISHED for line in lines)
    shown = f"{len(lines)} run{'' if len(lines) == 1 else 's'}, {living} not ended"
    return f"{shown}; older ones are left out: primus runs --limit 0" if more else shown
