"""Whether a gang is hung: a machine over what ranks report and the passing of time. Pure; times come with events.

The coordinator's shell drives it:

    watch = Watch(limits)
    watch = hear(watch, event)                  # for each report, in order; reports of old incarnations change nothing
    watch = tick(watch, now, half_heard_at(…))  # a few times a second
    watch.verdict                               # acted on when it changes

`watching` → `suspect` after one window: ask all launchers for their stacks. → `confirmed` after the second: name the
minority, restart. `observer`: when the second window was over, more than half of the launchers had not been heard
since the suspicion began, so it is us who do not hear: nothing is done, and when they are heard again the second window
begins anew. Any new step, and begin and end of a declared pause, lead back to `watching`; a new incarnation as well.
`confirmed` stays until one of these. A coordinator that was stopped itself counts no time in which it could not hear.

What the watch over hangs hears: values made from launchers' reports by the coordinator.

How long a gang may stand still before it counts as hung: one budget for each phase. Pure.

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
from dataclasses import dataclass, field
from typing import Collection, FrozenSet, Mapping, Optional, Sequence, Tuple, Union

from workflows.programs.runtime.flags import replace


@dataclass(frozen=True)
class Launched:
    """Ranks of an incarnation were started."""

    at: float
    incarnation: int = 1
    resume_step: int = 0


@dataclass(frozen=True)
class Stepped:
    """A rank reports a step (`StepSeen`)."""

    at: float
    """Unix time in seconds when we heard it."""
    rank: int
    step: int
    told_at: float
    """When its launcher read it, by that launcher's clock: late and batched reports do not change durations."""
    incarnation: int = 1
    total_steps: Optional[int] = None


@dataclass(frozen=True)
class Entered:
    """A rank reports a phase (`PhaseSeen`)."""

    at: float
    rank: int
    phase: str
    told_at: float
    incarnation: int = 1
    detail: str = ""
    """The line that says so; "": no line of its own."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint was proven."""

    at: float
    step: int


@dataclass(frozen=True)
class Over:
    """The gang was told to stop, or all of it ended: nothing is watched any more."""

    at: float


Event = Union[Launched, Stepped, Entered, Saved, Over]


@dataclass(frozen=True)
class Pause:
    """A rank is in a phase that it declared."""

    phase: str
    heard_at: float
    told_at: float
    step: int
    """Of the gang when it began."""
    detail: str = ""
    """The line that said so."""


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
class HangLimits:
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


def floor_seconds(limits: HangLimits, announces: bool, mistake_seconds: float) -> float:
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


def step_budget(limits: HangLimits, samples: Samples, floor: float) -> Budget:
    """How long no step may be completed while no pause is declared.

    Args:
        limits: configured.
        samples: steps of all incarnations.
        floor: from `floor_seconds`.
    """
    return measured(samples, floor, limits.step_factor) if samples.count >= FEW else early_budget(limits, samples)


def early_budget(limits: HangLimits, samples: Samples) -> Budget:
    """The same while little is known: among the first steps, and after a start, when programs compile.

    Args:
        limits: configured.
        samples: such steps.
    """
    if not samples.count:
        return Budget(limits.init_seconds, "no such step measured yet")
    few = Budget(max(limits.step_floor_seconds, limits.least_seconds), "configured, as little is measured")
    return few.at_least(2 * limits.step_factor * samples.longest, f"{2 * limits.step_factor:g} x the longest")


def pause_budget(limits: HangLimits, phase: str, samples: Samples) -> Budget:
    """How long a declared pause, the start or the end may take.

    It is never shorter than configured, as the next evaluation may be the full one; long ones make it longer.
    """
    configured = Budget(limits.of(phase), "configured")
    return configured.at_least(limits.step_factor * samples.longest, f"{limits.step_factor:g} x the longest")


LONGEST_TICK_SECONDS = 1.0
"""More time than this between two ticks is a pause of our own (a stopped process, a machine that slept)."""
HEARD_APART_SECONDS = 0.1
"""Begin and end of a pause that are heard so far apart were told apart; launchers gather reports for less."""
TOLD_APART_SECONDS = 0.25
"""Begin and end that are heard together, and were so far apart, come from one line that tells of the past."""
WARM_STEPS = 2
"""Steps after the first one in which programs still compile and record graphs."""
PASSED = 2
"""Strides that the gang went on since a rank declared a pause: it is over, or in the background. One may be the other
ranks' report of the step before."""
KEPT_PAUSES = 64
"""Ranks that save at the same moment; what the others declare is the same pause."""
NEVER = float("-inf")


