"""Where within an attempt its ranks began again in place: from the numbers of steps, and from what was told."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from workflows.records import StepRow


def begins_again(rows: Sequence[StepRow], restarts: Sequence[float]) -> list[bool]:
    """For each step whether the ranks began again before it: its number was there already, or a restart was told of.

    A restart that was told of beside such a fall belongs to it: clocks of nodes differ by less than a step.

    Args:
        rows: steps of one attempt in order of time.
        restarts: when restarts in place were decided, Unix seconds, in order.
    """
    falls = [index > 0 and row.step <= rows[index - 1].step for index, row in enumerate(rows)]
    times = [row.at for row in rows]
    again = list(falls)
    for at in restarts:
        index = bisect_left(times, at)
        if 0 < index < len(rows) and not any(falls[max(0, index - 1) : index + 2]):
            again[index] = True
    return again


def noticed(restarts: Sequence[float], after: float, until: float) -> float | None:
    """When the first fault in (after, until] was noticed for which the ranks began again; None: there was none."""
    index = bisect_right(restarts, after)
    return restarts[index] if index < len(restarts) and restarts[index] <= until else None
