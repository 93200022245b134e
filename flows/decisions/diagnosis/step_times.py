"""Steps that became slower and stay so. Pure.

A CUSUM on the attempt's own step times finds a change, a median decides whether it is one that matters: jitter, a slow
step and a save raise the sum for a moment and never the median.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median, median_low

from workflows.model.events import Fall
from workflows.model.records import StepRow

SAMPLE_SECONDS = 3.0
"""Steps are put together until they took so long; longer ones count one by one. Milliseconds say nothing."""
WARM_UP = 5
"""First samples of an attempt that nobody compares with: caches, compilation."""
STEADY = 40
"""Samples that say what is usual."""
ENOUGH = 20
"""Samples that must be slower before it is called a fall: 20 steps, and a minute."""
RATIO = 1.2
"""By which the median must have grown."""
BETTER = 0.9
"""A median below this share of the usual one is the new usual one."""
SLACK, LIMIT, CLIP = 0.5, 5.0, 4.0
"""Of the CUSUM, in standard deviations: what a step may be slower, the sum that alarms, the most a step may add."""
LEAST_DEVIATION = 0.02
"""Share of the median: where all steps take the same time, a thousandth more is no alarm."""


@dataclass
class StepTimes:
    """What is usual in an attempt, step after step; the same steps give the same falls, however they come in."""

    seen: int = 0
    """Samples."""
    last: StepRow | None = None
    first: StepRow | None = None
    """Of the sample that is being put together."""
    taken: float = 0.0
    steps: int = 0
    usual: float = 0.0
    """Median of the steady steps; 0: not known yet."""
    deviation: float = 0.0
    total: float = 0.0
    """Of the CUSUM."""
    slower: list[tuple[StepRow, float]] = field(default_factory=list[tuple[StepRow, float]])
    """Steps since the sum began to grow."""
    recent: list[float] = field(default_factory=list[float])
    """The newest step times, at most `STEADY`."""

    def add(self, row: StepRow) -> Fall | None:
        """The next completed step; the fall that it proves, if any."""
        before, self.last = self.last, row
        seconds, steps = _taken(before, row)
        if not steps:
            return None
        self.first = self.first or row
        self.taken += seconds
        self.steps += steps
        if self.taken < SAMPLE_SECONDS:
            return None
        first, each = self.first, self.taken / self.steps
        self.first, self.taken, self.steps = None, 0.0, 0
        return self._sample(first, each)

    def _sample(self, first: StepRow, seconds: float) -> Fall | None:
        self.seen += 1
        if self.seen <= WARM_UP:
            return None
        self.recent = [*self.recent[-(STEADY - 1) :], seconds]
        if not self.usual:
            self._learn()
            return None
        return self._compare(first, seconds)

    def _learn(self) -> None:
        if len(self.recent) == STEADY:
            self.usual = median(self.recent)
            spread = 1.4826 * median(abs(item - self.usual) for item in self.recent)
            self.deviation = max(spread, LEAST_DEVIATION * self.usual)
            self.total, self.slower = 0.0, []

    def _compare(self, row: StepRow, seconds: float) -> Fall | None:
        score = min(CLIP, (seconds - self.usual) / self.deviation)
        self.total = max(0.0, self.total + score - SLACK)
        self.slower = [*self.slower[-(10 * ENOUGH) :], (row, seconds)] if self.total > 0 else []
        if len(self.recent) == STEADY and median(self.recent) < BETTER * self.usual:
            self._learn()
            return None
        if self.total <= LIMIT or len(self.slower) < ENOUGH:
            return None
        newest = median_low([item for _, item in self.slower[-ENOUGH:]])
        if newest <= RATIO * self.usual:
            return None
        first = next(known for known, item in self.slower if item > RATIO * self.usual)
        fall = Fall(first.step, first.at, self.usual, newest)
        self.usual, self.recent = 0.0, [item for _, item in self.slower[-ENOUGH:]]
        return fall


def _taken(before: StepRow | None, row: StepRow) -> tuple[float, int]:
    """Seconds, and for how many steps; none where it is not known: the first, one done again, a wrong clock."""
    if row.seconds is not None:
        taken, steps = row.seconds, 1
    elif before is None or row.step <= before.step:
        return 0.0, 0
    else:
        taken, steps = row.at - before.at, row.step - before.step
    # The lines of several steps may have been read at one moment: the first has the time of all of them.
    return (taken, steps) if math.isfinite(taken) and taken >= 0 else (0.0, 0)


def falls_of(steps: Sequence[StepRow]) -> tuple[Fall, ...]:
    """All falls of an attempt's completed steps, in the order of completion."""
    times = StepTimes()
    return tuple(fall for row in steps if (fall := times.add(row)) is not None)