@dataclass(frozen=True)
class Watch:
    """What is known of a gang's progress."""

    limits: HangLimits = field(default_factory=HangLimits)
    verdict: str = "over"
    """`watching`, `suspect`, `observer`, `confirmed`; `over`: nothing to watch."""
    incarnation: int = 0
    step: int = 0
    """Highest of this incarnation; before its first one what it resumed from."""
    stepped: bool = False
    ending: bool = False
    """The last planned step is done."""
    pauses: Mapping[int, Pause] = field(default_factory=lambda: {})
    """Of each rank that is in one."""
    quiet_seconds: float = 0.0
    """Time that passed here since the last sign of progress."""
    suspect_seconds: float = 0.0
    suspected_at: float = 0.0
    ticked_at: Optional[float] = None
    launched_at: float = 0.0
    restart_seconds: float = 0.0
    """From start to first step, the last time."""
    saved_step: int = 0
    reference: Optional[Stepped] = None
    """The newest step of the lowest rank that reports; durations are taken from its clock alone."""
    stride: int = 1
    """Steps between two reports."""
    paused_since_step: bool = False
    announced: FrozenSet[str] = frozenset()
    """Pauses of which the beginning was heard before the end."""
    hindsight: FrozenSet[str] = frozenset()
    """Pauses of which only the end was told, or all of it late."""
    steps: Samples = field(default_factory=Samples)
    warm: int = 0
    """Steps after the first one of this incarnation, counted to `WARM_STEPS`."""
    warm_steps: Samples = field(default_factory=Samples)
    hung: Mapping[int, int] = field(default_factory=lambda: {})
    """How often the gang hung after which step."""

    @property
    def phase(self) -> str:
        """What the gang is in: a pause that any rank declared, else `init`, `step` or `ending`."""
        if self.pauses:
            return max((pause.phase for pause in self.pauses.values()), key=self.limits.of)
        return "ending" if self.ending else "step" if self.stepped else "init"

    @property
    def mistake_seconds(self) -> float:
        """What a restart would throw away now."""
        lost = max(0, self.step - self.saved_step) / max(1, self.stride) * self.steps.typical
        return lost + self.restart_seconds

    @property
    def budget(self) -> Budget:
        """The first window now."""
        found = self._step_budget if self.phase == "step" else pause_budget(self.limits, self.phase, Samples())
        times = self.hung.get(self.step, 0)
        if not times:
            return found
        longer = max(self.limits.step_floor_seconds, found.seconds) * AGAIN ** (times - 1)
        return found.at_least(longer, "it stood still here before")

    @property
    def _step_budget(self) -> Budget:
        if self.warm < WARM_STEPS:
            return early_budget(self.limits, self.warm_steps)
        told = self.limits.announces or "checkpoint" in self.announced
        floor = floor_seconds(self.limits, told, self.mistake_seconds)
        found = step_budget(self.limits, self.steps, floor)
        for phase in () if self.limits.announces else sorted(self.hindsight - self.announced):
            found = found.at_least(self.limits.of(phase), f"a {phase} is only told when it is over")
        return found

    @property
    def why(self) -> str:
        """The verdict in words."""
        budget = self.budget
        after = f"after step {self.step}" if self.stepped else "since the start"
        return (f"no progress for {self.quiet_seconds:.3g} s {after}, in phase {self.phase}; "
                f"limit {budget.seconds:.3g} s ({budget.rule}) + {budget.second_seconds:.3g} s")  # fmt: skip


def hear(watch: Watch, event: Event) -> Watch:
    """What is known after an event."""
    if isinstance(event, Launched):
        return _launched(watch, event)
    if isinstance(event, Saved):
        return replace(watch, saved_step=max(watch.saved_step, event.step))
    if isinstance(event, Over):
        return replace(watch, verdict="over", pauses={})
    if watch.verdict == "over" or event.incarnation != watch.incarnation:
        return watch
    return _stepped(watch, event) if isinstance(event, Stepped) else _entered(watch, event)


def tick(watch: Watch, now: float, half_heard: float) -> Watch:
    """What is known as time passes.

    Args:
        watch: so far.
        now: Unix time in seconds.
        half_heard: see `half_heard_at`.
    """
    passed = 0.0 if watch.ticked_at is None else min(max(0.0, now - watch.ticked_at), LONGEST_TICK_SECONDS)
    watch = replace(watch, ticked_at=now)
    if watch.verdict in ("over", "confirmed"):
        return watch
    watch = replace(watch, quiet_seconds=watch.quiet_seconds + passed)
    if watch.quiet_seconds < watch.limits.least_seconds:
        return watch
    if watch.verdict == "watching":
        hung = watch.quiet_seconds >= watch.budget.seconds
        return replace(watch, verdict="suspect", suspected_at=now, suspect_seconds=0.0) if hung else watch
    if watch.verdict == "observer":
        heard = half_heard >= watch.suspected_at
        return replace(watch, verdict="suspect", suspected_at=now, suspect_seconds=0.0) if heard else watch
    watch = replace(watch, suspect_seconds=watch.suspect_seconds + passed)
    if watch.suspect_seconds < watch.budget.second_seconds:
        return watch
    return replace(watch, verdict="confirmed" if half_heard >= watch.suspected_at else "observer")


