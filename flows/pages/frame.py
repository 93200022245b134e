"""What all report pages share: frame, tables, plots and numbers. Values in, HTML out; no clock, no file.

A page holds everything it shows: no script, no font, no picture from elsewhere, and its own policy forbids them. Plots
are inline SVG without text: they stretch to the width there is, and every label is HTML, so that it stays readable on a
phone and in print.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any, NamedTuple

from flows.pages.style import STYLE, patterns

Json = dict[str, Any]
PLOT_WIDTH, PLOT_HEIGHT = 1000.0, 160.0
"""Units of a plot's own coordinates; on the page it is as wide as there is room."""
UNKNOWN = "-"
"""Stands where nothing is known."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


class TableColumn(NamedTuple):
    """One column of a table."""

    key: str
    title: str
    number: bool = False
    long: bool = False
    """Holds sentences: it stays wide enough to read them."""


def document(title: str, body: Sequence[str]) -> str:
    """The whole page."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>{patterns()}<main>"
        f"{''.join(body)}</main></body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    """A part of the page under a heading."""
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def sentence(text: str, *, muted: bool = False) -> str:
    """A paragraph."""
    return f"<p{' class=muted' if muted else ''}>{escape(text)}</p>"


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """Numbers that are seen first: what, and how much."""
    cards = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs)
    return f"<dl class=facts>{cards}</dl>"


def table(caption: str, columns: Sequence[TableColumn], rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows under headings, in a box that scrolls by itself where the page is too narrow; cells may be `Html`."""
    if not rows:
        return ""
    head = "".join(
        f"<th scope=col{' class=n' if column.number else ''}>{escape(column.title)}</th>" for column in columns
    )
    body = "".join(f"<tr>{''.join(_cell(row.get(c.key), c) for c in columns)}</tr>" for row in rows)
    return (
        f'<div class=scroll tabindex=0 role=region aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(value: object, column: TableColumn) -> str:
    text = value if isinstance(value, Html) else escape(_text_of(value))
    kind = " class=n" if column.number else " class=long" if column.long else ""
    return f"<td{kind}>{text}</td>"


def _text_of(value: object) -> str:
    if value is None:
        return UNKNOWN
    return number(value) if isinstance(value, float) else str(value)


def plot(label: str, shapes: str, left: tuple[str, str], below: Sequence[str], height: float = PLOT_HEIGHT) -> str:
    """A plot with its labels.

    `label` is for readers who do not see it; `left`: upper and lower end of the vertical axis; `below`: from left to
    right.
    """
    return (
        f"<div class=plot><div class=left><span>{escape(left[0])}</span><span>{escape(left[1])}</span></div>"
        f'<svg role=img aria-label="{escape(label)}" viewBox="0 0 {PLOT_WIDTH:g} {height:g}" '
        f'preserveAspectRatio=none style="height:{height:g}px">{shapes}</svg>'
        f"<div class=below>{''.join(f'<span>{escape(text)}</span>' for text in below)}</div></div>"
    )


def line(points: Sequence[tuple[float, float]], kind: str) -> str:
    """A line through points of a plot's own coordinates, in the look of a class of the style."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="{kind}" points="{path}" vector-effect=non-scaling-stroke />'


def at(text: str) -> float:
    """Unix seconds of a timestamp of the document."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def moment(text: str | None) -> str:
    """A timestamp for people, in UTC to the second."""
    return UNKNOWN if text is None else f"{text[:10]} {text[11:19]} UTC"


def number(value: float) -> str:
    """Three or more digits that matter, thousands apart."""
    size = abs(value)
    if size >= 100 or size == 0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 1 else f"{value:.3g}"


def money(value: float, currency: str = "") -> str:
    """An amount with two places, thousands apart."""
    return f"{value:,.2f} {currency}".rstrip()


def plural(count: int, word: str) -> str:
    """A count and what is counted."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def share(value: float | None) -> str:
    """A part of a whole."""
    return UNKNOWN if value is None else f"{value:.1%}"


def duration(seconds: float | None) -> str:
    """A length of time in the two largest units."""
    if seconds is None:
        return UNKNOWN
    if seconds < 60:
        return f"{number(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days:,} d {hours} h" if hours else f"{days:,} d"
