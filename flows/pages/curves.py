"""Plots of a run over steps and over time: loss, throughput, age of the newest checkpoint, productive share by hour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from flows.decisions.report import Curve
from flows.pages.frame import PLOT_HEIGHT, PLOT_WIDTH, at, duration, line, moment, number, plot, sentence

Json = dict[str, Any]
Point = tuple[float, float]
BUCKETS = 400
"""A line is thinned to the smallest and the largest value of so many parts of its length."""
RATE_BINS = 120
_MARGIN = 6.0


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
