"""From all time down to the productive part: each loss takes its share away from what is left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.pages.colours import fill_of, swatch
from flows.pages.frame import PLOT_WIDTH, Column, Html, number, share, table
from flows.pages.time_bars import SEEN, words

Json = dict[str, Any]
MEANINGS = {
    "queue": "waiting for room on the cluster",
    "preflight": "the gate on each node, the check of the checkpoint, images",
    "init": "processes start, find each other, compile, make their first step",
    "productive": "steps whose result is part of the run, each at most at the usual step time",
    "checkpoint_stall": "ranks stand still for a save",
    "data_stall": "ranks wait for data",
    "eval": "ranks evaluate",
    "straggler_loss": "what steps took beyond the usual step time",
    "detect": "from the last good step to the alarm",
    "diagnose": "from the alarm to the decision",
    "restart": "from the decision to the first new step, without loading",
    "restore": "ranks load a checkpoint",
    "rollback": "steps whose result was thrown away and that were done again",
    "standby": "held ready without training",
    "paused": "waiting for a person's answer, or paused by one",
    "other": "between steps, or unexplained",
}
_COLUMNS = (
    Column("state", "state"),
    Column("amount", "", number=True),
    Column("share", "share", number=True),
    Column("bar", "of all time"),
)


def waterfall(productive: float, lost: Mapping[str, float], seconds_in_unit: float, unit: str) -> str:
    """The table with its bars.

    Args:
        productive: GPU-seconds.
        lost: GPU-seconds of every other state.
        seconds_in_unit: GPU-seconds in one of what is shown.
        unit: its name, `GPU-hours` or the like.
    """
    whole = productive + sum(lost.values())
    if whole <= 0:
        return "<p>No time has passed yet.</p>"
    rows: list[Json] = [_row(Html("all time"), "", whole, 0.0, whole, seconds_in_unit)]
    left = whole
    seen = {state: value for state, value in lost.items() if value > whole * SEEN}
    for state, value in sorted(seen.items(), key=lambda item: -item[1]):
        left -= value
        rows.append(_row(Html(swatch(state) + words(state)), state, value, left, whole, seconds_in_unit))
    named = Html(swatch("productive") + "productive")
    rows.append(_row(named, "productive", productive, 0.0, whole, seconds_in_unit))
    columns = [
        column._replace(title=unit.partition("-")[2]) if column.key == "amount" else column for column in _COLUMNS
    ]
    return table(f"Where the {unit} went", columns, rows) + _meanings(["productive", *seen])


def _row(name: Html, state: str, value: float, begin: float, whole: float, seconds_in_unit: float) -> Json:
    x, width = begin / whole * PLOT_WIDTH, max(1.5, value / whole * PLOT_WIDTH)
    fill = fill_of(state) if state else "currentColor"
    bar = (
        "<div class=bar><svg aria-hidden=true focusable=false preserveAspectRatio=none "
        f'viewBox="0 0 {PLOT_WIDTH:g} 14">'
        f'<rect x="{min(x, PLOT_WIDTH - width):.1f}" width="{width:.1f}" height="14" fill="{fill}"/></svg></div>'
    )
    return {"state": name, "amount": number(value / seconds_in_unit), "share": share(value / whole), "bar": Html(bar)}


def _meanings(states: list[str]) -> str:
    rows = "".join(f"<dt>{words(state)}</dt><dd>{MEANINGS.get(state, '')}</dd>" for state in states)
    return f"<details><summary>What the states mean</summary><dl>{rows}</dl></details>"
