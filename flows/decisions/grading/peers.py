"""A node against others of the same hardware: median and MAD of everybody but itself. Pure.

The node is left out of what it is compared with, so a better figure of its own never makes its limit stricter. Nodes
that failed a limit of their own are no measure for others, and a check that is not wholly known neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flows.decisions.grading.columns import Column, Flags, Floats, Stage, significant
from flows.decisions.grading.model import Majority, Peers

MAD_TO_SIGMA = 1.4826
"""Of a normal distribution the standard deviation is so many times the median absolute deviation."""


def by_peers(column: Column, limit: Peers, sound: Flags) -> Stage:
    """What the peers say.

    Args:
        column: one check.
        limit: how far off is too far.
        sound: [nodes] those that may serve as a measure: they kept their own limits and are wholly known.
    """
    sign = 1.0 if column.rule.direction == "higher_is_better" else -1.0
    usable = sound & np.isfinite(column.values)
    bound, middle = np.full_like(column.values, np.nan), np.full_like(column.values, np.nan)
    count = np.zeros(len(column.values), dtype=np.int64)
    for members in _kinds(column.hardware, usable):
        if len(members) <= limit.least:
            continue
        bound[members], middle[members] = others(sign * column.values[members], limit)
        count[members] = len(members) - 1
    spoke = np.isfinite(bound)
    fails = spoke & (sign * column.values < bound)
    middle = sign * middle + 0.0  # nobody wants to read of a median of -0

    def words(index: int) -> str:
        off = _percent(float(column.values[index]), float(middle[index]))
        unit = f" {column.rule.unit}".rstrip()
        return f"{off}the median {middle[index]:g}{unit} of {count[index]} peers"

    return Stage(fails, spoke, bound=significant(sign * bound), words=words)


def by_majority(column: Column, limit: Majority, sound: Flags) -> Stage:
    """What the words of the peers say; the arguments are those of `by_peers`."""
    spoke = np.zeros(len(column.cells), dtype=np.bool_)
    fails, most = np.zeros_like(spoke), dict[int, tuple[str, int]]()
    for members in _kinds(column.hardware, sound & np.isfinite(column.values)):
        indices: list[int] = members.tolist()
        own = {index: cell.word for index in indices if (cell := column.cells[index]) is not None}
        tally = Counter(own.values())
        for index, word in own.items():
            # Whoever is left out, only the two most frequent words can be most of the others.
            rest = [(other, count - (other == word)) for other, count in tally.most_common(2)]
            usual, count = max(rest, key=lambda item: item[1])
            if len(own) > limit.least and 2 * count > len(own) - 1:
                spoke[index], fails[index], most[index] = True, usual != word, (usual, count)

    def words(index: int) -> str:
        usual, count = most[index]
        return f"{count} of its peers say {usual}"

    return Stage(fails, spoke, words=words)


def others(values: Floats, limit: Peers) -> tuple[Floats, Floats]:
    """For each of these figures the least that the others allow, and the median of the others.

    Args:
        values: [at least 2] finite, larger is better.
        limit: z and the floor of the spread.

    Returns:
        [same shape] both; not finite where figures are so large that their difference is.
    """
    order = np.argsort(values, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    with np.errstate(over="ignore", invalid="ignore"):
        middle = _median_without(values[order], rank)
        spread = np.full_like(middle, np.nan)
        for one in np.unique(middle):  # at most three: which one is left out moves the median by one place
            mine = middle == one
            off = np.abs(values - one)
            near = np.argsort(off, kind="stable")
            place = np.empty_like(near)
            place[near] = np.arange(len(near))
            spread[mine] = _median_without(off[near], place[mine])
        floor = limit.spread_floor_share * np.abs(middle)
        return middle - limit.z * np.maximum(MAD_TO_SIGMA * spread, floor), middle


def _median_without(ordered: Floats, left_out: NDArray[np.int64]) -> Floats:
    """Median of sorted figures without the one at each of these places; equal figures have exactly that median."""
    count = len(ordered) - 1
    low, high = (count - 1) // 2, count // 2
    below = ordered[low + (left_out <= low)]
    above = ordered[high + (left_out <= high)]
    return below + (above - below) / 2.0


def _kinds(hardware: Sequence[str], usable: Flags) -> list[NDArray[np.int64]]:
    """Indices of the usable nodes of each kind of hardware."""
    if len(set(hardware)) == 1:
        return [np.flatnonzero(usable)]
    found: dict[str, list[int]] = {}
    for index in np.flatnonzero(usable).tolist():
        found.setdefault(hardware[index], []).append(index)
    return [np.array(members, dtype=np.int64) for members in found.values()]


def _percent(value: float, middle: float) -> str:
    if not middle:
        return "far from "
    off = 100.0 * (value - middle) / abs(middle)
    return f"{abs(off):.1f} % {'above' if off > 0 else 'below'} "
