"""Whether the whole job became slower: a change point in its own step time, told apart from one slow rank. Pure.

CUSUM: S = max(0, S + (x - mu) / sigma - k), alarm above h, with k 0.5 and h 5 (fault tolerance notes 6.5). mu and sigma
are the median and the robust spread of the first steps. An alarm alone is only a suspicion: the change counts when the
median of the steps since S left zero is more than a tenth above the one before, which jitter and single pauses are not.
Callers leave out steps in which a rank saved or evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Iterable, Optional, Tuple

from workflows.programs.coordinator.budgets import MAD_TO_SIGMA, median

BASELINE_STEPS = 20
"""First steps, from which mu and sigma are taken."""
SLACK, ALARM = 0.5, 5.0
LEAST_CHANGE = 0.10
LEAST_STEPS = 5
"""Steps after a change that a median needs."""
LEAST_SECONDS = 5.0
"""Time that the slower steps must have taken: a machine that others use as well is slow for a moment now and then."""
BEAT_SECONDS = 0.2
"""Steps shorter than this are looked at in groups of as much, by their mean."""
READ_BEAT_SECONDS = 1.0
"""The same where only the times are known at which their lines were read: ten times the rest between two readings."""
KEPT = 64
EXPLAINED_SHARE = 0.5
"""A slow rank explains a change if it is slower by at least this share of it: parts of a step, such as the exchange
itself, do not depend on the rank."""
EPSILON = 0.01
"""Least sigma as a share of the median, since twenty steps may look more even than they are."""


@dataclass(frozen=True)
class StepTimeChange:
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
    since_seconds: float = 0.0
    """Sum of the steps since then."""
    change: Optional[StepTimeChange] = None
    """Change that the last step confirmed; from then on the slower time is the baseline."""

    def with_step(self, step: int, seconds: float, steps: int = 1) -> Cusum:
        """With one more step, or `steps` from `step` on that take `seconds` each, unless that is no duration."""
        if not 0 < seconds < float("inf"):
            return replace(self, change=None)
        if len(self.baseline) < BASELINE_STEPS:
            return _with_baseline(replace(self, baseline=(*self.baseline, seconds), change=None))
        total = max(0.0, self.total + (seconds - self.mu) / self.sigma - SLACK)
        if total == 0.0:
            return replace(self, total=0.0, since=(), since_seconds=0.0, change=None)
        since = (*self.since, seconds)[-KEPT:]
        began = self.since_step if self.since else step
        whole = self.since_seconds + seconds * steps
        moved = replace(self, total=total, since=since, since_step=began, since_seconds=whole, change=None)
        return _judge_alarm(moved) if total > ALARM and len(since) >= LEAST_STEPS and whole >= LEAST_SECONDS else moved


@dataclass(frozen=True)
class GangPace:
    """How fast the gang is, and since when it is slower than it was."""

    cusum: Cusum = Cusum()
    slower: Optional[StepTimeChange] = None
    """The last slowdown, until as many steps as a baseline has are as fast as before it."""
    recent: Tuple[float, ...] = ()
    """The newest steps since the slowdown."""
    steps: int = 0
    """Of the group that is being put together."""
    seconds: float = 0.0
    since_step: int = 0

    def with_steps(self, step: int, steps: int, seconds: float, *, told: bool = False) -> GangPace:
        """With `steps` more, the last of which is `step`, that took `seconds` together, unless that is no duration.

        `told`: the program says so; else it is the time between two readings of its lines. Steps whose lines were read
        in one bundle take no time beside each other: the first of them has that of all. So a group is over when the
        next step takes time.
        """
        if not 0 <= seconds < float("inf"):
            return self
        if seconds == 0 or self.seconds < (BEAT_SECONDS if told else READ_BEAT_SECONDS):
            began = self.since_step if self.steps else step - steps + 1
            return replace(self, steps=self.steps + steps, seconds=self.seconds + seconds, since_step=began)
        return self._with_group()._with_first(step, steps, seconds)

    def _with_first(self, step: int, steps: int, seconds: float) -> GangPace:
        return replace(self, steps=steps, seconds=seconds, since_step=step - steps + 1)

    def _with_group(self) -> GangPace:
        began, mean = self.since_step, self.seconds / self.steps
        cusum = self.cusum.with_step(began, mean, self.steps)
        if cusum.change is not None:
            return GangPace(cusum, cusum.change)
        recent = (*self.recent, mean)[-BASELINE_STEPS:] if self.slower is not None else ()
        moved = GangPace(cusum, self.slower, recent)
        return GangPace() if moved.is_back() else moved

    def is_back(self) -> bool:
        """Whether the slowdown is over: what follows is compared with the pace that comes now."""
        if self.slower is None or len(self.recent) < BASELINE_STEPS:
            return False
        return median(sorted(self.recent)) <= self.slower.before_seconds * (1 + LEAST_CHANGE)


def _with_baseline(cusum: Cusum) -> Cusum:
    if len(cusum.baseline) < BASELINE_STEPS:
        return cusum
    middle = median(sorted(cusum.baseline))
    spread = median(sorted(abs(one - middle) for one in cusum.baseline))
    return replace(cusum, mu=middle, sigma=max(MAD_TO_SIGMA * spread, EPSILON * middle))


def _judge_alarm(cusum: Cusum) -> Cusum:
    after = median(sorted(cusum.since))
    if after <= cusum.mu * (1 + LEAST_CHANGE):
        # A pause, or too small a change: reset, or one pause would keep the alarm up for ever.
        return replace(cusum, total=0.0, since=(), since_seconds=0.0)
    return Cusum(change=StepTimeChange(cusum.since_step, cusum.mu, after))


def attribute_change(change: StepTimeChange, slow_ratios: Iterable[float]) -> str:
    """`rank`: the gang waits for a rank that was voted slow; `job`: all ranks became slower together.

    A gang waits for its slowest rank, so one rank explains a change of about its own size: where the gang became three
    times slower, a rank that takes a tenth longer than its peers does not explain it. When all ranks are slower, the
    program (longer sequences), the network or the storage is the reason, and no node is blamed.
    `slow_ratios` has the time of each slow rank divided by its peers' median.
    """
    grown = change.after_seconds / change.before_seconds - 1
    return "rank" if any(ratio - 1 >= EXPLAINED_SHARE * grown for ratio in slow_ratios) else "job"
