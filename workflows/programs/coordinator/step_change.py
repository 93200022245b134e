"""Whether the whole job became slower: a change point in its own step time, told apart from one slow rank. Pure.

CUSUM: S = max(0, S + (x - mu) / sigma - k), alarm above h, with k 0.5 and h 5 (fault tolerance notes 6.5). mu and sigma
are the median and the robust spread of the first steps. An alarm alone is only a suspicion: the change counts when the
median of the steps since S left zero is more than a tenth above the one before, which jitter and single pauses are not.
Steps in which somebody saved or evaluated are not told of.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Iterable, Optional, Tuple

from workflows.programs.coordinator.hang_watch import MAD_TO_SIGMA, median

BASELINE = 20
"""Steps that say what is usual."""
SLACK, ALARM = 0.5, 5.0
LEAST_CHANGE = 0.10
LEAST_STEPS = 5
"""After a change: fewer have no median worth the name."""
KEPT = 64
EXPLAINS = 0.5
"""Of a change: steps have parts, such as the exchange itself, that a slow rank does not make longer or shorter."""
EPSILON = 0.01
"""Of the median: no step time is as even as twenty steps may look."""


@dataclass(frozen=True)
class Change:
    """Steps take longer than they did."""

    step: int
    """The first slow one."""
    before_seconds: float
    after_seconds: float


@dataclass(frozen=True)
class Cusum:
    """The job's step time so far."""

    baseline: Tuple[float, ...] = ()
    mu: float = 0.0
    sigma: float = 0.0
    total: float = 0.0
    """S."""
    since: Tuple[float, ...] = ()
    """Steps since S left zero, at most `KEPT`, newest last."""
    since_step: int = 0
    change: Optional[Change] = None
    """Found by the last step; what is slow from then on is the new usual."""

    def and_(self, step: int, seconds: float) -> Cusum:
        """With one more step; what is no time is left out."""
        if not 0 < seconds < float("inf"):
            return replace(self, change=None)
        if len(self.baseline) < BASELINE:
            return _based(replace(self, baseline=(*self.baseline, seconds), change=None))
        total = max(0.0, self.total + (seconds - self.mu) / self.sigma - SLACK)
        if total == 0.0:
            return replace(self, total=0.0, since=(), change=None)
        since = (*self.since, seconds)[-KEPT:]
        moved = replace(self, total=total, since=since, since_step=self.since_step if self.since else step, change=None)
        return _judged(moved) if total > ALARM and len(since) >= LEAST_STEPS else moved


def _based(cusum: Cusum) -> Cusum:
    if len(cusum.baseline) < BASELINE:
        return cusum
    middle = median(sorted(cusum.baseline))
    spread = median(sorted(abs(one - middle) for one in cusum.baseline))
    return replace(cusum, mu=middle, sigma=max(MAD_TO_SIGMA * spread, EPSILON * middle))


def _judged(cusum: Cusum) -> Cusum:
    after = median(sorted(cusum.since))
    if after <= cusum.mu * (1 + LEAST_CHANGE):
        # A pause, or less than is worth a word: begin again, or one pause would keep the alarm up for ever.
        return replace(cusum, total=0.0, since=())
    return Cusum(change=Change(cusum.since_step, cusum.mu, after))


def whose(change: Change, slow_ratios: Iterable[float]) -> str:
    """`rank`: the gang waits for a rank that was voted slow; `job`: all became slower together.

    A gang waits for its slowest rank, so one rank explains a change of about its own size: where the gang became three
    times slower, one that takes a tenth longer than its peers does not. All together is the program (longer sequences),
    the network or the storage: no node is blamed for it.

    Args:
        change: of the whole gang.
        slow_ratios: of each slow rank, times its peers' median.
    """
    grown = change.after_seconds / change.before_seconds - 1
    return "rank" if any(ratio - 1 >= EXPLAINS * grown for ratio in slow_ratios) else "job"
