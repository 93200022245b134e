"""A row of numbers as a row of characters, as a terminal shows it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

LEVELS = "▁▂▃▄▅▆▇█"
BROKEN = "x"
"""Stands for NaN and infinity: a loss that is none is never drawn as a number."""


def sparkline(values: Sequence[float | None], width: int, *, bottom: float | None = None) -> str:
    """The values in at most `width` characters; "" where there is nothing to draw.

    Where there are more values than characters each one is the mean of its share; a share with a value that is no
    number is drawn as `x`. None is left out.

    Args:
        values: in their order.
        width: characters.
        bottom: what the lowest level stands for; None: the lowest value, so that small changes show.
    """
    told = [value for value in values if value is not None]
    if not told or width <= 0:
        return ""
    shares = [_share(told, index, min(width, len(told))) for index in range(min(width, len(told)))]
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
