"""What is shown of a node's checks: a line each, with figure, limit and evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deployments.tables import cut

Json = dict[str, Any]
WIDEST = 32
"""Characters of a figure or a word; all of it stands in the JSON."""


def rows_of(node: str, verdict: str, reasons: Sequence[Json]) -> list[Json]:
    """What is shown of a node: every check that did not pass; where all passed, each figure that was measured."""
    bad = [reason for reason in reasons if reason["verdict"] != "pass"]
    rows: list[Json] = []
    for number, reason in enumerate(bad or reasons):
        warning = " (warning)" if reason.get("severity") == "warning" else ""
        rows.append(
            {
                "node": "" if number else node,
                "verdict": "" if number else verdict,
                "check": f"{reason['check']}{warning}"
                if not bad
                else f"{reason['check']}: {reason['verdict']}{warning}",
                "measured": figure(reason["measured"], reason["unit"]),
                "limit": figure(reason["limit"], reason["unit"]),
                "evidence": reason["evidence"],
            }
        )
    return rows


def figure(value: Any, unit: str) -> str:
    """A figure or a word with its unit, short."""
    if value is None:
        return "-"
    shown = f"{value:.4g}" if isinstance(value, float) else str(value)
    return cut(f"{shown} {unit}".strip(), WIDEST)
