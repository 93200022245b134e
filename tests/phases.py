"""Seconds of CI by phase, and whether each kept its limit: `python -m tests.phases build/phases.tsv <seconds of all>`.

What each is to take stands in `tests/budget.toml`, for the processors that prove this project; slower ones get as much
more as they are slower. What takes longer is named; what takes `SLACK` times as long fails, long before whoever ends CI
does: no good work is refused for a missing second.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
import tomllib
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tests.rotation import BUDGET
from tests.support.running.waiting import CALM_SECONDS, work

SLACK = 1.6
"""The same phase took up to 1.5 times as long on a machine of the same kind with neighbours."""

AT_WORK = 10
"""Pieces of work of each processor: so long that all of them work at the same time."""


def seconds_by_phase(rows: str) -> dict[str, float]:
    """Of the rows that `.ci/phase` writes, in the order in which the phases ended."""
    found: dict[str, float] = {}
    for row in rows.splitlines():
        name, seconds = row.split("\t")
        found[name] = found.get(name, 0.0) + float(seconds)
    return found


def too_long(took: Mapping[str, float], limits: Mapping[str, float], factor: float) -> list[str]:
    """One line for each phase that took longer than it may."""
    return [
        f"{name} took {took[name]:.0f} s, its limit is {limit * factor:.0f} s (tests/budget.toml)"
        for name, limit in limits.items()
        if took.get(name, 0.0) > limit * factor
    ]


def processor() -> float:
    """How many times slower this processor is than those of the limits, whatever runs beside us; 1 at least."""
    began = time.process_time()
    work()
    return max((time.process_time() - began) / CALM_SECONDS, 1.0)


def processors() -> float:
    """The same with all of them at work, as in the proof: two that share a core are slower together than alone."""
    count = os.cpu_count() or 1
    with ProcessPoolExecutor(count, get_context("spawn")) as pool:
        return statistics.mean(pool.map(_at_work, range(count)))


def _at_work(_: int) -> float:
    return statistics.mean(processor() for _ in range(AT_WORK))


def main(rows: str, whole: str) -> int:
    """Print the table; 1 where a phase took too long."""
    took = {**seconds_by_phase(Path(rows).read_text(encoding="utf-8")), "all": float(whole)}
    limits = tomllib.loads(BUDGET.read_text(encoding="utf-8"))["phases_seconds"]
    print("seconds by phase:")
    for name, seconds in took.items():
        print(f"{seconds:7.0f}  {name}" + (f"  of {limits[name]}" if name in limits else ""))
    factor = processors()
    for line in too_long(took, limits, factor):
        print(f"!!! longer than it is to take: {line}")
    late = too_long(took, limits, factor * SLACK)
    for line in late:
        print(f"!!! TOO LONG: {line}")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
