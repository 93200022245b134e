"""Signs of life of a gang that has told no step yet, never tells one, or has told its last one. Pure.

Launchers look at their ranks every two seconds, as long as the coordinator wants to know: whether any of them printed,
used the processor, read or wrote, and which are stopped (state T of the kernel, as after SIGSTOP).

| steps | the ranks | is it hung, and after how long |
|---|---|---|
| told | whatever they do | by the times of steps (`budgets`); signs of life say nothing more |
| none yet, or never any | one or more print, compute, read or write | no; where steps are told, after eight times the limit for the first one, since waiting for each other in a loop looks the same |
| none yet, or never any | nobody does anything, and signs were regular before | after five times the longest pause between two signs, and not before what a mistake would cost: the time since the start or the newest proven checkpoint |
| none yet, or never any | nobody does anything, and fewer than 20 signs were seen | after the limit for the first step |
| none yet, never any, or the last | one is stopped, whatever the others do | after the floor of a step: it does nothing until somebody lets it go on |
| none yet, never any, or the last | a launcher does not say | as if it worked |
| the last | one or more print, compute, read or write | no; after eight times the limit for the end |
| the last | nobody does anything | after the limit for the end |
"""  # noqa: E501 - a table

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, NamedTuple, Optional, Tuple

from workflows.programs.coordinator.budgets import (
    LEAST_SAMPLES,
    SECOND_WINDOW,
    Budget,
    HangLimits,
    Samples,
    measured_budget,
    pause_budget,
)
from workflows.programs.runtime.flags import replace

FRESH_SECONDS = 10.0
"""A launcher whose newest look is older does not say: it looks every two seconds."""
WORKING_FACTOR = 8.0
"""Factor on the limit for the first step while ranks work: compilers and indexes of data take hours, and a start that
is cut off never gets further."""


class Wait(NamedTuple):
    """Something for which a gang may be called hung."""

    seconds: float
    """How long it has lasted."""
    budget: Budget
    words: str = ""
    """What it is, for people; "": no progress alone."""

    @property
    def share(self) -> float:
        """How much of the budget is used."""
        return self.seconds / self.budget.seconds


@dataclass(frozen=True)
class LifeSeen:
    """What the launchers of a gang say of their ranks together."""

    at: float
    sign_at: Optional[float] = None
    """Unix time in seconds of the newest look that saw a sign of life; None: none did."""
    known: bool = True
    """Whether each launcher that still has ranks said something lately."""
    stopped: Tuple[int, ...] = ()
    """Ranks that are stopped, and do nothing."""


@dataclass(frozen=True)
class Life:
    """What was seen of a gang so far."""

    since: float = 0.0
    """Unix time in seconds of its start, or of the newest proven checkpoint: what came later would be lost."""
    known: bool = False
    was_known: bool = False
    """Whether it was known at any time of this incarnation."""
    sign_at: Optional[float] = None
    pauses: Samples = field(default_factory=Samples)
    """Between two signs of life."""
    idle_seconds: float = 0.0
    """Since the last sign, by the coordinator's ticks; time of which nothing is known does not count."""
    stopped: Tuple[int, ...] = ()
    """Ranks that have been stopped for `stopped_seconds`."""
    stopped_seconds: float = 0.0

    def with_sign(self, at: float) -> Life:
        """After a sign of life."""
        if self.sign_at is not None and at <= self.sign_at:
            return self
        pauses = self.pauses if self.sign_at is None else self.pauses.with_sample(at - self.sign_at)
        return replace(self, sign_at=at, pauses=pauses, idle_seconds=0.0)

    def with_look(self, look: LifeSeen) -> Life:
        """After the launchers' looks."""
        life = self if look.sign_at is None else self.with_sign(look.sign_at)
        still = tuple(rank for rank in life.stopped if rank in look.stopped)
        return replace(
            life,
            known=look.known,
            was_known=life.was_known or look.known,
            idle_seconds=life.idle_seconds if look.known else 0.0,
            stopped=still or look.stopped,
            stopped_seconds=life.stopped_seconds if still else 0.0,
        )

    def later(self, seconds: float) -> Life:
        """After `seconds` in which nothing was reported."""
        if not self.was_known:
            return self
        idle = self.idle_seconds + seconds if self.known else 0.0
        return replace(self, idle_seconds=idle, stopped_seconds=self.stopped_seconds + seconds if self.stopped else 0.0)

    def budget(self, limits: HangLimits) -> Budget:
        """How long nobody may do anything."""
        if self.pauses.count < LEAST_SAMPLES:
            return Budget(limits.silence, "few signs of life were seen before")
        worked = (self.sign_at or self.since) - self.since
        least = max(limits.step_floor_seconds, limits.least_seconds)
        floor = max(least, min(limits.silence, worked / (1 + SECOND_WINDOW)))
        return measured_budget(self.pauses, floor, limits.step_factor)

    def waits(self, limits: HangLimits, quiet_seconds: float, is_ending: bool = False) -> List[Wait]:
        """What a gang may be called hung for before its first and after its last step.

        `quiet_seconds` are those without progress. How a program ends says nothing of the rhythm in which it worked.
        """
        start = pause_budget(limits, "init", Samples())
        if not self.was_known:
            return [Wait(quiet_seconds, start)]
        longer = replace(start, seconds=start.seconds * WORKING_FACTOR, rule=f"{WORKING_FACTOR:g} x, as it works")
        idle = f"no sign of life for {self.idle_seconds:.3g} s: no output, no processor time, nothing read or written"
        budget = Budget(limits.silence, "configured") if is_ending else self.budget(limits)
        found = [Wait(self.idle_seconds, budget, idle), Wait(quiet_seconds, longer)]
        if self.stopped:
            floor = Budget(max(limits.step_floor_seconds, limits.least_seconds), "a stopped rank does nothing")
            who = f"rank {self.stopped[0]} is stopped, as by SIGSTOP, for {self.stopped_seconds:.3g} s"
            found.append(Wait(self.stopped_seconds, floor, who))
        return found
