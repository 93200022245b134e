"""One far off its peers: the measure that all observers of timings share."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

FEWEST = 3
"""Values below which nothing is said of any of them."""
FAR_OFF = 3.5
"""Robust z beyond which a value is far off its peers (fault tolerance study, 6.5)."""
SLOW_RATIO = 1.5
"""And so many times the median it must be: small differences between ranks are how training is."""
SMALLEST_SPREAD = 0.02
"""Share of the median that the spread is taken to be at least; else equal peers make every difference infinite."""


def slow(
    values: Mapping[int, float], *, low_is_slow: bool = False, ratio_at_least: float = SLOW_RATIO
) -> dict[int, float]:
    """Those far off the slow side of their peers, with how many times slower than the median each is.

    Args:
        values: one number a rank, all of one unit; times, or rates.
        low_is_slow: the numbers are rates or scores: the slow one has the smallest.
        ratio_at_least: so many times the median (of rates: that part of it) a slow one is off.
    """
    usable = {rank: value for rank, value in values.items() if value > 0}
    if len(usable) < FEWEST:
        return {}
    middle = statistics.median(usable.values())
    spread = statistics.median(abs(value - middle) for value in usable.values())
    spread = max(spread, SMALLEST_SPREAD * middle)
    found: dict[int, float] = {}
    for rank, value in usable.items():
        ratio = middle / value if low_is_slow else value / middle
        z = 0.6745 * (middle - value if low_is_slow else value - middle) / spread
        if z > FAR_OFF and ratio >= ratio_at_least:
            found[rank] = ratio
    return found if len(found) * 2 < len(usable) else {}
