"""Reasons why something waits, as JSON and as lines for a terminal."""

from __future__ import annotations

from typing import Any

from flows.decisions.hold import Reason, Witness
from flows.decisions.spans import age
from flows.decisions.status import timestamp

Json = dict[str, Any]


def reason_document(reason: Reason) -> Json:
    """One reason: `reason`, `sentence`, `advice`, and who says so."""
    return {
        "reason": str(reason.hold),
        "sentence": reason.sentence,
        "advice": reason.advice,
        "evidence": [
            {
                "kind": item.kind,
                "name": item.name,
                "condition": item.condition,
                "reason": item.reason,
                "message": item.message,
                "at": timestamp(item.at),
            }
            for item in reason.witnesses
        ],
    }


def reason_lines(reason: Reason, now: float) -> list[str]:
    """Who says so, and what to do."""
    lines = [f"  {_witness(item, now)}" for item in reason.witnesses]
    return [*lines, f"  do: {reason.advice}"] if reason.advice else lines


def _witness(item: Witness, now: float) -> str:
    when = "" if item.at is None else f"  {age(now - item.at)} ago"
    told = ": ".join(" ".join(part.split()) for part in (item.reason, item.message) if part)
    return "  ".join(part for part in (f"{item.kind} {item.name}", item.condition, told) if part) + when
