"""What all report pages share: their templates, and how numbers and times are written. No clock, no other file."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.decisions.text import blame
from flows.pages.style import LOOKS, MEANINGS, fill_of
from workflows.programs.runtime.text import uncoloured

if TYPE_CHECKING:
    from jinja2 import Environment

Json = dict[str, Any]
PLOT_WIDTH, PLOT_HEIGHT = 1000.0, 160.0
"""Units of a plot's own coordinates; on the page it is as wide as there is room."""
UNKNOWN = "-"
"""Stands where nothing is known."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render(template: str, **values: object) -> str:
    """The whole page; every value is escaped."""
    shared = {"width": f"{PLOT_WIDTH:g}", "height": round(PLOT_HEIGHT), "looks": LOOKS, "policy": POLICY}
    return _environment().get_template(template).render(shared | values)


@cache
def _environment() -> Environment:
    # Here, not above: most reports are read in a terminal.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415

    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_as_text,
    )
    for written in (money, number, share, duration, moment, words, meaning, cell, blame, points):
        made.filters[written.__name__] = written
    made.filters["fill"] = fill_of
    return made


def _as_text(value: object) -> object:
    """Others' words without what steers a terminal: pages are read there too, and copied into one."""
    return uncoloured(value) if type(value) is str else value


def cell(value: object) -> str:
    """What stands in a table for a value."""
    if value is None:
        return UNKNOWN
    return number(value) if isinstance(value, float) else str(value)


def words(state: str) -> str:
    """A state as it is written for people."""
    return state.replace("_", " ")


def meaning(state: str) -> str:
    """What a state means; "" for one that we do not know."""
    return MEANINGS.get(state, "")


def points(places: list[tuple[float, float]]) -> str:
    """Points of a line or an area, as SVG wants them."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


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
