"""Text for people: times and spans, rows of numbers as characters, curves as SVG without outside resources. Pure."""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from statistics import median

from profiles.errors import ProfileError
from workflows.programs.runtime.text import uncoloured

_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))


def age(seconds: float) -> str:
    """A span for people, e.g. `4.2 min`."""
    whole = max(0.0, seconds)
    for unit, length in _UNITS:
        if whole >= 2 * length:
            return f"{whole / length:.1f} {unit}"
    return f"{whole:.0f} s"


def duration_text(seconds: float) -> str:
    """The same, with tenths of a second for short spans: `2.4 s`."""
    return f"{max(0.0, seconds):.1f} s" if seconds < 10.0 else age(seconds)


def first_names(names: Sequence[str], most: int) -> str:
    """Some names for people, and how many more there are: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def blame(culprit: Mapping[str, object]) -> str:
    """A culprit: node, rank, or both."""
    rank = "" if culprit["rank"] is None else f"rank {culprit['rank']}"
    return f"{culprit['node']} ({rank})" if culprit["node"] and rank else str(culprit["node"] or rank)


def timestamp(at: float | None) -> str | None:
    """RFC 3339 in UTC with milliseconds."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_MARKS = re.compile(r"[\\\[\]|*~]|(?<![^\W_])_|_(?![^\W_])|^[#>+-]")
"""What Markdown would obey: links, pictures, columns, emphasis, and what makes a line a heading, quotation or list."""
_NUMBERED = re.compile(r"^(\d+)([.)])")
"""The same of a numbered list."""


def markdown_text(value: object, most: int | None = None) -> str:
    """Others' words as Markdown that shows just them: one line, no link, no column of its own, no tag, no code.

    `most`: characters that are shown; None: all.
    """
    words = "" if value is None else " ".join(uncoloured(str(value)).split())[:most]
    marked = _NUMBERED.sub(r"\1\\\2", _MARKS.sub(lambda found: "\\" + found[0], words))
    return marked.replace("&", "&amp;").replace("<", "&lt;").replace("`", "'")


_AGO = re.compile(r"^([0-9]+(?:\.[0-9]+)?)([smhd])$")
_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def since_seconds(text: str, now: float, field: str = "--since") -> float:
    """Unix seconds of `30m` (ago) or an ISO date and time (UTC unless it says otherwise); 0 for "".

    `field` is what the error names.

    Raises:
        ProfileError: neither of them, or a moment that is still to come: nothing can be later.
    """
    if not text:
        return 0.0
    ago = _AGO.match(text)
    if ago:
        return max(0.0, now - float(ago.group(1)) * _UNIT_SECONDS[ago.group(2)])
    try:
        at = datetime.fromisoformat(text)
        seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ProfileError(field, f"{text!r} is neither an age like 30m, 6h, 7d nor a date and time") from None
    if seconds > now:
        raise ProfileError(field, f"{text!r} is still to come: name a time that is past, or an age like 6h")
    return max(0.0, seconds)


LEVELS = "▁▂▃▄▅▆▇█"
BROKEN = "x"
"""Stands for NaN and infinity: a loss that is none is never drawn as a number."""


def sparkline(values: Sequence[float | None], width: int, *, bottom: float | None = None) -> str:
    """The values in at most `width` characters; "" where there is nothing to draw.

    `bottom` is what the lowest level stands for; None: the lowest value, so that small changes show.
    Where there are more values than characters each one is the mean of its share; a share with a value that is no
    number is drawn as `x`. None is left out.
    """
    known = [value for value in values if value is not None]
    if not known or width <= 0:
        return ""
    shares = [_share(known, index, min(width, len(known))) for index in range(min(width, len(known)))]
    finite = [value for value in shares if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    low = low if bottom is None else min(low, bottom)
    return "".join(_level(value, low, high) for value in shares)


def _share(values: Sequence[float], index: int, count: int) -> float:
    part = values[len(values) * index // count : len(values) * (index + 1) // count]
    # The mean of quotients: a sum of large numbers may leave what a float can hold.
    return sum(value / len(part) for value in part)


def _level(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return BROKEN
    span = high / 2 - low / 2
    if span <= 0.0:
        return LEVELS[len(LEVELS) // 2]
    return LEVELS[min(len(LEVELS) - 1, int((value / 2 - low / 2) / span * len(LEVELS)))]


def bar(share: float, width: int) -> str:
    """A share of 0 to 1 as a bar of exactly `width` characters."""
    full = round(max(0.0, min(1.0, share)) * width)
    return "█" * full + "░" * (width - full)


WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 26, 30
POINTS = 300
"""Of one line at most: more than the picture has room for."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
"""Told apart by people who see colours otherwise (Okabe and Ito); lines carry their names as well."""
LARGEST = 1e30
"""A value beyond it is none: a loss that went wild has no scale."""
INK, PAPER, GRID = "#1b1f24", "#ffffff", "#d0d7de"


@dataclass(frozen=True)
class PlotLine:
    """One line of a picture."""

    name: str
    points: tuple[tuple[float, float], ...]
    """x and y in the order of x; NaN and infinity leave a gap."""
    dashed: bool = False


def picture(title: str, lines: Sequence[PlotLine], about: str) -> str:
    """The lines as an image in Markdown; a sentence where there is nothing to see.

    `about` is for readers who see no pictures.
    """
    finite = [line for line in map(_finite, lines) if line.points]
    if not finite:
        return f"{title}: nothing yet."
    data = b64encode(svg(title, finite).encode()).decode()
    return f"![{about}](data:image/svg+xml;base64,{data})"


def svg(title: str, lines: Sequence[PlotLine]) -> str:
    """The picture; every line holds at least one point and finite numbers only."""
    xs = _range([x for line in lines for x, _ in line.points])
    ys = _range([y for line in lines for _, y in line.points])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{PAPER}"/>',
        f'<text x="{LEFT}" y="17" fill="{INK}" font-weight="bold">{escape(title)}</text>',
    ]
    for y in _ticks(*ys):
        at = _scale(y, ys, HEIGHT - BOTTOM, TOP)
        parts.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end" fill="{INK}">{y:.4g}</text>')
    for x in _ticks(*xs):
        at = _scale(x, xs, LEFT, WIDTH - RIGHT)
        anchor = "end" if at > WIDTH - 60 else "middle"
        parts.append(f'<text x="{at:.1f}" y="{HEIGHT - 10}" text-anchor="{anchor}" fill="{INK}">{x:.6g}</text>')
    for number, line in enumerate(lines):
        parts += _drawn(line, COLOURS[number % len(COLOURS)], xs, ys)
    return "".join((*parts, *_legend(lines), "</svg>"))


def _drawn(line: PlotLine, colour: str, xs: tuple[float, float], ys: tuple[float, float]) -> list[str]:
    at = [(_scale(x, xs, LEFT, WIDTH - RIGHT), _scale(y, ys, HEIGHT - BOTTOM, TOP)) for x, y in _thinned(line.points)]
    if len(at) == 1:
        return [f'<circle cx="{at[0][0]:.1f}" cy="{at[0][1]:.1f}" r="3" fill="{colour}"/>']
    dash = ' stroke-dasharray="5 4"' if line.dashed else ""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
    return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>']


def _legend(lines: Sequence[PlotLine]) -> list[str]:
    named = [(number, line) for number, line in enumerate(lines) if line.name]
    parts: list[str] = []
    right = WIDTH - RIGHT
    for number, line in reversed(named[-6:]):
        colour, width = COLOURS[number % len(COLOURS)], 7 * len(line.name) + 22
        right -= width
        dash = ' stroke-dasharray="4 3"' if line.dashed else ""
        parts.append(f'<path d="M{right} 13h14" stroke="{colour}" stroke-width="3"{dash}/>')
        parts.append(f'<text x="{right + 18}" y="17" fill="{INK}">{escape(line.name)}</text>')
    return parts


def _finite(line: PlotLine) -> PlotLine:
    return PlotLine(
        line.name, tuple(at for at in line.points if all(abs(value) < LARGEST for value in at)), line.dashed
    )


SMALLEST = 1e-300
"""What is below it is nothing: halves and quarters of it vanish."""


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if high - low > SMALLEST:
        return low, high
    half = abs(low) / 2 if abs(low) > SMALLEST else 0.5
    return low - half, high + half


def _scale(value: float, span: tuple[float, float], begin: float, end: float) -> float:
    return begin + (end - begin) * ((value - span[0]) / (span[1] - span[0]))


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between the two, three to six of them where the range is wide enough."""
    raw = (high - low) / 4
    unit = 10.0 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    step = next((unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw), unit)
    first = math.ceil(low / step)
    count = min(8, math.floor(high / step) - first + 1)
    return [(first + index) * step for index in range(max(0, count))]


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most `POINTS`: of each stretch the median, so that one wild value does not draw the curve."""
    size = math.ceil(len(points) / POINTS)
    stretches = (points[begin : begin + size] for begin in range(0, len(points), size))
    return [(stretch[-1][0], median(y for _, y in stretch)) for stretch in stretches]
