"""How long a gang may stand still before it counts as hung: one budget for each phase. Pure.

Sources: fault tolerance notes 6.6; five times the longest is NVIDIA Resiliency Extension's rule.

    T = max(floor, 5 x longest seen, 3 x p99, median + 10 x 1.4826 x MAD)      from 20 steps on

**The floor follows what a mistake costs.** Killing a healthy gang throws away the steps since its newest proven
checkpoint and a restart; waiting for a hung one throws away the wait. Waiting as long as a mistake would cost is at
most twice as dear as knowing the truth (the ski-rental rule). So both windows together are at least that cost: never
below `least_seconds`, and for its sake not above `step_floor_seconds` (the profile's 60 s). A gang with steps of 0.1 s
that saved half a second ago is called hung after 1.75 s, one that would lose ten minutes not before 90 s, and with
steps of 60 s the five times longest (300 s) decides anyway. That is safe, since

* no window is shorter than five times the longest step that was ever seen, pauses that were survived included;
* the short floor is only for programs that say *before* a save that it begins, since an unexpected one looks like a
  hang; all others keep `step_floor_seconds`, and the budget of each pause that is only told when it is over;
* a pause that a rank declared has a budget of its own, and never becomes a measure of steps; the first steps of each
  incarnation (they compile) have theirs;
* where the gang stood still at the same step before, it is the program's own way or nothing that a restart mends: each
  time the limit is eight times longer, so that a pause nobody told us of is survived by the second or third try.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Sequence, Tuple

from workflows.programs.frozen import replace

FEW = 20
"""Below so many steps their spread is not known: the configured floor holds."""
KEPT = 256
"""Newest steps that p99, median and MAD are taken from; the longest is remembered for ever."""
AGAIN = 8.0
"""Times longer for each hang at the same step."""
SECOND_WINDOW = 0.5
"""Of the first one: what is hung for T is confirmed after 1.5 T."""
LEAST_SECOND_SECONDS = 0.75
"""A rank that is stopped for 1 s, with the slowest steps on either side of it, is back before 1.75 s are over."""
MAD_TO_SIGMA = 1.4826
"""Of a normal distribution the standard deviation is so many times the median absolute deviation."""
DECLARED = ("checkpoint", "restore", "evaluation")
"""Phases that a rank tells of; in them nothing is known of steps."""


@dataclass(frozen=True)
class Limits:
    """What is configured; the first four stand in the profile's `recovery.hang`."""

    init_seconds: float = 1800.0
    """From the start of the ranks to their first step, and from the last planned step to their end."""
    step_floor_seconds: float = 60.0
    """The most that the cost of a mistake can ask for; before 20 steps, and for programs that save unannounced, the
    floor itself."""
    step_factor: float = 5.0
    """Times the longest step seen."""
    checkpoint_seconds: float = 1800.0
    """While a checkpoint is written."""
    restore_seconds: float = 1800.0
    evaluation_seconds: float = 3600.0
    """Evaluations are the longest pause that trainers make."""
    least_seconds: float = 1.0
    """No first window is shorter: collectors of garbage, storage and schedulers take tenths of seconds everywhere."""
    announces: bool = False
    """The program is known to say before each pause that it begins (the builder knows its words); else this is learned
    from the first one."""

    def of(self, phase: str) -> float:
        """The budget of a phase of which nothing was measured."""
        known = {"checkpoint": self.checkpoint_seconds, "restore": self.restore_seconds,
                 "evaluation": self.evaluation_seconds, "step": self.step_floor_seconds}  # fmt: skip
        return known.get(phase, self.init_seconds)


@dataclass(frozen=True)
class Samples:
    """Durations of one phase."""

    newest: Tuple[float, ...] = ()
    """Seconds each, at most `KEPT`."""
    longest: float = 0.0
    count: int = 0

    def and_(self, seconds: float) -> Samples:
        """With one more; what is no time is left out."""
        if not (math.isfinite(seconds) and seconds >= 0):
            return self
        return Samples((*self.newest, seconds)[-KEPT:], max(self.longest, seconds), self.count + 1)

    @property
    def typical(self) -> float:
        """Their median; 0: none."""
        return median(sorted(self.newest)) if self.newest else 0.0


@dataclass(frozen=True)
class Budget:
    """How long a phase may stand still, and which rule says so."""

    seconds: float
    """The first window."""
    rule: str

    @property
    def second_seconds(self) -> float:
        """The second window, in which stacks are gathered and a last sign of life counts."""
        return max(LEAST_SECOND_SECONDS, SECOND_WINDOW * self.seconds)

    def at_least(self, seconds: float, rule: str) -> Budget:
        """Itself, or a longer one."""
        return self if self.seconds >= seconds else replace(self, seconds=seconds, rule=rule)


def median(ordered: Sequence[float]) -> float:
    """Of values in order, at least one."""
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def measured(samples: Samples, floor_seconds: float, factor: float = 5.0) -> Budget:
    """The formula, for samples of any number above 0."""
    ordered = sorted(samples.newest)
    middle = median(ordered)
    spread = median(sorted(abs(value - middle) for value in ordered))
    p99 = ordered[math.ceil(0.99 * len(ordered)) - 1]
    found = Budget(floor_seconds, "floor").at_least(factor * samples.longest, f"{factor:g} x the longest")
    found = found.at_least(3 * p99, "3 x p99")
    return found.at_least(middle + 10 * MAD_TO_SIGMA * spread, "median + 10 sigma")


def floor_seconds(limits: Limits, announces: bool, mistake_seconds: float) -> float:
    """The least first window of a step.

    Args:
        limits: configured.
        announces: pauses are told before they begin.
        mistake_seconds: training since the newest proven checkpoint, and a restart.
    """
    if not announces:
        return max(limits.step_floor_seconds, limits.least_seconds)
    asked = min(limits.step_floor_seconds, mistake_seconds / (1 + SECOND_WINDOW))
    return max(limits.least_seconds, asked)


def step_budget(limits: Limits, samples: Samples, floor: float) -> Budget:
    """How long no step may be completed while no pause is declared.

    Args:
        limits: configured.
        samples: steps of all incarnations.
        floor: from `floor_seconds`.
    """
    return measured(samples, floor, limits.step_factor) if samples.count >= FEW else early_budget(limits, samples)


def early_budget(limits: Limits, samples: Samples) -> Budget:
    """The same while little is known: among the first steps, and after a start, when programs compile.

    Args:
        limits: configured.
        samples: such steps.
    """
    if not samples.count:
        return Budget(limits.init_seconds, "no such step measured yet")
    few = Budget(max(limits.step_floor_seconds, limits.least_seconds), "configured, as little is measured")
    return few.at_least(2 * limits.step_factor * samples.longest, f"{2 * limits.step_factor:g} x the longest")


def pause_budget(limits: Limits, phase: str, samples: Samples) -> Budget:
    """How long a declared pause, the start or the end may take.

    It is never shorter than configured, as the next evaluation may be the full one; long ones make it longer.
    """
    configured = Budget(limits.of(phase), "configured")
    return configured.at_least(limits.step_factor * samples.longest, f"{limits.step_factor:g} x the longest")
