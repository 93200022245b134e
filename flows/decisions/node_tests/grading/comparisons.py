"""A node against others of the same hardware, and against its own past. Pure.

Peers: median and MAD of every node but the judged one, so a better figure of its own never makes its limit stricter.
Nodes that failed a limit of their own are no measure for others, nor is a check that is not wholly known. Past: sudden
falls, slow drifts, and checks that pass and fail in turn, from the figures and outcomes of earlier verdicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flows.decisions.node_tests.grading.columns import CheckColumn, Flags, Floats, Stage, significant
from flows.decisions.node_tests.grading.history_arrays import DAY_SECONDS, Bounds, ends_of, lay_figures, tables_of
from flows.decisions.node_tests.grading.model import CheckRule, Drift, Fall, Majority, Peers
from workflows.model.records import VerdictRecord
from workflows.model.verdict_history import BAD, GOOD, Looks, looks_of

MAD_TO_SIGMA = 1.4826
"""Of a normal distribution the standard deviation is so many times the median absolute deviation."""

Codes = NDArray[np.int8]

DAYS = 30
"""So far back the past reaches, further only where a limit of a check does."""
OUTCOMES = 10
"""So many of a check's last ends are looked at for flapping."""
FLAPS = 3
"""A check that fell from pass to fail so often within them is not trusted, whatever it says now. gpud calls a link
flapping from three times on."""
LEAST_GOOD = 3
"""Fewer good figures than this are no past: the median of two is moved by either."""
LEAST_LOOKS = 11
"""Figures that the rank test needs: up to ten its normal approximation does not hold (Gilbert, 1987: tables)."""


def by_peers(column: CheckColumn, limit: Peers, sound: Flags) -> Stage:
    """What the peers say.

    `sound`: [nodes] those that may serve as a measure: they kept their own limits and are wholly known.
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


def by_majority(column: CheckColumn, limit: Majority, sound: Flags) -> Stage:
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

    `values`: [at least 2] finite, larger is better.

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


@dataclass(frozen=True, eq=False)
class History:
    """What is known of the past of many nodes."""

    nodes: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    values: Floats | None = None
    """[checks, days, nodes] oldest first: figures of checks that passed, in the rule's unit; NaN: none that day."""
    outcomes: Codes | None = None
    """[checks, looks, nodes] oldest first: 1 passed, -1 failed (also where it was to be repeated), 0 nothing known."""

    @cached_property
    def places(self) -> dict[str, int]:
        """Node -> where it stands."""
        return {node: index for index, node in enumerate(self.nodes)}


@dataclass(frozen=True, eq=False)
class Past:
    """One check's past, of the nodes in the order in which they are judged."""

    values: Floats
    """[days, nodes]"""
    outcomes: Codes
    """[looks, nodes]"""


def past_of(history: History, check: str, nodes: tuple[str, ...]) -> Past:
    """The past of one check; nodes and checks that it does not know have none."""
    if check not in history.checks:
        return Past(np.full((0, len(nodes)), np.nan), np.zeros((0, len(nodes)), dtype=np.int8))
    row = history.checks.index(check)
    values = np.full((0, len(history.nodes)), np.nan) if history.values is None else history.values[row]
    outcomes = np.zeros((0, len(history.nodes)), dtype=np.int8) if history.outcomes is None else history.outcomes[row]
    if nodes == history.nodes:
        return Past(values, outcomes)
    place = np.array([history.places.get(node, -1) for node in nodes], dtype=np.int64)
    known = place >= 0
    figures, ended = np.full((len(values), len(nodes)), np.nan), np.zeros((len(outcomes), len(nodes)), dtype=np.int8)
    figures[:, known], ended[:, known] = values[:, place[known]], outcomes[:, place[known]]
    return Past(figures, ended)


def by_fall(column: CheckColumn, past: Past, limit: Fall) -> Stage:
    """What the node's own last good figures say."""
    values = past.values[-limit.days :]
    good = np.isfinite(values)
    count = good.sum(axis=0)
    usual = _median(_last(values, good, limit.good))
    usual[(count < LEAST_GOOD) | ~(usual > 0)] = np.nan  # per cent of nothing, or of less, mean nothing
    bound = usual * (1.0 - _sign(column) * limit.percent / 100.0)
    spoke = np.isfinite(bound) & np.isfinite(column.values)
    fails = spoke & (_sign(column) * column.values < _sign(column) * bound)

    def words(index: int) -> str:
        off = 100.0 * abs(float(column.values[index]) / float(usual[index]) - 1.0)
        side = "below" if column.rule.direction == "higher_is_better" else "above"
        unit = f" {column.rule.unit}".rstrip()
        return f"{off:.1f} % {side} {usual[index]:g}{unit}, the median of its last {min(limit.good, count[index])}"

    return Stage(fails, spoke, bound=significant(bound), words=words)


