"""Whether a gang is hung: a state machine over reports of ranks and passing time. Pure; events carry their times.

`hangs` drives it:

    watch = Watch(limits)
    watch = apply_event(watch, event)               # for each report, in order; old incarnations change nothing
    watch = tick(watch, now, majority_heard_at(…))  # a few times a second
    watch.verdict                                   # acted on when it changes

`watching` → `suspect` after the first window: ask all launchers for their stacks. → `confirmed` after the second: blame
the minority, restart. → `observer` where more than half of the launchers have been silent since the suspicion began:
then the coordinator is cut off, not the gang hung. Nothing is done, and the second window begins anew when they are
heard again. Any new step, the begin and end of a declared pause, and a new incarnation lead back to `watching`;
`confirmed` stays until one of these. Time in which the coordinator itself was stopped does not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Collection, FrozenSet, Mapping, Optional, Union

from workflows.programs.coordinator.budgets import (
    Budget,
    HangLimits,
    Samples,
    early_budget,
    floor_seconds,
    pause_budget,
    step_budget,
)
from workflows.programs.coordinator.life import Life, LifeSeen, Wait
from workflows.programs.runtime.flags import replace

REPEAT_FACTOR = 8.0
"""Factor on the budget for each earlier hang at the same step."""
STEPLESS_PHASES = ("init", "ending")
"""Phases in which no step is to be expected soon, so that signs of life say more."""
PAUSE_PHASES = ("checkpoint", "restore", "evaluation")
"""Phases in which a rank makes no steps and that it may declare."""

LONGEST_TICK_SECONDS = 1.0
"""More time between two ticks means that the coordinator itself stood still (a stopped process, a sleeping machine)."""
ANNOUNCED_AFTER_SECONDS = 0.1
"""A pause whose begin and end arrive so far apart was announced; launchers batch reports for less time."""
HINDSIGHT_AFTER_SECONDS = 0.25
"""A pause at least so long whose begin and end arrive together was reported by one line after its end."""
WARM_STEPS = 2
"""Steps after the first one in which programs still compile and record graphs."""
STRIDES_PAST_PAUSE = 2
"""A declared pause is over, or in the background, once the gang went on by so many strides; the first one may be other
ranks' report of the step before."""
KEPT_PAUSES = 64
"""Pauses kept at the same time; those that further ranks declare are the same one."""
NEVER = float("-inf")


@dataclass(frozen=True)
class GangLaunched:
    """Ranks of an incarnation were started."""

    at: float
    incarnation: int = 1
    resume_step: int = 0


@dataclass(frozen=True)
class StepReported:
    """A rank reports a step (`StepSeen`)."""

    at: float
    """Unix time in seconds when the coordinator received it."""
    rank: int
    step: int
    reported_at: float
    """When its launcher read the step, by that launcher's clock: late and batched reports do not change durations."""
    incarnation: int = 1
    total_steps: Optional[int] = None


@dataclass(frozen=True)
class PhaseEntered:
    """A rank reports a phase (`PhaseSeen`)."""

    at: float
    rank: int
    phase: str
    reported_at: float
    incarnation: int = 1
    detail: str = ""
    """The program's line that reported it; "": none."""


@dataclass(frozen=True)
class CheckpointProven:
    """A checkpoint was proven."""

    at: float
    step: int


@dataclass(frozen=True)
class RankLeft:
    """A rank has ended by itself, and well (`RankEnd`): the others may train on, or wait for it in vain."""

    at: float
    rank: int
    incarnation: int = 1


@dataclass(frozen=True)
class GangOver:
    """The gang was ordered to stop, or all of it ended: the watch ends."""

    at: float


Event = Union[GangLaunched, StepReported, PhaseEntered, CheckpointProven, LifeSeen, RankLeft, GangOver]


@dataclass(frozen=True)
class Pause:
    """A pause that a rank declared and is in."""

    phase: str
    received_at: float
    reported_at: float
    step: int
    """The gang's step when it began."""
    detail: str = ""
    """The program's line that declared it."""


