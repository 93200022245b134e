"""Plots of a run (loss, throughput, checkpoint age, productive share), its timeline, and its wall time as bars."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import groupby
from typing import Any, NamedTuple

from flows.decisions.accounting.report import Curve
from flows.pages.frame import (
    PLOT_HEIGHT,
    PLOT_WIDTH,
    Html,
    TableColumn,
    at,
    duration,
    line,
    moment,
    number,
    plot,
    sentence,
    share,
    table,
)
from flows.pages.style import fill_of, swatch

Json = dict[str, Any]
Point = tuple[float, float]
BUCKETS = 400
"""A line is thinned to the smallest and the largest value of so many parts of its length."""
RATE_BINS = 120
_MARGIN = 6.0

CELLS = 400
"""A bar is so many cells; each shows what took most of it."""
MOST_ROWS = 24
"""Nodes with a bar of their own; of larger gangs the attempts are shown."""

SEEN = 1e-5
"""Smaller shares of all time are rounding, and not shown."""

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
    TableColumn("state", "state"),
    TableColumn("amount", "", number=True),
    TableColumn("share", "share", number=True),
    TableColumn("bar", "of all time"),
)


def loss(curve: Curve) -> str:
    """Loss over steps; steps that were thrown away as a second line."""
    points = [(step, value, kept) for step, _, value, kept in curve if value is not None and math.isfinite(value)]
    broken = sum(value is not None and not math.isfinite(value) for _, _, value, _ in curve)
    said = sentence(f"{broken} steps had a loss that is no number; they are not drawn.") if broken else ""
    if len(points) < 2:
        return sentence("No loss was reported, so there is nothing to draw.") + said
    steps, values = [step for step, _, _ in points], [value for _, value, _ in points]
    lost = [step for step, _, _, kept in curve if not kept]
    scale = _Scale(min(steps), max(steps), min(values), max(values))
    shapes = "".join(_band(scale, first, last) for first, last in _ranges(lost))
    for kept, found in groupby(points, key=lambda point: point[2]):
        piece = thin([scale(step, value) for step, value, _ in found])
        shapes += line(piece if len(piece) > 1 else [piece[0], (piece[0][0] - 2, piece[0][1])], "a" if kept else "b")
    label = f"Loss over steps {min(steps)} to {max(steps)}: first {number(values[0])}, last {number(values[-1])}"
    below = (f"step {min(steps):,}", f"step {max(steps):,}")
    drawn = plot(label, shapes, (number(max(values)), number(min(values))), below)
    key = '<ul class=legend><li><span class="key"></span>kept</li>'
    if lost:
        times = f"{len(lost):,} steps, between {min(lost):,} and {max(lost):,}"
        key += f'<li><span class="key b"></span>thrown away and done again: {times}</li>'
    return drawn + key + "</ul>" + said


def _ranges(steps: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbouring steps as ranges."""
    found: list[tuple[int, int]] = []
    for step in sorted(set(steps)):
        if found and step <= found[-1][1] + 1:
            found[-1] = (found[-1][0], step)
        else:
            found.append((step, step))
    return found


def _band(scale: _Scale, first: int, last: int) -> str:
    left, right = max(0.0, scale(first - 0.5, 0.0)[0]), min(PLOT_WIDTH, scale(last + 0.5, 0.0)[0])
    return f'<rect class=band x="{left:.1f}" y="0" width="{max(1.0, right - left):.1f}" height="{PLOT_HEIGHT:g}" />'


def throughput(curve: Curve) -> str:
    """Steps a second over time, thrown away ones too."""
    times = [when for _, when, _, _ in curve]
    if len(times) < 3 or times[-1] <= times[0]:
        return sentence("Fewer than three steps were made, so there is no throughput to draw.")
    width = (times[-1] - times[0]) / RATE_BINS
    counts = [0] * RATE_BINS
    for when in times:
        counts[min(RATE_BINS - 1, int((when - times[0]) / width))] += 1
    rates = [count / width for count in counts]
    scale = _Scale(0, RATE_BINS, 0.0, max(rates))
    tops = [scale(place, rate) for index, rate in enumerate(rates) for place in (index, index + 1)]
    floor = PLOT_HEIGHT - _MARGIN
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in [(0.0, floor), *tops, (PLOT_WIDTH, floor)])
    busy = sorted(rate for rate in rates if rate > 0)
    label = (
        f"Steps a second over time: at most {number(max(rates))}, median {number(busy[len(busy) // 2])} while training"
    )
    shapes = f'<polygon class=area points="{path}" vector-effect=non-scaling-stroke />'
    return plot(label, shapes, (f"{number(max(rates))}/s", "0/s"), (_clock(times[0]), _clock(times[-1])))


