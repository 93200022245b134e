"""Slow ranks, a slower gang and numbers that jumped, as the moments of a run tell them. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from profiles.vocabulary import FINISHED
from workflows.gang_news import JUMP_MARK, SLOWER_MARK, STRAGGLERS_MARK
from workflows.records import MarkRecord, Story

Json = dict[str, Any]
NEWEST = 5
"""Jumps that are shown."""


def lagging(story: Story) -> Json:
    """The part of `primus status --json` about the present attempt: `stragglers`, `slower` (null: no) and `jumps`."""
    attempt = story.attempt
    over = attempt is None or attempt.ended_at is not None or story.run.state in FINISHED
    mine = () if attempt is None or over else [mark for mark in story.marks if mark.attempt == attempt.number]
    ranks = told(mine, STRAGGLERS_MARK)[-1:]
    return {
        "stragglers": ranks[0] if ranks and isinstance(ranks[0], list) else [],
        "slower": next(iter(told(mine, SLOWER_MARK)[-1:]), None),
        "jumps": told(mine, JUMP_MARK)[-NEWEST:],
    }


def told(marks: Sequence[MarkRecord], kind: str) -> list[Any]:
    """What the moments of a kind say, in order; unreadable ones are left out."""
    found: list[Any] = []
    for mark in marks:
        try:
            found += [json.loads(mark.detail)] if mark.kind == kind else []
        except ValueError:
            continue
    return found


def sentences(status: Json) -> list[str]:
    """The same for people, a line each."""
    lines = [_lags(item) for item in status["stragglers"]]
    slower = status["slower"]
    if slower is not None:
        since = "" if slower["since_step"] is None else f" since step {slower['since_step']}"
        lines.append(f"the whole gang is slower{since}: {slower['ratio']:.2f} times a step before; no rank stands out")
    return lines + [_jumped(item) for item in status["jumps"]]


def _jumped(item: Json) -> str:
    what, value = item["what"], item["value"]
    if isinstance(value, str):
        return f"{what} was {value} at step {item['step']}"
    return f"{what} jumped at step {item['step']}: {item['before']:.4g} to {value:.4g}"


def _lags(item: Json) -> str:
    where = f" on {item['node']}" if item["node"] else ""
    since = "" if item["since_step"] is None else f" since step {item['since_step']}"
    return f"rank {item['rank']}{where} lags{since}: {item['ratio']:.2f} times its peers"