def others_again(watch: Watch) -> Watch:
    """Ranks of another gang begin again: this one may have waited for them, and what it waited says nothing."""
    if watch.verdict == "over":
        return watch
    return replace(watch, verdict="watching", quiet_seconds=0.0, suspect_seconds=0.0, paused_since_step=True)


def half_heard_at(heard: Collection[float]) -> float:
    """The newest moment since which at least half of the launchers were heard.

    Args:
        heard: [launchers] Unix time of the last word of each; only needed while the verdict is `suspect` or `observer`.
    """
    return sorted(heard)[len(heard) // 2] if heard else NEVER


def _launched(watch: Watch, event: Launched) -> Watch:
    """A new incarnation: what was measured stays, as it is the same program."""
    if event.incarnation <= watch.incarnation:
        return watch
    hung = {**watch.hung, watch.step: watch.hung.get(watch.step, 0) + 1}
    return Watch(limits=watch.limits, verdict="watching", incarnation=event.incarnation, step=event.resume_step,
                 ticked_at=event.at, launched_at=event.at, restart_seconds=watch.restart_seconds, stride=watch.stride,
                 saved_step=max(watch.saved_step, event.resume_step), announced=watch.announced,
                 hindsight=watch.hindsight, steps=watch.steps, warm_steps=watch.warm_steps,
                 hung=hung if watch.verdict == "confirmed" else watch.hung)  # fmt: skip


def _alive(watch: Watch, at: float) -> Watch:
    ticked_at = at if watch.ticked_at is None else max(watch.ticked_at, at)
    return replace(watch, verdict="watching", quiet_seconds=0.0, suspect_seconds=0.0, ticked_at=ticked_at)


def _stepped(watch: Watch, event: Stepped) -> Watch:
    watch = _sampled(_resumed(watch, event), event)
    if event.step <= watch.step:
        return watch
    if not watch.stepped:
        watch = replace(watch, stepped=True, restart_seconds=max(0.0, event.at - watch.launched_at))
    left = event.step - PASSED * watch.stride
    pauses = {rank: pause for rank, pause in watch.pauses.items() if pause.step > left} if watch.pauses else {}
    ending = event.total_steps is not None and event.step >= event.total_steps > 0
    return _alive(replace(watch, step=event.step, ending=ending, pauses=pauses), event.at)


def _sampled(watch: Watch, event: Stepped) -> Watch:
    """With the time since the same rank's step before, unless somebody paused in between."""
    last = watch.reference
    if last is not None and (event.rank > last.rank or (event.rank == last.rank and event.step <= last.step)):
        return watch
    paused, watch = watch.paused_since_step, replace(watch, reference=event, paused_since_step=bool(watch.pauses))
    if last is None or event.rank < last.rank:
        return watch
    seconds, watch = event.told_at - last.told_at, replace(watch, stride=event.step - last.step)
    if watch.warm < WARM_STEPS:
        watch = replace(watch, warm=watch.warm + 1)
        return watch if paused else replace(watch, warm_steps=watch.warm_steps.and_(seconds))
    return watch if paused else replace(watch, steps=watch.steps.and_(seconds))


def _entered(watch: Watch, event: Entered) -> Watch:
    if event.phase not in DECLARED:
        was = watch.pauses.get(event.rank)
        # Of a program whose lines say nothing the growth of a file is told as a step, again and again.
        return _alive(_resumed(watch, event), event.at) if was is not None or event.phase == "step" else watch
    watch = replace(_resumed(watch, event), paused_since_step=True)
    if len(watch.pauses) < KEPT_PAUSES:
        pause = Pause(event.phase, event.at, event.told_at, watch.step, event.detail)
        watch = replace(watch, pauses={**watch.pauses, event.rank: pause})
    return _alive(watch, event.at)


def _resumed(watch: Watch, event: Union[Stepped, Entered]) -> Watch:
    """This rank's pause is over; from its moments is learned whether such pauses are told before they begin."""
    pause = watch.pauses.get(event.rank)
    if pause is None:
        return watch
    watch = replace(watch, pauses={rank: one for rank, one in watch.pauses.items() if rank != event.rank})
    own_words = isinstance(event, Entered) and pause.detail not in ("", event.detail)
    if own_words or event.at - pause.heard_at >= HEARD_APART_SECONDS:
        return replace(watch, announced=watch.announced | {pause.phase})
    if event.told_at - pause.told_at >= TOLD_APART_SECONDS:
        return replace(watch, hindsight=watch.hindsight | {pause.phase})
    return watch