@dataclass(frozen=True)
class Watch:
    """Progress of a gang, and the verdict on it."""

    limits: HangLimits = field(default_factory=HangLimits)
    verdict: str = "over"
    """`watching`, `suspect`, `observer`, `confirmed`; `over`: nothing to watch."""
    incarnation: int = 0
    step: int = 0
    """Highest step of this incarnation; before its first one the resumed step."""
    has_stepped: bool = False
    is_ending: bool = False
    """Whether the last planned step is done."""
    pauses: Mapping[int, Pause] = field(default_factory=lambda: {})
    """Present pauses by rank."""
    quiet_seconds: float = 0.0
    """Seconds since the last sign of progress, by the coordinator's ticks."""
    life: Life = field(default_factory=Life)
    """Until the first step, and after the last one."""
    suspect_seconds: float = 0.0
    suspected_at: float = 0.0
    ticked_at: Optional[float] = None
    launched_at: float = 0.0
    restart_seconds: float = 0.0
    """From the last start to its first step."""
    saved_step: int = 0
    reference: Optional[StepReported] = None
    """Newest step of the lowest living rank that reports; durations come from its clock alone."""
    stride: int = 1
    """Steps between two reports."""
    paused_since_step: bool = False
    announced_phases: FrozenSet[str] = frozenset()
    """Phases of pauses whose begin arrived before their end."""
    late_phases: FrozenSet[str] = frozenset()
    """Phases of pauses that were reported only when they were over."""
    steps: Samples = field(default_factory=Samples)
    warm_count: int = 0
    """Steps after the first one of this incarnation, counted to `WARM_STEPS`."""
    warm_steps: Samples = field(default_factory=Samples)
    hang_counts: Mapping[int, int] = field(default_factory=lambda: {})
    """Number of hangs by the step after which the gang hung."""

    @property
    def phase(self) -> str:
        """Phase of the gang: the pause of any rank with the longest budget, else `init`, `step` or `ending`."""
        if self.pauses:
            return max((pause.phase for pause in self.pauses.values()), key=self.limits.of)
        return "ending" if self.is_ending else "step" if self.has_stepped else "init"

    @property
    def wants_life(self) -> bool:
        """Whether signs of life say more than steps do."""
        return self.verdict != "over" and (not self.has_stepped or self.is_ending)

    @property
    def mistake_seconds(self) -> float:
        """Seconds of work that a restart would throw away now."""
        lost = max(0, self.step - self.saved_step) / max(1, self.stride) * self.steps.median_seconds
        return lost + self.restart_seconds

    @property
    def wait(self) -> Wait:
        """What is nearest to being called a hang."""
        if self.phase in STEPLESS_PHASES:
            waits = self.life.waits(self.limits, self.quiet_seconds, self.is_ending)
        else:
            budget = self._step_budget if self.phase == "step" else pause_budget(self.limits, self.phase, Samples())
            waits = [Wait(self.quiet_seconds, budget)]
        return max((one._replace(budget=self._patient(one.budget)) for one in waits), key=lambda one: one.share)

    @property
    def budget(self) -> Budget:
        """The first window now."""
        return self.wait.budget

    def _patient(self, budget: Budget) -> Budget:
        """The budget, or a longer one after hangs at this step."""
        times = self.hang_counts.get(self.step, 0)
        if not times:
            return budget
        longer = max(self.limits.step_floor_seconds, budget.seconds) * REPEAT_FACTOR ** (times - 1)
        return budget.at_least(longer, "it stood still here before")

    @property
    def _step_budget(self) -> Budget:
        if self.warm_count < WARM_STEPS:
            return early_budget(self.limits, self.warm_steps)
        announces = self.limits.announces or "checkpoint" in self.announced_phases
        floor = floor_seconds(self.limits, announces, self.mistake_seconds)
        found = step_budget(self.limits, self.steps, floor)
        for phase in () if self.limits.announces else sorted(self.late_phases - self.announced_phases):
            found = found.at_least(self.limits.of(phase), f"a {phase} is only told when it is over")
        return found

    @property
    def why(self) -> str:
        """The reason for the verdict, for people."""
        wait, budget = self.wait, self.budget
        after = f"after step {self.step}" if self.has_stepped else "since the start"
        return (f"no progress for {self.quiet_seconds:.3g} s {after}, in phase {self.phase}; "
                f"{wait.words}{'; ' if wait.words else ''}"
                f"limit {budget.seconds:.3g} s ({budget.rule}) + {budget.second_seconds:.3g} s")  # fmt: skip


