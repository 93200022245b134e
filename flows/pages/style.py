"""One colour and pattern for each state of a run's time, and what each means.

The colours are Okabe and Ito's palette, which people with any colour vision can tell apart. States that share a colour
differ by their pattern, and every place that shows one also names it in text.
"""

from __future__ import annotations

from dataclasses import dataclass

from profiles.vocabulary import Tile

GREEN, BLUE, SKY, ORANGE = "#009e73", "#0072b2", "#56b4e9", "#e69f00"
RED, PINK, YELLOW, GREY = "#d55e00", "#cc79a7", "#f0e442", "#999999"


_STROKES = {
    "/": "M-1 9 9-1M-1 1 1-1M7 9 9 7",
    "\\": "M-1-1 9 9M7-1 9 1M-1 7 1 9",
    "x": "M0 0 8 8M0 8 8 0",
    ".": "M2 2h1.5M6 6h1.5",
    "-": "M0 4h8",
}


@dataclass(frozen=True)
class Look:
    """How a state is drawn."""

    colour: str
    pattern: str = ""
    """`/`, `\\`, `x`, `.` or `-` in a darker ink over the colour; "": plain."""

    @property
    def stroke(self) -> str:
        """The pattern as a path of SVG, in a square of 8 by 8."""
        return _STROKES[self.pattern]


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


def fill_of(state: str) -> str:
    """What a shape of this state is filled with; the page defines the patterns."""
    look = LOOKS.get(state, LOOKS[Tile.OTHER.value])
    return f"url(#p-{state})" if look.pattern and state in LOOKS else look.colour
