"""Plots of a run (loss, throughput, checkpoint age, productive share), its timeline, and its wall time as bars.

Everything here is geometry and words; the templates draw it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, NamedTuple

from flows.decisions.accounting.report import Curve
from flows.decisions.views.status import troubles_of
from flows.pages.frame import PLOT_HEIGHT, PLOT_WIDTH, at, duration, moment, number, share, words
from flows.pages.style import RED, fill_of
from workflows.programs.progress.pace import BEAT_SECONDS

Json = dict[str, Any]
Point = tuple[float, float]
BUCKETS = 400
"""A line is thinned to the smallest and the largest value of so many parts of its length."""
RATE_BINS = 120
DAY = 86400.0
_MARGIN = 6.0


class Bar(NamedTuple):
    """A rectangle in a plot's own coordinates."""

    x: float
    width: float
    fill: str = ""
    title: str = ""
    height: float = PLOT_HEIGHT
    """Of its upper edge above the plot's lower one."""
    depth: float = 0.0
    """From its upper edge to its lower one; 0: it stands on the plot's lower edge."""


class Line(NamedTuple):
    """A line."""

    points: Sequence[Point]
    kind: str = "a"
    """Its class in the style: `a`, or `b` for what was thrown away."""


class Plot(NamedTuple):
    """A plot with its labels."""

    label: str
    """For readers who do not see it."""
    left: tuple[str, str]
    """Upper and lower end of the vertical axis."""
    below: tuple[str, str]
    """Left and right end of the horizontal one."""
    lines: Sequence[Line] = ()
    area: Sequence[Point] = ()
    bands: Sequence[Bar] = ()
    """Behind everything else, as high as the plot."""
    bars: Sequence[Bar] = ()
    marks: Sequence[float] = ()
    """Where dashed verticals stand."""


class LossPlot(NamedTuple):
    """Loss over steps; steps that were thrown away as a second line."""

    plot: Plot | None
    """None: fewer than two steps reported one."""
    broken: int
    """Steps whose loss is no number; they are not drawn."""
    thrown_away: str = ""
    """How many steps were done again, and between which; "": none."""


def loss(curve: Curve) -> LossPlot:
    """Loss over steps."""
    points = [(step, value, kept) for step, _, value, kept in curve if value is not None and math.isfinite(value)]
    broken = sum(value is not None and not math.isfinite(value) for _, _, value, _ in curve)
    if len(points) < 2:
        return LossPlot(None, broken)
    steps, values = [step for step, _, _ in points], [value for _, value, _ in points]
    lost = [step for step, _, _, kept in curve if not kept]
    scale = _Scale(min(steps), max(steps), min(values), max(values))
    lines: list[Line] = []
    for kept, found in groupby(points, key=lambda point: point[2]):
        piece = thin([scale(step, value) for step, value, _ in found])
        lines.append(
            Line(piece if len(piece) > 1 else [piece[0], (piece[0][0] - 2, piece[0][1])], "a" if kept else "b")
        )
    plot = Plot(
        f"Loss over steps {min(steps)} to {max(steps)}: first {number(values[0])}, last {number(values[-1])}",
        (number(max(values)), number(min(values))),
        (f"step {min(steps):,}", f"step {max(steps):,}"),
        lines,
        bands=[_band(scale, first, last) for first, last in _ranges(lost)],
    )
    again = f"{len(lost):,} steps, between {min(lost):,} and {max(lost):,}" if lost else ""
    return LossPlot(plot, broken, again)