def apply_event(watch: Watch, event: Event) -> Watch:
    """The watch after an event."""
    if isinstance(event, GangLaunched):
        return _launched(watch, event)
    if isinstance(event, CheckpointProven):
        life = replace(watch.life.with_sign(event.at), since=event.at)
        return replace(watch, saved_step=max(watch.saved_step, event.step), life=life)
    if isinstance(event, LifeSeen):
        return replace(watch, life=watch.life.with_look(event)) if watch.wants_life else watch
    if isinstance(event, GangOver):
        return replace(watch, verdict="over", pauses={})
    if watch.verdict == "over" or event.incarnation != watch.incarnation:
        return watch
    if isinstance(event, RankLeft):
        return _left(watch, event.rank)
    return _stepped(watch, event) if isinstance(event, StepReported) else _entered(watch, event)


def tick(watch: Watch, now: float, majority_heard: float) -> Watch:
    """The watch at `now` (Unix time in seconds); `majority_heard` comes from `majority_heard_at`."""
    passed = 0.0 if watch.ticked_at is None else min(max(0.0, now - watch.ticked_at), LONGEST_TICK_SECONDS)
    watch = replace(watch, ticked_at=now)
    if watch.verdict in ("over", "confirmed"):
        return watch
    watch = replace(watch, quiet_seconds=watch.quiet_seconds + passed, life=watch.life.later(passed))
    if watch.quiet_seconds < watch.limits.least_seconds:
        return watch
    wait = watch.wait
    hung = wait.share >= 1.0
    if watch.phase in STEPLESS_PHASES and not hung:
        return replace(watch, verdict="watching")  # somebody does something again
    if watch.verdict == "watching":
        return replace(watch, verdict="suspect", suspected_at=now, suspect_seconds=0.0) if hung else watch
    if watch.verdict == "observer":
        heard = majority_heard >= watch.suspected_at
        return replace(watch, verdict="suspect", suspected_at=now, suspect_seconds=0.0) if heard else watch
    watch = replace(watch, suspect_seconds=watch.suspect_seconds + passed)
    if watch.suspect_seconds < wait.budget.second_seconds:
        return watch
    return replace(watch, verdict="confirmed" if majority_heard >= watch.suspected_at else "observer")


def after_other_restart(watch: Watch) -> Watch:
    """The watch after a restart of another gang, for which this one may have waited: that wait does not count."""
    if watch.verdict == "over":
        return watch
    life = replace(watch.life, idle_seconds=0.0)
    return replace(watch, verdict="watching", quiet_seconds=0.0, suspect_seconds=0.0, paused_since_step=True, life=life)