def checkpoint_age(document: Json) -> str:
    """How old the newest proven checkpoint was: what a failure at that moment would have cost."""
    saved = sorted(at(item["at"]) for item in document["checkpoints"] if item["verdict"] == "pass")
    if not saved or not document["tiles"]:
        return sentence("No checkpoint has been proven yet: a failure would cost everything since the beginning.")
    begin, end = at(document["tiles"][0]["from"]), at(document["tiles"][-1]["to"])
    newest, points = begin, [(begin, 0.0)]
    for when in (item for item in saved if begin <= item <= end):
        points += [(when, when - newest), (when, 0.0)]
        newest = when
    points.append((end, end - newest))
    oldest = max(age for _, age in points)
    scale = _Scale(begin, end, 0.0, oldest)
    shapes = line(thin([scale(when, age) for when, age in points]), "a")
    moments = [at(item["at"]) for item in document["incidents"]]
    marks = "".join(f"M{scale(when, 0)[0]:.1f} 0V{PLOT_HEIGHT:g}" for when in moments if begin <= when <= end)
    if marks:
        shapes += f'<path class=mark d="{marks}" vector-effect=non-scaling-stroke />'
    label = f"Age of the newest proven checkpoint over time: at most {duration(oldest)}, now {duration(points[-1][1])}"
    below = (_clock(begin), _clock(end))
    return plot(label, shapes, (duration(oldest), "0 s"), below) + sentence(f"{label}. Dashed: incidents.", muted=True)


def share_by_hour(document: Json) -> str:
    """The productive share of the last hour, over the run."""
    rows: list[Json] = document["ettr_by_hour"]
    if len(rows) < 2:
        return ""
    scale = _Scale(at(rows[0]["at"]), at(rows[-1]["at"]), 0.0, 1.0)
    shapes = line([scale(at(row["at"]), row["ettr"]) for row in rows], "a")
    worst = min(row["ettr"] for row in rows)
    label = f"Productive share of the hour before: at least {worst:.0%}, at the end {rows[-1]['ettr']:.0%}"
    return plot(label, shapes, ("100%", "0%"), (moment(rows[0]["at"]), moment(rows[-1]["at"])))


def thin(points: Sequence[Point]) -> list[Point]:
    """At most two points for each of `BUCKETS` parts: the lowest and the highest, in their order."""
    if len(points) <= 2 * BUCKETS:
        return list(points)
    size = len(points) / BUCKETS
    kept: list[Point] = []
    for number_ in range(BUCKETS):
        part = points[int(number_ * size) : int((number_ + 1) * size)]
        kept += sorted({min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])})
    return kept


class _Scale:
    """From values to a plot's own coordinates; a plot without any height or width is drawn in its middle."""

    def __init__(self, left: float, right: float, low: float, high: float) -> None:
        self.left, self.low = left, low
        self.across = PLOT_WIDTH / (right - left) if right > left else 0.0
        self.up = (PLOT_HEIGHT - 2 * _MARGIN) / (high - low) if high > low else 0.0

    def __call__(self, x: float, y: float) -> Point:
        height = (y - self.low) * self.up if self.up else PLOT_HEIGHT / 2 - _MARGIN
        return (x - self.left) * self.across, PLOT_HEIGHT - _MARGIN - height


def _clock(seconds: float) -> str:
    return moment(datetime.fromtimestamp(seconds, UTC).isoformat())


class Block(NamedTuple):
    """Neighbouring cells of one attempt in one state."""

    first: int
    last: int
    attempt: int
    state: str


def timeline(document: Json) -> str:
    """The bars of a run, its nodes below it, and the legend."""
    tiles: list[Json] = document["tiles"]
    if not tiles:
        return sentence("Nothing has happened yet.")
    begin, end = at(tiles[0]["from"]), at(tiles[-1]["to"])
    blocks = blocks_of(tiles, begin, end)
    rows = [_bar_row("run", blocks, _summary(tiles))]
    if incidents := document["incidents"]:
        rows.append(_incident_row(incidents, begin, end))
    rows += [
        _bar_row(name, [block for block in blocks if block.attempt in attempts], f"{name}: in {_numbers(attempts)}")
        for name, attempts in _lanes(document["attempts"]).items()
    ]
    below = f"<div class=below><span>{moment(tiles[0]['from'])}</span><span>{moment(tiles[-1]['to'])}</span></div>"
    return f"<div class=rows>{''.join(rows)}{below}</div>{legend(tiles)}"


def blocks_of(tiles: Sequence[Mapping[str, Any]], begin: float, end: float) -> list[Block]:
    """What took most of each cell; time of no tile shows nothing."""
    width = max(end - begin, 1e-9) / CELLS
    cells: list[dict[tuple[int, str], float]] = [{} for _ in range(CELLS)]
    for item in tiles:
        low, high = (at(item["from"]) - begin) / width, (at(item["to"]) - begin) / width
        for cell in range(max(0, int(low)), min(CELLS, int(high) + 1)):
            part = min(high, cell + 1) - max(low, cell)
            if part > 0:
                key = (item["attempt"], item["state"])
                cells[cell][key] = cells[cell].get(key, 0.0) + part
    blocks: list[Block] = []
    for index, cell in enumerate(cells):
        if not cell:
            continue
        attempt, state = max(cell, key=cell.__getitem__)
        if blocks and blocks[-1][1:] == (index - 1, attempt, state):
            blocks[-1] = blocks[-1]._replace(last=index)
        else:
            blocks.append(Block(index, index, attempt, state))
    return blocks