def by_drift(column: CheckColumn, past: Past, limit: Drift) -> Stage:
    """What the trend of the node's figures says, this one included.

    Mann-Kendall without its correction for ties: those make the true variance smaller, so this accuses less, and a
    better figure never makes the trend look worse.
    """
    sign = _sign(column)
    series = np.vstack((past.values[-DAYS:], column.values[np.newaxis]))
    good = np.isfinite(series)
    count = good.sum(axis=0)
    spoke = (count >= LEAST_LOOKS) & good[-1]
    z = _trend(sign * series, count)
    chosen = np.flatnonzero(spoke & (z <= -limit.z))
    early, late = np.full(len(z), np.nan), np.full(len(z), np.nan)
    if len(chosen):
        part, kept, third = series[:, chosen], good[:, chosen], count[chosen] // 3
        early[chosen] = _median(_last(part[::-1], kept[::-1], third))
        late[chosen] = _median(_last(part, kept, third))
    bound = np.where(early > 0, early * (1.0 - sign * limit.percent / 100.0), np.nan)
    fails = sign * late <= sign * bound

    def words(index: int) -> str:
        off, third = 100.0 * abs(late[index] / early[index] - 1.0), count[index] // 3
        return (
            f"slowly worse: the median of its last {third} figures is {off:.1f} % off that of the {third} first ones "
            f"of {count[index]} (rank test z {z[index]:.1f})"
        )

    return Stage(fails, spoke, bound=significant(bound), words=words)


def falls(past: Past, now: Codes) -> NDArray[np.int64]:
    """[nodes] how often the check went from pass to fail in its last tests, this one (`now`) included."""
    recent = np.vstack((past.outcomes[-(OUTCOMES - 1) :], now[np.newaxis]))
    last, found = np.zeros(len(now), dtype=np.int8), np.zeros(len(now), dtype=np.int64)
    for ended in recent:
        found += (last == GOOD) & (ended == BAD)
        last = np.where(ended != 0, ended, last)
    return found


def failed_last(past: Past) -> Flags:
    """[nodes] whether the newest known end of the check was a failure: a failure now is the second in a row."""
    last = np.zeros(past.outcomes.shape[1], dtype=np.int8)
    for ended in past.outcomes:
        last = np.where(ended != 0, ended, last)
    return last == BAD


def reach_days(rules: Iterable[CheckRule]) -> int:
    """How far back the past of these checks reaches."""
    falls = [limit.days for rule in rules for limit in rule.limits if isinstance(limit, Fall)]
    return max([DAYS, *falls])


def history_of(
    records: Iterable[VerdictRecord],
    rules: Sequence[CheckRule],
    nodes: Sequence[str],
    now: float,
    since: Mapping[str, float] | None = None,
) -> History:
    """The past from verdicts; for a fleet `laid` reads the same from what the ledger keeps packed.

    `records`: of one cluster, in any order, but of two at the same time the earlier one comes first; figures in other
    units and what is dated later than `now` are left out. `since`: node -> Unix seconds; what was before, a repair say,
    speaks of another machine.
    """
    return laid(looks_of(records), rules, nodes, now, since)


def laid(
    looks: Sequence[Looks],
    rules: Sequence[CheckRule],
    nodes: Sequence[str],
    now: float,
    since: Mapping[str, float] | None = None,
) -> History:
    """The past from packed looks of the last `reach_days`. Arguments as of `history_of`."""
    days, begun = reach_days(rules), since or {}
    shape = (len(rules), days, len(nodes))
    history = History(tuple(nodes), tuple(rule.name for rule in rules), np.full(shape, np.nan))
    first = now - days * DAY_SECONDS
    bounds = Bounds(np.array([max(first, begun.get(node, first)) for node in nodes], dtype=np.float64), now)
    tables = tables_of(looks, {rule.name: rule.unit for rule in rules}, history.places, bounds)
    if history.values is not None:
        lay_figures(tables, history.values)
    return replace(history, outcomes=ends_of(tables, (len(rules), OUTCOMES, len(nodes))))


def _sign(column: CheckColumn) -> float:
    return 1.0 if column.rule.direction == "higher_is_better" else -1.0


def _last(values: Floats, good: Flags, most: int | NDArray[np.int64]) -> Floats:
    """The same figures, all but the last `most` good ones of each node made NaN."""
    if isinstance(most, int) and bool(good[-most:].all()):
        recent: Floats = values[-most:]
        return recent
    behind = np.cumsum(good[::-1], axis=0, dtype=np.int16)[::-1]
    kept: Floats = np.where(good & (behind <= most), values, np.nan)
    return kept


def _median(values: Floats) -> Floats:
    """[nodes] median of the finite figures of [days, nodes]; NaN where there are none."""
    nodes: int = values.shape[1]
    if not len(values):
        return np.full(nodes, np.nan)
    ordered: Floats = np.sort(values, axis=0)  # NaN goes last
    count = np.isfinite(ordered).sum(axis=0)
    lanes: NDArray[np.intp] = np.arange(nodes, dtype=np.intp)
    low, high = ordered[np.maximum(count - 1, 0) // 2, lanes], ordered[np.minimum(count // 2, len(values) - 1), lanes]
    middle: Floats = low + (high - low) / 2.0
    return np.where(count > 0, middle, np.nan)


def _trend(series: Floats, count: NDArray[np.int64]) -> Floats:
    """[nodes] z of Mann-Kendall's rank test, with the correction for continuity; below 0: it falls."""
    score = np.zeros(series.shape[1], dtype=np.int32)
    for index in range(len(series) - 1):
        later, one = series[index + 1 :], series[index]
        score += np.add.reduce((later > one).view(np.int8), axis=0, dtype=np.int16)
        score -= np.add.reduce((later < one).view(np.int8), axis=0, dtype=np.int16)
    deviation = np.sqrt(count * (count - 1.0) * (2.0 * count + 5.0) / 18.0)
    return np.where(count > 1, (score - np.sign(score)) / np.maximum(deviation, 1.0), 0.0)
