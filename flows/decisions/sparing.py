"""How many spare nodes, and whether they pay. Source of each: fault tolerance notes, 6.4."""

from __future__ import annotations

import math


def spares(nodes: int, failure_probability: float, confidence: float = 0.99) -> int:
    """Spares that cover the failures within one replenishment with `confidence`: a quantile of Binom(N, p).

    The loss of a rack or a switch is another event: it is answered by a new gang elsewhere, not by spares.

    Raises:
        ValueError: a probability outside of [0, 1], or a confidence outside of (0, 1).
    """
    if not 0 <= failure_probability <= 1:
        raise ValueError(f"failure_probability: must lie between 0 and 1, got {failure_probability}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: must lie between 0 and 1, got {confidence}")
    if failure_probability in (0, 1):
        return nodes if failure_probability else 0
    ways, up, down = math.lgamma(nodes + 1), math.log(failure_probability), math.log1p(-failure_probability)
    covered = 0.0
    for count in range(nodes + 1):
        # By logarithms: of a large gang the probability of no failure at all is smaller than any float.
        chosen = ways - math.lgamma(count + 1) - math.lgamma(nodes - count + 1)
        covered += math.exp(chosen + count * up + (nodes - count) * down)
        if covered >= confidence:
            return count
    return nodes


def failure_probability(failures_per_node_day: float, replenish_days: float) -> float:
    """Probability that a node fails before the spares are replenished: 1 - e^(-r days)."""
    return -math.expm1(-failures_per_node_day * replenish_days)


def spares_pay(
    nodes: int, failures_per_node_day: float, reschedule_seconds: float, wake_seconds: float, held: int
) -> bool:
    """Whether `held` spares save more node-time than they stand idle: failures/day x (reschedule - wake) x N > s days.

    Args:
        nodes: of the gang, which all wait until it is whole again.
        failures_per_node_day: failures per node and day.
        reschedule_seconds: until a gang without spares trains again.
        wake_seconds: until a gang with a spare trains again.
        held: how many spares stand by.
    """
    saved = nodes * failures_per_node_day * (reschedule_seconds - wake_seconds) * nodes
    return saved > held * 86400.0


def shortage_probability(nodes: int, failures_per_node_day: float, repair_days: float, held: int) -> float:
    """Probability that more nodes are in repair than there are spares: a Poisson tail with mean N r x repair days."""
    mean = nodes * failures_per_node_day * repair_days
    if mean == 0:
        return 0.0
    terms = (math.exp(count * math.log(mean) - mean - math.lgamma(count + 1)) for count in range(held + 1))
    return min(1.0, max(0.0, 1.0 - math.fsum(terms)))
