"""Formulas of reliability: rates of failure, mean time to failure, and the productive share of time to expect.

Sources: fault tolerance notes, 6.2, and the papers named there. Times are seconds unless a name says else. Failures are
counted over node-days: with k failures in x node-days the exact interval of the rate reaches from the Gamma(k) to the
Gamma(k + 1) quantile over x (Garwood; the same as by chi-square with 2k and 2k + 2 degrees).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from workflows.model.fleet import PRIOR_RATE

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
    checkpoint interval comes near the mean time to failure: `simulated_ettr` says by how much.

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

    Arguments as of `expected_ettr`.
    Failures come at exponential distances, also while the run restarts, not while it queues. Work since the newest
    checkpoint is lost with each. A stratified Monte Carlo: the distances are the distribution's evenly spread
    quantiles instead of thrown dice, so that the same question always has the same answer.

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


PRIOR_WEIGHT = 1.0
"""The prior counts as so many failures: the second real one already weighs more."""
LARGEST_CHANGE = 4.0
"""One look changes the rate by this factor at most: three failures at once are a bad hour, not a new truth."""
_STEPS, _TINY = 400, 1e-15


@dataclass(frozen=True)
class FailureRate:
    """Failures per node and day."""

    failures: int
    node_days: float
    per_node_day: float | None
    """None where nothing ran."""
    low: float | None
    """Lower end of the interval; 0 without failures."""
    high: float | None

    def mttf_hours(self, nodes: int) -> float | None:
        """Of a gang of `nodes`; None without a failure."""
        return _hours(nodes, self.per_node_day)

    def mttf_interval_hours(self, nodes: int) -> tuple[float | None, float | None]:
        """From the shortest to the longest that agrees with what was seen; None: no bound."""
        return _hours(nodes, self.high), _hours(nodes, self.low)


def _hours(nodes: int, per_node_day: float | None) -> float | None:
    return None if not per_node_day or nodes <= 0 else 24.0 / (nodes * per_node_day)


def failure_rate(failures: int, node_days: float, confidence: float = 0.95) -> FailureRate:
    """The rate with its exact interval.

    Raises:
        ValueError: negative counts.
    """
    if failures < 0 or node_days < 0:
        raise ValueError(f"failures and node_days: must not be negative, got {failures} and {node_days}")
    if node_days == 0:
        return FailureRate(failures, node_days, None, None, None)
    tail = (1 - confidence) / 2
    low = gamma_quantile(failures, tail) / node_days if failures else 0.0
    high = gamma_quantile(failures + 1, 1 - tail) / node_days
    return FailureRate(failures, node_days, failures / node_days, low, high)


def expected_rate(failures: int, node_days: float, before: float = PRIOR_RATE, weight: float = PRIOR_WEIGHT) -> float:
    """Mean of the Gamma posterior, (a + failures) / (b + node-days), kept within a factor of what was known before.

    `before`: the rate that was believed, per node and day; `weight`: how many failures that belief counts for.
    """
    found = (weight + failures) / (weight / before + node_days)
    return min(before * LARGEST_CHANGE, max(before / LARGEST_CHANGE, found))


def believed_rate(failures: int, node_days: float) -> float:
    """Failures per node and day to plan with: what is known of other clusters, as long as the own count allows it.

    Where the interval of the own count lies beside `PRIOR_RATE`, the count alone holds: a gang that failed seven times
    in an hour is not an ordinary one, however short its life.
    """
    own = failure_rate(failures, node_days)
    if own.per_node_day is None or own.low is None or own.high is None:
        return PRIOR_RATE
    if own.low <= PRIOR_RATE <= own.high:
        return expected_rate(failures, node_days)
    return own.per_node_day or own.high


def gamma_quantile(shape: float, probability: float) -> float:
    """Where the Gamma distribution of this shape and scale 1 has so much below it."""
    low, high = 0.0, shape + 10 * math.sqrt(shape) + 10
    while gamma_share(shape, high) < probability:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if gamma_share(shape, middle) < probability:
            low = middle
        else:
            high = middle
        if high - low <= 1e-12 * high:
            break
    return (low + high) / 2


def gamma_share(shape: float, until: float) -> float:
    """Share of the Gamma distribution below `until`: the regularised incomplete gamma function (series, fraction)."""
    if until <= 0:
        return 0.0
    front = math.exp(shape * math.log(until) - until - math.lgamma(shape))
    if until < shape + 1:
        return front * _series(shape, until)
    return 1.0 - front * _fraction(shape, until)


def _series(shape: float, until: float) -> float:
    term = total = 1.0 / shape
    number = shape
    while term > total * _TINY:
        number += 1
        term *= until / number
        total += term
    return total


def _fraction(shape: float, until: float) -> float:
    """Lentz's continued fraction of the upper part."""
    b = until + 1 - shape
    c, d = 1 / 1e-300, 1 / b
    value = d
    for number in range(1, _STEPS * 100):
        a = -number * (number - shape)
        b += 2
        d = 1 / (a * d + b or 1e-300)
        c = b + a / c or 1e-300
        value *= c * d
        if abs(c * d - 1) < _TINY * 10:
            break
    return value