def majority_heard_at(heard: Collection[float]) -> float:
    """The newest Unix time since which at least half of the launchers were heard.

    `heard` has the Unix time of each launcher's last request.
    """
    return sorted(heard)[len(heard) // 2] if heard else NEVER


def _launched(watch: Watch, event: GangLaunched) -> Watch:
    """A new incarnation of the same program: what was measured stays."""
    if event.incarnation <= watch.incarnation:
        return watch
    hung = {**watch.hang_counts, watch.step: watch.hang_counts.get(watch.step, 0) + 1}
    return Watch(limits=watch.limits, verdict="watching", incarnation=event.incarnation, step=event.resume_step,
                 ticked_at=event.at, launched_at=event.at, restart_seconds=watch.restart_seconds, stride=watch.stride,
                 saved_step=max(watch.saved_step, event.resume_step), announced_phases=watch.announced_phases,
                 late_phases=watch.late_phases, steps=watch.steps, warm_steps=watch.warm_steps,
                 life=Life(since=event.at, pauses=watch.life.pauses),
                 hang_counts=hung if watch.verdict == "confirmed" else watch.hang_counts)  # fmt: skip


def _left(watch: Watch, rank: int) -> Watch:
    """It is in no pause any more, and the times of steps come from the lowest rank that is left."""
    reference = None if watch.reference is not None and watch.reference.rank == rank else watch.reference
    return replace(watch, reference=reference, pauses={who: one for who, one in watch.pauses.items() if who != rank})


def _alive(watch: Watch, at: float) -> Watch:
    ticked_at = at if watch.ticked_at is None else max(watch.ticked_at, at)
    if not watch.has_stepped:
        watch = replace(watch, life=watch.life.with_sign(at))
    return replace(watch, verdict="watching", quiet_seconds=0.0, suspect_seconds=0.0, ticked_at=ticked_at)


def _stepped(watch: Watch, event: StepReported) -> Watch:
    watch = _sampled(_resumed(watch, event), event)
    # A rank that is behind goes on too: the one that was ahead may have ended, or does not wait for the others.
    if event.step <= watch.step and watch.reference is not event:
        return watch
    if not watch.has_stepped:
        watch = replace(watch, has_stepped=True, restart_seconds=max(0.0, event.at - watch.launched_at))
    left = event.step - STRIDES_PAST_PAUSE * watch.stride
    pauses = {rank: pause for rank, pause in watch.pauses.items() if pause.step > left} if watch.pauses else {}
    ending = event.total_steps is not None and event.step >= event.total_steps > 0
    if ending and not watch.is_ending:
        watch = replace(watch, life=Life(since=event.at, pauses=watch.life.pauses))
    step = max(watch.step, event.step)
    return _alive(replace(watch, step=step, is_ending=ending, pauses=pauses), event.at)


def _sampled(watch: Watch, event: StepReported) -> Watch:
    """Add the time since the same rank's last step as a sample, unless a rank paused in between."""
    last = watch.reference
    if last is not None and (event.rank > last.rank or (event.rank == last.rank and event.step <= last.step)):
        return watch
    paused, watch = watch.paused_since_step, replace(watch, reference=event, paused_since_step=bool(watch.pauses))
    if last is None or event.rank < last.rank:
        return watch
    seconds, watch = event.reported_at - last.reported_at, replace(watch, stride=event.step - last.step)
    if watch.warm_count < WARM_STEPS:
        watch = replace(watch, warm_count=watch.warm_count + 1)
        return watch if paused else replace(watch, warm_steps=watch.warm_steps.with_sample(seconds))
    return watch if paused else replace(watch, steps=watch.steps.with_sample(seconds))


def _entered(watch: Watch, event: PhaseEntered) -> Watch:
    if event.phase not in PAUSE_PHASES:
        was = watch.pauses.get(event.rank)
        # For a program without readable lines the growth of its file is reported as the phase `step`, repeatedly.
        return _alive(_resumed(watch, event), event.at) if was is not None or event.phase == "step" else watch
    watch = replace(_resumed(watch, event), paused_since_step=True)
    if len(watch.pauses) < KEPT_PAUSES:
        pause = Pause(event.phase, event.at, event.reported_at, watch.step, event.detail)
        watch = replace(watch, pauses={**watch.pauses, event.rank: pause})
    return _alive(watch, event.at)


def _resumed(watch: Watch, event: Union[StepReported, PhaseEntered]) -> Watch:
    """End this rank's pause, and learn from its times whether the program announces such pauses."""
    pause = watch.pauses.get(event.rank)
    if pause is None:
        return watch
    watch = replace(watch, pauses={rank: one for rank, one in watch.pauses.items() if rank != event.rank})
    own_words = isinstance(event, PhaseEntered) and pause.detail not in ("", event.detail)
    if own_words or event.at - pause.received_at >= ANNOUNCED_AFTER_SECONDS:
        return replace(watch, announced_phases=watch.announced_phases | {pause.phase})
    if event.reported_at - pause.reported_at >= HINDSIGHT_AFTER_SECONDS:
        return replace(watch, late_phases=watch.late_phases | {pause.phase})
    return watch
