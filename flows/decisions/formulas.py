"""Formulas of reliability: mean time to failure, and the share of time that a run may expect to be productive.

Source of each: fault tolerance notes, 6.2, and the papers named there. Times in seconds unless a name says else.
"""

from __future__ import annotations

import math

SECONDS_PER_DAY = 86400.0
SIMULATED_FAILURES = 20_000
"""Of one simulation: its result is then exact to four digits."""


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
    work_seconds: float = math.inf,
) -> float:
    """Expected productive share, 0 to 1 (closed form of the reliability study, with our terms for queue and length).

    T = (R + u0) / (1 - N r (u0 + dt/2)); W = T (1 + w/dt) (1 + N r q) + q; the share is R / W. Pessimistic when the
    checkpoint interval comes near the mean time to failure: `simulated_ettr` tells by how much.

    Args:
        nodes: nodes of the gang.
        failures_per_node_day: failures per node and day.
        restart_seconds: u0, from failure to training again: detection, diagnosis, replacement, start, restore.
        interval_seconds: dt, between checkpoints.
        stall_seconds: w, training stands still so long for one save.
        queue_seconds: q, waiting for nodes at the beginning and after each failure.
        work_seconds: R, of training without any failure; infinite for a long run.

    Raises:
        ValueError: failures come faster than restarts; no share can be expected.
    """
    rate = nodes * failures_per_node_day / SECONDS_PER_DAY
    wasted = rate * (restart_seconds + interval_seconds / 2)
    _refuse_hopeless(rate, wasted)
    slower = (1 + stall_seconds / interval_seconds) * (1 + rate * queue_seconds)
    if math.isinf(work_seconds):
        return (1 - wasted) / slower
    whole = (work_seconds + restart_seconds) / (1 - wasted) * slower + queue_seconds
    return work_seconds / whole if whole > 0 else 0.0


def simulated_ettr(
    nodes: int,
    failures_per_node_day: float,
    restart_seconds: float,
    interval_seconds: float,
    stall_seconds: float = 0.0,
    queue_seconds: float = 0.0,
) -> float:
    """The same for a long run by playing failures one after the other, which assumes nothing but chance.

    Failures come at exponential distances, also while the run restarts, not while it queues. Work since the newest
    checkpoint is lost with each. A stratified Monte Carlo: the distances are the distribution's evenly spread
    quantiles instead of thrown dice, so that the same question always has the same answer.

    Args:
        nodes: see `expected_ettr`, also for the following ones.
        failures_per_node_day: …
        restart_seconds: …
        interval_seconds: …
        stall_seconds: …
        queue_seconds: …

    Raises:
        ValueError: as `expected_ettr`.
    """
    rate = nodes * failures_per_node_day / SECONDS_PER_DAY
    _refuse_hopeless(rate, rate * (restart_seconds + interval_seconds / 2))
    cycle = interval_seconds + stall_seconds
    if rate == 0:
        return interval_seconds / cycle
    wall = kept = 0.0
    for number in range(SIMULATED_FAILURES):
        lived = -math.log1p(-(number + 0.5) / SIMULATED_FAILURES) / rate
        wall += lived + queue_seconds
        kept += max(0.0, (lived - restart_seconds) // cycle) * interval_seconds
    return kept / wall


def _refuse_hopeless(rate: float, wasted: float) -> None:
    if wasted >= 1:
        raise ValueError(
            f"failures every {1 / rate:.0f} s leave no time: restart_seconds + interval_seconds / 2 must be smaller"
        )