def _ranges(steps: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbouring steps as ranges."""
    found: list[tuple[int, int]] = []
    for step in sorted(set(steps)):
        if found and step <= found[-1][1] + 1:
            found[-1] = (found[-1][0], step)
        else:
            found.append((step, step))
    return found


def _band(scale: _Scale, first: int, last: int) -> Bar:
    left, right = max(0.0, scale(first - 0.5, 0.0)[0]), min(PLOT_WIDTH, scale(last + 0.5, 0.0)[0])
    return Bar(left, max(1.0, right - left))


def throughput(curve: Curve) -> Plot | None:
    """Steps a second over time, thrown away ones too; None: fewer than three steps were made."""
    times = [when for _, when, _, _ in curve]
    if len(times) < 3 or times[-1] <= times[0]:
        return None
    bins = max(1, min(RATE_BINS, int((times[-1] - times[0]) / BEAT_SECONDS)))
    width = (times[-1] - times[0]) / bins
    counts = [0] * bins
    for when in times:
        counts[min(bins - 1, int((when - times[0]) / width))] += 1
    rates = [count / width for count in counts]
    most, busy = number(max(rates)), sorted(rate for rate in rates if rate > 0)
    scale = _Scale(0, bins, 0.0, max(rates))
    tops = [scale(place, rate) for index, rate in enumerate(rates) for place in (index, index + 1)]
    floor = PLOT_HEIGHT - _MARGIN
    return Plot(
        f"Steps a second over time: at most {most}, median {number(busy[len(busy) // 2])} while training",
        (f"{most}/s", "0/s"),
        (_clock(times[0]), _clock(times[-1])),
        area=[(0.0, floor), *tops, (PLOT_WIDTH, floor)],
    )


def checkpoint_age(document: Json) -> Plot | None:
    """How old the newest proven checkpoint was: what a failure at that moment would have cost. None: there is none."""
    saved = sorted(at(item["at"]) for item in document["checkpoints"] if item["verdict"] == "pass")
    if not saved or not document["tiles"]:
        return None
    begin, end = at(document["tiles"][0]["from"]), at(document["tiles"][-1]["to"])
    newest, points = begin, [(begin, 0.0)]
    for when in (item for item in saved if begin <= item <= end):
        points += [(when, when - newest), (when, 0.0)]
        newest = when
    points.append((end, end - newest))
    oldest = max(age for _, age in points)
    scale = _Scale(begin, end, 0.0, oldest)
    moments = [at(item["at"]) for item in troubles_of(document["incidents"])]
    return Plot(
        f"Age of the newest proven checkpoint over time: at most {duration(oldest)}, now {duration(points[-1][1])}",
        (duration(oldest), "0 s"),
        (_clock(begin), _clock(end)),
        [Line(thin([scale(when, age) for when, age in points]))],
        marks=[scale(when, 0)[0] for when in moments if begin <= when <= end],
    )


def share_by_hour(document: Json) -> Plot | None:
    """The productive share of the last hour, over the run; None: it was too short."""
    rows: list[Json] = document["ettr_by_hour"]
    if len(rows) < 2:
        return None
    scale = _Scale(at(rows[0]["at"]), at(rows[-1]["at"]), 0.0, 1.0)
    worst = min(row["ettr"] for row in rows)
    return Plot(
        f"Productive share of the hour before: at least {worst:.0%}, at the end {rows[-1]['ettr']:.0%}",
        ("100%", "0%"),
        (moment(rows[0]["at"]), moment(rows[-1]["at"])),
        [Line([scale(at(row["at"]), row["ettr"]) for row in rows])],
    )


def by_day(account: Json) -> Plot | None:
    """Failures of each day as bars; None: there was none."""
    days: list[Json] = account["incidents_by_day"]
    if not days:
        return None
    first = at(account["since"]) // DAY
    count = max(1, round(at(account["until"]) // DAY - first) + 1)
    sums = {item["day"]: sum(item["classes"].values()) for item in days}
    most, width = max(sums.values()), PLOT_WIDTH / count
    worst = max(sums, key=lambda day: sums[day])
    return Plot(
        f"Failures of each day: {sum(sums.values())} on {len(sums)} of {count} days, most on {worst} ({most})",
        (str(most), "0"),
        (account["since"][:10], account["until"][:10]),
        bars=[
            Bar(
                (at(day + "T00:00:00Z") // DAY - first) * width,
                max(0.5, width * 0.85),
                RED,
                f"{day}: {value}",
                PLOT_HEIGHT * value / most,
            )
            for day, value in sums.items()
        ],
    )


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


CELLS = 400
"""A bar is so many cells; each shows what took most of it."""
MOST_ROWS = 24
"""Nodes with a bar of their own; of larger gangs the attempts are shown."""
SEEN = 1e-5
"""Smaller shares of all time are rounding, and not shown."""


class Block(NamedTuple):
    """Neighbouring cells of one attempt in one state."""

    first: int
    last: int
    attempt: int
    state: str


class BarRow(NamedTuple):
    """A bar over the whole time, with its name beside it."""

    name: str
    label: str
    """For readers who do not see it."""
    bars: Sequence[Bar] = ()
    marks: Sequence[float] = ()


class Timeline(NamedTuple):
    """The bars of a run, its nodes below it, and the legend."""

    rows: Sequence[BarRow]
    begin: str
    end: str
    legend: Sequence[tuple[str, float]]
    """The states that occur and their seconds, in the order of their share."""


def timeline(document: Json) -> Timeline | None:
    """The bars of a run; None: nothing has happened yet."""
    tiles: list[Json] = document["tiles"]
    if not tiles:
        return None
    begin, end = at(tiles[0]["from"]), at(tiles[-1]["to"])
    blocks = blocks_of(tiles, begin, end)
    rows = [_bar_row("run", blocks, _summary(tiles))]
    if incidents := troubles_of(document["incidents"]):
        rows.append(_incident_row(incidents, begin, end))
    rows += [
        _bar_row(name, [block for block in blocks if block.attempt in attempts], f"{name}: in {_numbers(attempts)}")
        for name, attempts in _lanes(document["attempts"]).items()
    ]
    return Timeline(rows, tiles[0]["from"], tiles[-1]["to"], _legend(tiles))


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


def _legend(tiles: Sequence[Mapping[str, Any]]) -> list[tuple[str, float]]:
    sums: dict[str, float] = {}
    for item in tiles:
        sums[item["state"]] = sums.get(item["state"], 0.0) + at(item["to"]) - at(item["from"])
    whole = sum(sums.values())
    return sorted(((state, took) for state, took in sums.items() if took > whole * SEEN), key=lambda pair: -pair[1])


def _bar_row(name: str, blocks: Sequence[Block], label: str) -> BarRow:
    unit = PLOT_WIDTH / CELLS
    bars = [
        Bar(b.first * unit, (b.last - b.first + 1) * unit, fill_of(b.state), f"attempt {b.attempt}: {words(b.state)}")
        for b in blocks
    ]
    return BarRow(name, label, bars)


def _incident_row(incidents: Sequence[Json], begin: float, end: float) -> BarRow:
    scale = PLOT_WIDTH / max(end - begin, 1e-9)
    places = [min(PLOT_WIDTH, max(0.0, (at(item["at"]) - begin) * scale)) for item in incidents]
    label = f"{len(incidents)} incidents, at {', '.join(moment(item['at']) for item in incidents[:10])}"
    return BarRow("incidents", label, marks=places)


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


class Waterfall(NamedTuple):
    """A table with bars: all time, what was lost, what is left of it."""

    unit: str
    """Such as `GPU-hours`."""
    rows: Sequence[Json]
    """`state` ("" for all time), `amount`, `share` and `bar`; empty: no time has passed yet."""
    states: Sequence[str]


def waterfall(productive: float, lost: Mapping[str, float], seconds_in_unit: float, unit: str) -> Waterfall:
    """Bars that go down to the productive part; one `unit`, e.g. `GPU-hours`, has `seconds_in_unit` GPU-seconds."""
    whole = productive + sum(lost.values())
    if whole <= 0:
        return Waterfall(unit, (), ())

    def row(state: str, value: float, begin: float) -> Json:
        width = max(1.5, value / whole * PLOT_WIDTH)
        x = min(begin / whole * PLOT_WIDTH, PLOT_WIDTH - width)
        bar = Bar(x, width, fill_of(state) if state else "currentColor")
        return {"state": state, "amount": number(value / seconds_in_unit), "share": share(value / whole), "bar": bar}

    seen = {state: value for state, value in lost.items() if value > whole * SEEN}
    rows, left = [row("", whole, 0.0)], whole
    for state, value in sorted(seen.items(), key=lambda item: -item[1]):
        left -= value
        rows.append(row(state, value, left))
    rows.append(row("productive", productive, 0.0))
    return Waterfall(unit, rows, ("productive", *seen))
