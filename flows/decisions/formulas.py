"""Formulas of reliability: mean time to failure, expected productive share, checkpoint interval, spares.

Source of each: fault tolerance notes, 6.2 to 6.4, and the papers named there. Times in seconds unless a name says else.
"""

from __future__ import annotations

import math

SECONDS_PER_DAY = 86400.0


def mttf_hours(nodes: int, failures_per_node_day: float) -> float:
    """Mean time to failure of a gang in hours: 1 / (N r)."""
    if nodes <= 0 or failures_per_node_day <= 0:
        return math.inf
    return 24.0 / (nodes * failures_per_node_day)


def expected_ettr(
    nodes: int,
    failures_per_node_day: float,
    restart_seconds: float,
    interval_seconds: float,
    stall_seconds: float = 0.0,
    queue_seconds: float = 0.0,
) -> float:
    """Expected productive share of a long run, 0 to 1 (closed form of the reliability study, with our queue term).

    Pessimistic when the checkpoint interval comes near the mean time to failure.

    Args:
        nodes: nodes of the gang.
        failures_per_node_day: failures per node and day.
        restart_seconds: from failure to training again: detection, diagnosis, replacement, start, restore.
        interval_seconds: between checkpoints.
        stall_seconds: training stands still so long for one save.
        queue_seconds: waiting for nodes after each failure.

    Raises:
        ValueError: failures come faster than restarts; no share can be expected.
    """
    rate = nodes * failures_per_node_day / SECONDS_PER_DAY
    wasted = rate * (restart_seconds + interval_seconds / 2)
    if wasted >= 1:
        raise ValueError(
            f"failures every {1 / rate:.0f} s leave no time: restart_seconds + interval_seconds / 2 must be smaller"
        )
    return (1 - wasted) / ((1 + stall_seconds / interval_seconds) * (1 + rate * queue_seconds))


def young_interval_seconds(stall_seconds: float, mttf_seconds: float) -> float:
    """Young's first order checkpoint interval, the save excluded: sqrt(2 d M)."""
    return math.sqrt(2 * stall_seconds * mttf_seconds)


def daly_interval_seconds(stall_seconds: float, mttf_seconds: float) -> float:
    """Daly's higher order checkpoint interval, the save excluded; the mean time to failure where saves take longer."""
    if stall_seconds >= 2 * mttf_seconds:
        return mttf_seconds
    ratio = stall_seconds / (2 * mttf_seconds)
    return math.sqrt(2 * stall_seconds * mttf_seconds) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - stall_seconds


def expected_wall_seconds(
    work_seconds: float, interval_seconds: float, stall_seconds: float, restart_seconds: float, mttf_seconds: float
) -> float:
    """Expected wall time of `work_seconds` of training (Daly): M e^(R/M) (e^((t+d)/M) - 1) Ts / t."""
    grown = math.expm1((interval_seconds + stall_seconds) / mttf_seconds)
    return mttf_seconds * math.exp(restart_seconds / mttf_seconds) * grown * work_seconds / interval_seconds


def spares(nodes: int, failure_probability: float, confidence: float = 0.99) -> int:
    """Spares that cover the failures within one replenishment with `confidence`: a quantile of Binom(N, p)."""
    if not 0 <= failure_probability < 1:
        raise ValueError(f"failure_probability: must be at least 0 and below 1, got {failure_probability}")
    term = math.exp(nodes * math.log1p(-failure_probability))
    covered = term
    count = 0
    while covered < confidence and count < nodes:
        term *= (nodes - count) / (count + 1) * failure_probability / (1 - failure_probability)
        count += 1
        covered += term
    return count


def failure_probability(failures_per_node_day: float, replenish_days: float) -> float:
    """Probability that a node fails before the spares are replenished."""
    return -math.expm1(-failures_per_node_day * replenish_days)