def legend(tiles: Sequence[Mapping[str, Any]]) -> str:
    """The states that occur, in the order of their share, each with it."""
    sums: dict[str, float] = {}
    for item in tiles:
        sums[item["state"]] = sums.get(item["state"], 0.0) + at(item["to"]) - at(item["from"])
    whole = sum(sums.values())
    ordered = sorted(((state, took) for state, took in sums.items() if took > whole * SEEN), key=lambda pair: -pair[1])
    items = "".join(f"<li>{swatch(state)}{escape(words(state))} {duration(took)}</li>" for state, took in ordered)
    return f"<ul class=legend>{items}</ul>"


def words(state: str) -> str:
    """A state as it is written for people."""
    return state.replace("_", " ")


def _bar_row(name: str, blocks: Sequence[Block], label: str) -> str:
    unit = PLOT_WIDTH / CELLS
    rects = "".join(
        f'<rect x="{b.first * unit:g}" y="0" width="{(b.last - b.first + 1) * unit:g}" height="20" '
        f'fill="{fill_of(b.state)}"><title>attempt {b.attempt}: {escape(words(b.state))}</title></rect>'
        for b in blocks
    )
    return _bar(name, rects, label)


def _bar(name: str, shapes: str, label: str) -> str:
    return (
        f'<span class=name>{escape(name)}</span><svg role=img aria-label="{escape(label)}" '
        f'viewBox="0 0 {PLOT_WIDTH:g} 20" preserveAspectRatio=none>{shapes}</svg>'
    )


def _incident_row(incidents: Sequence[Json], begin: float, end: float) -> str:
    scale = PLOT_WIDTH / max(end - begin, 1e-9)
    places = [min(PLOT_WIDTH, max(0.0, (at(item["at"]) - begin) * scale)) for item in incidents]
    path = "".join(f"M{x:.1f} 0V20" for x in places)
    label = f"{len(incidents)} incidents, at {', '.join(moment(item['at']) for item in incidents[:10])}"
    return _bar("incidents", f'<path class=mark d="{path}" vector-effect=non-scaling-stroke />', label)


def _lanes(attempts: Sequence[Json]) -> dict[str, list[int]]:
    """By name of the lane, the attempts that it shows: nodes where there are few, else attempts."""
    nodes: dict[str, list[int]] = {}
    for attempt in attempts:
        for node in attempt["nodes"] or [f"attempt {attempt['number']}"]:
            nodes.setdefault(node, []).append(attempt["number"])
    if len(nodes) <= MOST_ROWS:
        return nodes
    lanes = {f"attempt {item['number']}": [item["number"]] for item in attempts}
    return dict(list(lanes.items())[-MOST_ROWS:])


def _numbers(attempts: Sequence[int]) -> str:
    return f"attempt{'s' if len(attempts) > 1 else ''} {', '.join(map(str, attempts))}"


def _summary(tiles: Sequence[Json]) -> str:
    states = list(dict.fromkeys(words(item["state"]) for item in tiles))
    return f"The run from {moment(tiles[0]['from'])} to {moment(tiles[-1]['to'])}: {', '.join(states)}"


def waterfall(productive: float, lost: Mapping[str, float], seconds_in_unit: float, unit: str) -> str:
    """The table with its bars. `seconds_in_unit`: GPU-seconds in one `unit`, e.g. 3600 for GPU-hours."""
    whole = productive + sum(lost.values())
    if whole <= 0:
        return "<p>No time has passed yet.</p>"
    rows: list[Json] = [_waterfall_row(Html("all time"), "", whole, 0.0, whole, seconds_in_unit)]
    left = whole
    seen = {state: value for state, value in lost.items() if value > whole * SEEN}
    for state, value in sorted(seen.items(), key=lambda item: -item[1]):
        left -= value
        rows.append(_waterfall_row(Html(swatch(state) + words(state)), state, value, left, whole, seconds_in_unit))
    named = Html(swatch("productive") + "productive")
    rows.append(_waterfall_row(named, "productive", productive, 0.0, whole, seconds_in_unit))
    columns = [
        column._replace(title=unit.partition("-")[2]) if column.key == "amount" else column for column in _COLUMNS
    ]
    return table(f"Where the {unit} went", columns, rows) + _meanings(["productive", *seen])


def _waterfall_row(name: Html, state: str, value: float, begin: float, whole: float, seconds_in_unit: float) -> Json:
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
