"""One look for each state: a colour that people with any colour vision tell from its neighbours, and a pattern.

Colours are those of Okabe and Ito's palette. States that share a colour differ by their pattern, and every place that
shows one also names it in text.
"""

from __future__ import annotations

from dataclasses import dataclass

from profiles.vocabulary import Tile

GREEN, BLUE, SKY, ORANGE = "#009e73", "#0072b2", "#56b4e9", "#e69f00"
RED, PINK, YELLOW, GREY = "#d55e00", "#cc79a7", "#f0e442", "#999999"


@dataclass(frozen=True)
class Look:
    """How a state is drawn."""

    colour: str
    pattern: str = ""
    """`/`, `\\`, `x`, `.` or `-` in a darker ink over the colour; "": plain."""


LOOKS: dict[str, Look] = {
    Tile.PRODUCTIVE.value: Look(GREEN),
    Tile.CHECKPOINT_STALL.value: Look(BLUE),
    Tile.EVAL.value: Look(BLUE, "."),
    Tile.DATA_STALL.value: Look(YELLOW),
    Tile.STRAGGLER_LOSS.value: Look(YELLOW, "/"),
    Tile.QUEUE.value: Look(GREY, "."),
    Tile.PREFLIGHT.value: Look(SKY),
    Tile.INIT.value: Look(SKY, "/"),
    Tile.DETECT.value: Look(PINK),
    Tile.DIAGNOSE.value: Look(PINK, "x"),
    Tile.RESTART.value: Look(ORANGE),
    Tile.RESTORE.value: Look(ORANGE, "\\"),
    Tile.ROLLBACK.value: Look(RED, "x"),
    Tile.STANDBY.value: Look(GREY, "-"),
    Tile.PAUSED.value: Look(GREY, "x"),
    Tile.OTHER.value: Look(GREY),
}
_INK = 'stroke="#000" stroke-opacity=".55" stroke-width="1.2" fill="none"'
_STROKES = {
    "/": "M-1 9 9-1M-1 1 1-1M7 9 9 7",
    "\\": "M-1-1 9 9M7-1 9 1M-1 7 1 9",
    "x": "M0 0 8 8M0 8 8 0",
    ".": "M2 2h1.5M6 6h1.5",
    "-": "M0 4h8",
}


def fill_of(state: str) -> str:
    """What a shape of this state is filled with; needs `patterns` once on the page."""
    look = LOOKS.get(state, LOOKS[Tile.OTHER.value])
    return f"url(#p-{state})" if look.pattern and state in LOOKS else look.colour


def patterns() -> str:
    """The definitions that `fill_of` names: an SVG without size, once a page."""
    made = "".join(
        f'<pattern id="p-{state}" width="8" height="8" patternUnits="userSpaceOnUse">'
        f'<rect width="8" height="8" fill="{look.colour}"/><path d="{_STROKES[look.pattern]}" {_INK}/></pattern>'
        for state, look in LOOKS.items()
        if look.pattern
    )
    return f'<svg width="0" height="0" class="defs" aria-hidden="true" focusable="false"><defs>{made}</defs></svg>'


def swatch(state: str) -> str:
    """A small square in the look of a state; the text beside it says which."""
    rect = f'<rect width="14" height="14" fill="{fill_of(state)}"/>'
    return f'<svg class="swatch" width="14" height="14" aria-hidden="true" focusable="false">{rect}</svg>'
