"""Waiting for what processes do: one way to ask until it is so, and to say what never was; how long that may take.

Every deadline of a test is `patience(seconds)`: seconds on a calm machine such as the proof is made for. How much
slower this one is, is measured at the start, and once more where a deadline has passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

CALM_SECONDS = 0.05
"""What `work` takes on a processor of the machines that prove this project, with nothing beside it (measured)."""
LONGEST_FACTOR = 8.0
"""A machine that is slower than that has stopped; its tests would wait for hours."""


def work() -> int:
    """A fixed piece of work of a processor."""
    total = 0
    for number in range(2_000_000):
        total ^= number
    return total


def slowness(clock: Callable[[], float] = time.perf_counter) -> float:
    """How many times longer than on a calm machine work takes here and now; 1 at least: patience costs nothing."""
    began = clock()
    work()
    return min(max((clock() - began) / CALM_SECONDS, 1.0), LONGEST_FACTOR)


@cache
def slowness_at_start() -> float:
    """Measured once in each process."""
    return slowness()


def patience(seconds: float) -> float:
    """A deadline: so many seconds of a calm machine."""
    return seconds * slowness_at_start()


LIMIT_SECONDS = 120.0
"""Generous: what is broken never answers."""


def until(
    what: str,
    reached: Callable[[], Any],
    tell: Callable[[], str] = lambda: "",
    *,
    limit_seconds: float = LIMIT_SECONDS,
    every_seconds: float = 0.05,
) -> Any:
    """The first answer that is not empty; fails where none comes within the limit, with what `tell` says then.

    Args:
        what: for whoever reads the failure.
        reached: asked again and again.
        tell: what is known then.
        limit_seconds: on a calm machine.
        every_seconds: between two questions.
    """
    began = time.monotonic()
    limit = patience(limit_seconds)
    while not (found := reached()):
        if time.monotonic() - began > limit:
            limit = max(limit, limit_seconds * slowness())  # the machine may have become slower meanwhile
            assert time.monotonic() - began < limit, f"did not happen within {limit:.0f} s: {what}\n{tell()}"
        time.sleep(every_seconds)
    return found
