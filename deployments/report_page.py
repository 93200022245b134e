"""The report as one HTML page: no script, no font, no picture from elsewhere; it can be mailed and opened anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape
from math import isfinite
from typing import Any

Json = dict[str, Any]
WIDTH, HEIGHT = 960, 220
COLOURS = {
    "productive": "#2e7d32",
    "init": "#90a4ae",
    "preflight": "#64b5f6",
    "queue": "#ce93d8",
    "restart": "#ef6c00",
    "restore": "#fb8c00",
    "rollback": "#c62828",
    "detect": "#d81b60",
    "diagnose": "#ad1457",
    "checkpoint_stall": "#00838f",
    "straggler_loss": "#f9a825",
    "paused": "#5d4037",
    "other": "#bdbdbd",
}
ATTEMPT_COLUMNS = (
    "number",
    "outcome",
    "nodes",
    "resumed_from_step",
    "resume_proof",
    "first_step",
    "last_step",
    "why",
)
INCIDENT_COLUMNS = (
    "id",
    "class",
    "confidence",
    "culprits",
    "action",
    "detected_after_seconds",
    "resumed_after_seconds",
    "why",
)
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .8em;text-align:left;border-bottom:1px solid #ddd}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}i.k{display:inline-block;width:1em;height:1em;"
    "margin-right:.5em;vertical-align:-.15em}h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}"
    "svg{width:100%;height:auto;background:#fafafa;border:1px solid #ddd}.why{color:#555}"
)


def page(document: Json, losses: Sequence[tuple[int, float, float | None]]) -> str:
    """The page of a report.

    Args:
        document: as `primus report --json` prints it.
        losses: (step, Unix seconds, loss) of every step, in order of time.
    """
    totals: Json = document["totals"]
    body = [
        f"<h1>{escape(document['run'])}: {escape(document['state'])}</h1>",
        f"<p class=why>{escape(document['why'])}</p>",
        f"<p><b>{totals['ettr']:.1%}</b> of {totals['wall_seconds']:.1f} s x {totals['gpus']} devices was productive.",
        "<h2>Where the time went</h2>",
        _timeline(document["tiles"]),
        _totals(totals),
        "<h2>Loss</h2>",
        _loss(document["tiles"], losses),
        "<h2>Attempts</h2>",
        _table(document["attempts"], ATTEMPT_COLUMNS),
        "<h2>Incidents</h2>",
        _table(document["incidents"], INCIDENT_COLUMNS) if document["incidents"] else "<p>None.</p>",
    ]
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(document['run'])}</title>"
        f"<style>{STYLE}</style>{''.join(body)}</html>\n"
    )


def _at(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _colour(state: str) -> str:
    return COLOURS.get(state, COLOURS["other"])


def _timeline(tiles: list[Json]) -> str:
    if not tiles:
        return "<p>Nothing yet.</p>"
    begin, end = _at(tiles[0]["from"]), _at(tiles[-1]["to"])
    scale = WIDTH / max(end - begin, 1e-9)
    bars = [
        f'<rect x="{(_at(item["from"]) - begin) * scale:.2f}" y="0" height="48" '
        f'width="{max(0.3, (_at(item["to"]) - _at(item["from"])) * scale):.2f}" fill="{_colour(item["state"])}">'
        f"<title>attempt {item['attempt']}: {escape(item['state'])}, {item['gpu_seconds']:.2f} device-seconds</title>"
        "</rect>"
        for item in tiles
    ]
    return f'<svg viewBox="0 0 {WIDTH} 48" role=img aria-label="states over time">{"".join(bars)}</svg>'


def _totals(totals: Json) -> str:
    whole = totals["wall_seconds"] * totals["gpus"] or 1.0
    rows = [("productive", totals["productive_gpu_seconds"]), *sorted(totals["lost"].items(), key=lambda x: -x[1])]
    cells = "".join(
        f'<tr><td><i class=k style="background:{_colour(name)}"></i>{escape(name)}</td>'
        f"<td class=n>{value:.2f}</td><td class=n>{value / whole:.1%}</td></tr>"
        for name, value in rows
    )
    return f"<table><tr><th>state</th><th>device-seconds</th><th>share</th></tr>{cells}</table>"


def _loss(tiles: list[Json], losses: Sequence[tuple[int, float, float | None]]) -> str:
    points = [(at, loss) for _, at, loss in losses if loss is not None and isfinite(loss)]
    if len(points) < 2 or not tiles:
        return "<p>No loss was reported.</p>"
    begin, end = _at(tiles[0]["from"]), _at(tiles[-1]["to"])
    low, high = min(loss for _, loss in points), max(loss for _, loss in points)
    across, down = WIDTH / max(end - begin, 1e-9), (HEIGHT - 30) / max(high - low, 1e-9)
    line = " ".join(f"{(at - begin) * across:.1f},{10 + (high - loss) * down:.1f}" for at, loss in points)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role=img aria-label="loss over time">'
        f'<polyline points="{line}" fill="none" stroke="#1565c0" stroke-width="1.5"/>'
        f'<text x="6" y="16" font-size="13">{high:.3f}</text>'
        f'<text x="6" y="{HEIGHT - 6}" font-size="13">{low:.3f}</text></svg>'
    )


def _table(rows: list[Json], columns: Sequence[str]) -> str:
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{_cell(row.get(name))}</td>" for name in columns) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        items: list[object] = list(value)  # pyright: ignore[reportUnknownArgumentType] - parsed JSON
        return ", ".join(_cell(item) for item in items)
    if isinstance(value, dict):
        return escape(" ".join(str(item) for item in value.values() if item is not None))  # pyright: ignore
    return escape(str(value))
