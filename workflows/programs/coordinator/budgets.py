"""How long a gang may stand still in a phase, or show no sign of life, before it counts as hung. Pure.

Each phase has a budget: how long the gang may stand still in it before it counts as hung.
Sources: fault tolerance notes 6.6; five times the longest is NVIDIA Resiliency Extension's rule.

    T = max(floor, 5 x longest seen, 3 x p99, median + 10 x 1.4826 x MAD)      from 20 steps on

**The floor follows what a mistake costs.** Killing a healthy gang throws away the steps since its newest proven
checkpoint and a restart; waiting for a hung one throws away the wait. Waiting as long as a mistake would cost is at
most twice as dear as knowing the truth (the ski-rental rule). So both windows together are at least that cost, but not
below `least_seconds`, and the cost alone never asks for more than `step_floor_seconds` (the profile's 60 s). A gang
with steps of 0.1 s that saved half a second ago is called hung after 1.75 s, one that would lose ten minutes not before
90 s, and with steps of 60 s the five times longest (300 s) decides anyway. That is safe, since

* no window is shorter than five times the longest step ever seen, which includes pauses that were survived;
* the short floor is only for programs that announce a save *before* it begins, since an unexpected one looks like a
  hang; all others keep `step_floor_seconds`, and the budget of each pause that they only report afterwards;
* a declared pause has a budget of its own and is never a sample of steps; so have the first steps of each incarnation,
  in which programs compile;
* where the gang hung at the same step before, either the program always pauses there or a restart does not help: each
  time the limit is eight times longer, so that an undeclared pause is survived by the second or third try.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Sequence, Tuple

from workflows.programs.runtime.flags import replace

LEAST_SAMPLES = 20
"""Steps below which their spread is not known, so that the configured floor holds."""
KEPT_SAMPLES = 256
"""Newest steps for p99, median and MAD; the longest one counts for ever."""
SECOND_WINDOW = 0.5
"""Second window as a share of the first: a hang is confirmed after 1.5 windows."""
LEAST_SECOND_SECONDS = 0.75
"""A rank that is stopped for 1 s, with the slowest steps on either side of it, is back before 1.75 s are over."""
MAD_TO_SIGMA = 1.4826
"""Standard deviation of a normal distribution, in median absolute deviations."""


@dataclass(frozen=True)
class HangLimits:
    """Configured limits; the first four come from the profile's `recovery.hang`."""

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
    silence_seconds: float = 0.0
    """Without any sign of life, before their rhythm is known; 0: as `init_seconds`, which programs without steps do not
    have."""
    announces: bool = False
    """The program is known to say before each pause that it begins (the builder knows its words); else this is learned
    from the first one."""

    @property
    def silence(self) -> float:
        """Seconds for which nobody may do anything where no rhythm is known."""
        return self.silence_seconds or self.init_seconds

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

    def with_sample(self, seconds: float) -> Samples:
        """With one more sample, unless it is not a duration."""
        if not (math.isfinite(seconds) and seconds >= 0):
            return self
        return Samples((*self.newest, seconds)[-KEPT_SAMPLES:], max(self.longest, seconds), self.count + 1)

    @property
    def median_seconds(self) -> float:
        """Their median; 0: none."""
        return median(sorted(self.newest)) if self.newest else 0.0


@dataclass(frozen=True)
class Budget:
    """How long a phase may stand still, and by which rule."""

    seconds: float
    """The first window."""
    rule: str

    @property
    def second_seconds(self) -> float:
        """The second window, in which stacks are gathered and a sign of life still counts."""
        return max(LEAST_SECOND_SECONDS, SECOND_WINDOW * self.seconds)

    def at_least(self, seconds: float, rule: str) -> Budget:
        """This budget, or one of `seconds` where that is longer."""
        return self if self.seconds >= seconds else replace(self, seconds=seconds, rule=rule)


def median(ordered: Sequence[float]) -> float:
    """Median of at least one sorted value."""
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def measured_budget(samples: Samples, floor_seconds: float, factor: float = 5.0) -> Budget:
    """The budget by the formula above, for at least one sample."""
    ordered = sorted(samples.newest)
    middle = median(ordered)
    spread = median(sorted(abs(value - middle) for value in ordered))
    p99 = ordered[math.ceil(0.99 * len(ordered)) - 1]
    found = Budget(floor_seconds, "floor").at_least(factor * samples.longest, f"{factor:g} x the longest")
    found = found.at_least(3 * p99, "3 x p99")
    return found.at_least(middle + 10 * MAD_TO_SIGMA * spread, "median + 10 sigma")


def floor_seconds(limits: HangLimits, announces: bool, mistake_seconds: float) -> float:
    """The shortest first window of a step.

    `announces`: the program declares pauses before they begin. `mistake_seconds`: cost of killing a healthy gang, which
    is the training since the newest proven checkpoint and a restart.
    """
    if not announces:
        return max(limits.step_floor_seconds, limits.least_seconds)
    wanted_seconds = min(limits.step_floor_seconds, mistake_seconds / (1 + SECOND_WINDOW))
    return max(limits.least_seconds, wanted_seconds)


def step_budget(limits: HangLimits, samples: Samples, floor: float) -> Budget:
    """Budget of a step outside of pauses, from the steps of all incarnations; `floor` comes from `floor_seconds`."""
    return (
        measured_budget(samples, floor, limits.step_factor)
        if samples.count >= LEAST_SAMPLES
        else early_budget(limits, samples)
    )


def early_budget(limits: HangLimits, samples: Samples) -> Budget:
    """Budget of the first steps after a start, in which programs compile; `samples` are such steps only."""
    if not samples.count:
        return Budget(limits.init_seconds, "no such step measured yet")
    few = Budget(max(limits.step_floor_seconds, limits.least_seconds), "configured, as little is measured")
    return few.at_least(2 * limits.step_factor * samples.longest, f"{2 * limits.step_factor:g} x the longest")


def pause_budget(limits: HangLimits, phase: str, samples: Samples) -> Budget:
    """Budget of a declared pause, of the start and of the end.

    It is never shorter than configured, as the next evaluation may be a full one; long pauses make it longer.
    """
    configured = Budget(limits.of(phase), "configured")
    return configured.at_least(limits.step_factor * samples.longest, f"{limits.step_factor:g} x the longest")
