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
from dataclasses import dataclass, field
from typing import Collection, FrozenSet, Mapping, Optional, Sequence, Tuple, Union

from workflows.programs.runtime.flags import replace

LEAST_SAMPLES = 20
"""Steps below which their spread is not known, so that the configured floor holds."""
KEPT_SAMPLES = 256
"""Newest steps for p99, median and MAD; the longest one counts for ever."""
REPEAT_FACTOR = 8.0
"""Factor on the budget for each earlier hang at the same step."""
SECOND_WINDOW = 0.5
"""Second window as a share of the first: a hang is confirmed after 1.5 windows."""
LEAST_SECOND_SECONDS = 0.75
"""A rank that is stopped for 1 s, with the slowest steps on either side of it, is back before 1.75 s are over."""
MAD_TO_SIGMA = 1.4826
"""Standard deviation of a normal distribution, in median absolute deviations."""
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


Event = Union[GangLaunched, StepReported, PhaseEntered, CheckpointProven, RankLeft, GangOver]


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
    def mistake_seconds(self) -> float:
        """Seconds of work that a restart would throw away now."""
        lost = max(0, self.step - self.saved_step) / max(1, self.stride) * self.steps.median_seconds
        return lost + self.restart_seconds

    @property
    def budget(self) -> Budget:
        """The first window now."""
        found = self._step_budget if self.phase == "step" else pause_budget(self.limits, self.phase, Samples())
        times = self.hang_counts.get(self.step, 0)
        if not times:
            return found
        longer = max(self.limits.step_floor_seconds, found.seconds) * REPEAT_FACTOR ** (times - 1)
        return found.at_least(longer, "it stood still here before")

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
        budget = self.budget
        after = f"after step {self.step}" if self.has_stepped else "since the start"
        return (f"no progress for {self.quiet_seconds:.3g} s {after}, in phase {self.phase}; "
                f"limit {budget.seconds:.3g} s ({budget.rule}) + {budget.second_seconds:.3g} s")  # fmt: skip


def apply_event(watch: Watch, event: Event) -> Watch:
    """The watch after an event."""
    if isinstance(event, GangLaunched):
        return _launched(watch, event)
    if isinstance(event, CheckpointProven):
        return replace(watch, saved_step=max(watch.saved_step, event.step))
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
    watch = replace(watch, quiet_seconds=watch.quiet_seconds + passed)
    if watch.quiet_seconds < watch.limits.least_seconds:
        return watch
    if watch.verdict == "watching":
        hung = watch.quiet_seconds >= watch.budget.seconds
        return replace(watch, verdict="suspect", suspected_at=now, suspect_seconds=0.0) if hung else watch
    if watch.verdict == "observer":
        heard = majority_heard >= watch.suspected_at
        return replace(watch, verdict="suspect", suspected_at=now, suspect_seconds=0.0) if heard else watch
    watch = replace(watch, suspect_seconds=watch.suspect_seconds + passed)
    if watch.suspect_seconds < watch.budget.second_seconds:
        return watch
    return replace(watch, verdict="confirmed" if majority_heard >= watch.suspected_at else "observer")


def after_other_restart(watch: Watch) -> Watch:
    """The watch after a restart of another gang, for which this one may have waited: that wait does not count."""
    if watch.verdict == "over":
        return watch
    return replace(watch, verdict="watching", quiet_seconds=0.0, suspect_seconds=0.0, paused_since_step=True)


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
                 hang_counts=hung if watch.verdict == "confirmed" else watch.hang_counts)  # fmt: skip


def _left(watch: Watch, rank: int) -> Watch:
    """It is in no pause any more, and the times of steps come from the lowest rank that is left."""
    reference = None if watch.reference is not None and watch.reference.rank == rank else watch.reference
    return replace(watch, reference=reference, pauses={who: one for who, one in watch.pauses.items() if who != rank})


def _alive(watch: Watch, at: float) -> Watch:
    ticked_at = at if watch.ticked_at is None else max(watch.ticked_at, at)
    return replace(watch, verdict="watching", quiet_seconds=0.0, suspect_seconds=0.0, ticked_at=ticked_at)


def _stepped(watch: Watch, event: StepReported) -> Watch:
    watch = _sampled(_resumed(watch, event), event)
    if event.step <= watch.step:
        return watch
    if not watch.has_stepped:
        watch = replace(watch, has_stepped=True, restart_seconds=max(0.0, event.at - watch.launched_at))
    left = event.step - STRIDES_PAST_PAUSE * watch.stride
    pauses = {rank: pause for rank, pause in watch.pauses.items() if pause.step > left} if watch.pauses else {}
    ending = event.total_steps is not None and event.step >= event.total_steps > 0
    return _alive(replace(watch, step=event.step, is_ending=ending, pauses=pauses), event.at)


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
