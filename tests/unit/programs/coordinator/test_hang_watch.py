"""The watch over a gang, played with a clock of our own: what is hung, what is only slow, who does not hear.

Budgets of phases: golden vectors and what holds for every gang.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.recovery import HangLimits as ProfileLimits
from tests.support.cases.rows import rows
from workflows.programs.coordinator.budgets import (
    KEPT_SAMPLES,
    LEAST_SAMPLES,
    HangLimits,
    Samples,
    early_budget,
    floor_seconds,
    measured_budget,
    pause_budget,
    step_budget,
)
from workflows.programs.coordinator.hang_watch import (
    NEVER,
    CheckpointProven,
    GangLaunched,
    GangOver,
    PhaseEntered,
    StepReported,
    Watch,
    apply_event,
    majority_heard_at,
    tick,
)

TICK = 0.1
DEMO = HangLimits(announces=True)


@dataclass
class Gang:
    """A gang on a clock that is moved by hand; launchers are heard at every tick unless they are cut off."""

    limits: HangLimits = DEMO
    now: float = 1000.0
    cut_off: bool = False
    skew: float = 0.0
    """Of the launchers' clock."""
    heard: float = 0.0
    watch: Watch = field(init=False)
    verdicts: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    step: int = 0
    incarnation: int = 1

    def __post_init__(self) -> None:
        self.watch = apply_event(Watch(self.limits), GangLaunched(self.now))
        self.heard = self.now

    def wait(self, seconds: float, ticks: float = TICK) -> None:
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.now = min(end, self.now + ticks)
            self.heard = self.heard if self.cut_off else self.now
            self.watch = tick(self.watch, self.now, self.heard)
            if not self.verdicts or self.verdicts[-1][1] != self.watch.verdict:
                self.verdicts.append((self.now, self.watch.verdict))

    def steps(self, count: int, seconds: float, rank: int = 0, total: int | None = None) -> None:
        for _ in range(count):
            self.wait(seconds)
            self.step += 1
            told = self.now + self.skew
            event = StepReported(self.now, rank, self.step, told, self.incarnation, total)
            self.watch = apply_event(self.watch, event)

    def enters(self, phase: str, rank: int = 0, told_before: float = 0.0) -> None:
        told = self.now - told_before + self.skew
        self.watch = apply_event(self.watch, PhaseEntered(self.now, rank, phase, told, self.incarnation))

    def saves(self, seconds: float = 0.02) -> None:
        self.enters("checkpoint")
        self.wait(seconds, min(TICK, seconds))
        self.enters("step")
        self.watch = apply_event(self.watch, CheckpointProven(self.now, self.step))

    def seen(self) -> set[str]:
        return {verdict for _, verdict in self.verdicts}

    def first(self, verdict: str) -> float:
        return next(at for at, one in self.verdicts if one == verdict)


def trained(seconds: float = 0.1, saves: int = 6, **options: object) -> Gang:
    """A gang that trained 5 steps between two saves, and 3 after the last one."""
    gang = Gang(**options)  # type: ignore[arg-type]
    for _ in range(saves):
        gang.steps(5, seconds)
        gang.saves()
    gang.steps(3, seconds)
    assert gang.seen() == {"watching"}
    gang.verdicts.clear()
    return gang


def test_a_hang_among_steps_of_a_tenth_of_a_second_is_confirmed_within_two() -> None:
    gang = trained()
    since = gang.now
    gang.wait(10)
    assert gang.first("suspect") - since == pytest.approx(1.0, abs=2 * TICK)
    assert 1.75 - 1e-6 <= gang.first("confirmed") - since <= 2.0
    assert gang.watch.verdict == "confirmed"
    assert "after step 33, in phase step; limit 1 s (floor) + 0.75 s" in gang.watch.why


@pytest.mark.parametrize("stopped", [1.0, 1.3])
def test_a_rank_that_is_stopped_for_a_second_is_at_most_suspected(stopped: float) -> None:
    gang = trained()
    gang.wait(stopped)
    gang.steps(40, 0.1)
    assert "confirmed" not in gang.seen()
    assert gang.watch.verdict == "watching"
    assert gang.watch.budget.seconds == pytest.approx(5 * (stopped + 0.1), abs=1e-6), "what was survived is remembered"


def test_a_gang_three_times_slower_for_thirty_steps_is_not_even_suspected() -> None:
    for seconds in (0.1, 1.0, 60.0):
        gang = trained(seconds)
        gang.steps(30, 3 * seconds)
        gang.steps(5, seconds)
        assert gang.seen() == {"watching"}


def test_a_checkpoint_of_minutes_is_none_and_a_hang_inside_it_has_its_own_limit() -> None:
    gang = trained()
    gang.saves(seconds=400.0)
    gang.steps(5, 0.1)
    assert gang.seen() == {"watching"}
    assert gang.watch.budget.seconds == pytest.approx(1.0), "it never became a measure of steps"
    gang.enters("checkpoint", rank=3)
    since = gang.now
    gang.wait(3000, 0.5)
    assert gang.first("suspect") - since == pytest.approx(1800, abs=1)
    assert gang.first("confirmed") - since == pytest.approx(2700, abs=2)


def test_the_rank_that_saves_need_not_be_the_one_that_tells_steps() -> None:
    gang = trained()
    gang.enters("checkpoint", rank=7)
    gang.steps(1, 0.05, rank=0)  # the report of the step before the save
    gang.wait(30)
    assert gang.seen() == {"watching"}
    gang.steps(4, 0.1, rank=0)
    assert gang.watch.phase == "step", "no end was told, but the gang went on"
    gang.wait(3)
    assert gang.watch.verdict == "confirmed"


def test_reports_that_were_held_up_are_measured_by_the_clock_that_made_them() -> None:
    gang = trained()
    start = gang.now
    gang.wait(1.5)  # the coordinator hears nothing, then all at once
    for step in range(34, 49):
        gang.watch = apply_event(gang.watch, StepReported(gang.now, 0, step, start + (step - 33) * 0.1))
    assert gang.watch.verdict == "watching"
    assert gang.watch.steps.longest == pytest.approx(0.1, abs=1e-6)


def test_a_confirmed_hang_stays_one_until_somebody_acts() -> None:
    gang = trained()
    gang.wait(3)
    gang.cut_off = True
    gang.wait(30)
    assert gang.watch.verdict == "confirmed"


def test_slow_steps_take_five_of_them() -> None:
    gang = trained(60.0)
    since = gang.now
    gang.wait(299)
    assert gang.watch.verdict == "watching"
    gang.wait(2)
    assert gang.watch.verdict == "suspect"
    gang.wait(1000, 0.5)
    assert gang.first("confirmed") - since == pytest.approx(450, abs=2)


def test_what_is_at_risk_asks_for_patience() -> None:
    gang = trained()
    gang.steps(570, 0.1)  # 573 steps of 0.1 s since the last save: 57.3 s, and 0.1 s of a start
    since = gang.now
    gang.wait(100)
    assert gang.first("confirmed") - since == pytest.approx(57.4, abs=0.5)


def test_a_program_that_was_never_seen_to_announce_a_save_keeps_the_configured_floor() -> None:
    gang = Gang(HangLimits())
    gang.steps(40, 0.1)
    gang.wait(59)
    assert gang.watch.verdict == "watching"
    gang.steps(20, 0.1)
    gang.saves(seconds=0.5)
    gang.steps(5, 0.1)
    assert gang.watch.announced_phases == {"checkpoint"}
    assert gang.watch.budget.rule != "floor", "five times the minute that was survived"


def test_learned_from_the_first_announced_save() -> None:
    gang = Gang(HangLimits())
    gang.steps(40, 0.1)
    assert gang.watch.budget.seconds == 60.0
    gang.saves(seconds=0.5)
    gang.steps(5, 0.1)
    assert gang.watch.budget.seconds == pytest.approx(1.0)


@pytest.mark.parametrize("skew", [0.0, -20.0, 20.0])
def test_pauses_that_are_only_told_when_they_are_over_are_waited_for(skew: float) -> None:
    gang = Gang(HangLimits(), skew=skew)
    gang.steps(40, 0.1)
    gang.wait(30)
    gang.enters("checkpoint", told_before=30.0)
    gang.enters("step")
    gang.steps(40, 0.1)
    assert gang.watch.late_phases == {"checkpoint"}
    assert gang.watch.announced_phases == set()
    assert gang.watch.budget.seconds == 1800.0
    gang.wait(600, 0.5)
    gang.steps(5, 0.1)
    assert gang.seen() == {"watching"}


def test_nothing_is_learned_from_saves_shorter_than_a_batch_of_reports() -> None:
    gang = Gang(HangLimits())
    gang.steps(40, 0.1)
    gang.enters("checkpoint", told_before=0.01)
    gang.enters("step")
    assert (gang.watch.announced_phases, gang.watch.late_phases) == (set(), set())


def test_start_compilation_and_end_have_limits_of_their_own() -> None:
    gang = Gang(HangLimits(init_seconds=300.0, announces=True))
    gang.wait(290, 1.0)
    gang.steps(1, 1.0)
    gang.steps(1, 40.0)  # it compiles
    gang.steps(60, 0.1)
    gang.saves()
    assert gang.watch.budget.seconds == 60.0, "291 s from start to first step would be lost again"
    gang.steps(1, 0.1, total=gang.step + 1)
    gang.wait(290, 1.0)
    assert gang.watch.phase == "ending"
    assert gang.seen() == {"watching"}
    gang.watch = apply_event(gang.watch, GangOver(gang.now))
    gang.wait(1000, 1.0)
    assert gang.watch.verdict == "over"


def test_after_a_restart_the_first_steps_may_compile_again() -> None:
    gang = Gang(DEMO)
    gang.steps(1, 0.1)
    gang.steps(1, 20.0)
    gang.steps(40, 0.1)
    gang.saves()
    gang.steps(3, 0.1)
    gang.wait(10)
    assert gang.watch.verdict == "confirmed"
    gang.incarnation, gang.step = 2, 42
    gang.watch = apply_event(gang.watch, GangLaunched(gang.now, 2, resume_step=42))
    gang.verdicts.clear()
    gang.steps(1, 0.3)
    gang.steps(1, 25.0)
    gang.steps(10, 0.1)
    assert gang.seen() == {"watching"}
    assert gang.watch.budget.seconds == pytest.approx(1.0)


def test_at_the_same_step_again_it_is_waited_longer_each_time() -> None:
    gang = trained()
    found: list[float] = []
    for incarnation in (2, 3, 4):
        since = gang.now
        gang.verdicts.clear()
        gang.wait(2000, 0.5)
        found.append(gang.first("confirmed") - since)
        gang.incarnation, gang.step = incarnation, 30
        gang.watch = apply_event(gang.watch, GangLaunched(gang.now, incarnation, resume_step=30))
        gang.steps(3, 0.1)
    assert found == pytest.approx([2.0, 90.0, 720.0], abs=1.5)


def test_reports_of_an_old_incarnation_are_no_progress() -> None:
    gang = trained()
    gang.wait(3)
    gang.incarnation = 2
    gang.watch = apply_event(gang.watch, GangLaunched(gang.now, 2, resume_step=30))
    before = gang.watch
    late = (
        StepReported(gang.now, 0, 34, gang.now, 1),
        PhaseEntered(gang.now, 0, "checkpoint", gang.now, 1),
        GangLaunched(gang.now, 1),
    )
    for event in late:
        assert apply_event(before, event) == before


def test_who_is_cut_off_from_most_launchers_holds_and_looks_again() -> None:
    gang = trained()
    gang.cut_off = True
    gang.wait(30)
    assert gang.watch.verdict == "observer"
    assert "confirmed" not in gang.seen()
    gang.cut_off = False
    gang.steps(20, 0.1)
    assert gang.watch.verdict == "watching"
    assert "confirmed" not in gang.seen()


def test_a_hang_behind_the_silence_is_found_when_launchers_are_heard_again() -> None:
    gang = trained()
    gang.cut_off = True
    gang.wait(30)
    gang.cut_off = False
    since = gang.now
    gang.wait(3)
    assert gang.first("confirmed") - since == pytest.approx(0.85, abs=0.2)


def test_more_than_half() -> None:
    assert majority_heard_at([]) == NEVER
    assert majority_heard_at([5.0]) == 5.0
    assert majority_heard_at([1.0, 9.0]) == 9.0, "one of two is not more than half"
    assert majority_heard_at([1.0, 2.0, 9.0]) == 2.0, "two of three are"
    assert majority_heard_at([9.0, 1.0, 8.0, 2.0]) == 8.0


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_coordinator_that_slept_or_whose_clock_jumped_blames_nobody(jump: float) -> None:
    gang = trained(60.0)
    gang.now += jump
    gang.heard = gang.now
    gang.watch = tick(gang.watch, gang.now, gang.heard)
    gang.watch = tick(gang.watch, gang.now + 0.1, gang.heard)
    assert gang.watch.verdict == "watching"
    gang.steps(10, 60.0)
    assert "confirmed" not in gang.seen()


GAPS = st.lists(st.floats(0.02, 4.9), min_size=30, max_size=80)


@settings(deadline=None, max_examples=50)
@given(GAPS, st.sampled_from([0.05, 0.2, 1.0]))
def test_never_while_steps_advance_within_five_times_the_longest(gaps: list[float], unit: float) -> None:
    gang = Gang(DEMO)
    gang.steps(25, unit)
    gang.verdicts.clear()
    for gap in gaps:
        gang.steps(1, gap * unit)
    assert "confirmed" not in gang.seen()


ORDER = ("watching", "suspect", "confirmed")


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0.0, 2.0), min_size=1, max_size=80), st.sampled_from([0.05, 0.2, 1.0]))
def test_without_events_the_verdict_only_becomes_graver(pauses: list[float], unit: float) -> None:
    gang = trained(unit)
    verdicts = [gang.watch.verdict]
    for pause in pauses:
        gang.wait(pause, max(pause, 0.01))
        verdicts.append(gang.watch.verdict)
    assert all(ORDER.index(earlier) <= ORDER.index(later) for earlier, later in pairwise(verdicts))
    gang.wait(1000, 0.5)
    assert gang.watch.verdict == "confirmed", "every hang is found"


def samples(*seconds: float) -> Samples:
    found = Samples()
    for one in seconds:
        found = found.with_sample(one)
    return found


EVEN = (0.1,) * 20
SPREAD = tuple(1.0 + 0.1 * index for index in range(21))  # median 2.0, MAD 0.5, longest 3.0
ONE_LONG = (*(1.0,) * 30, 4.0)


@pytest.mark.parametrize(
    ("seconds", "floor", "factor", "expected", "rule"),
    [
        (EVEN, 1.0, 5.0, 1.0, "floor"),
        (EVEN, 0.2, 5.0, 0.5, "5 x the longest"),
        (EVEN, 60.0, 5.0, 60.0, "floor"),
        ((60.0,) * 20, 60.0, 5.0, 300.0, "5 x the longest"),
        (ONE_LONG, 1.0, 5.0, 20.0, "5 x the longest"),
        (ONE_LONG, 1.0, 2.0, 12.0, "3 x p99"),
        (SPREAD, 1.0, 5.0, 15.0, "5 x the longest"),
        (SPREAD, 1.0, 1.5, 2.0 + 10 * 1.4826 * 0.5, "median + 10 sigma"),
        ((0.5,), 0.1, 5.0, 2.5, "5 x the longest"),
    ],
)
def test_golden_budgets(seconds: tuple[float, ...], floor: float, factor: float, expected: float, rule: str) -> None:
    found = measured_budget(samples(*seconds), floor, factor)
    assert (found.seconds, found.rule) == (pytest.approx(expected), rule)


@rows("programs/coordinator/hang_watch")
def test_the_floor_is_what_a_mistake_would_cost(announces: bool, mistake: float, expected: float) -> None:
    found = floor_seconds(HangLimits(), announces, mistake)
    assert found == pytest.approx(expected)


def test_steps_that_are_hardly_known_keep_the_configured_floor() -> None:
    assert step_budget(HangLimits(), Samples(), 1.0).seconds == 1800.0
    assert step_budget(HangLimits(), samples(0.1), 1.0).seconds == 60.0
    assert step_budget(HangLimits(), samples(90.0), 1.0).seconds == 900.0, "steps longer than the configured floor"
    assert step_budget(HangLimits(), samples(*EVEN[1:]), 1.0).seconds == 60.0
    assert step_budget(HangLimits(), samples(*EVEN), 1.0).seconds == 1.0
    assert early_budget(HangLimits(), samples(0.1, 30.0)).seconds == 300.0


def test_the_longest_step_is_remembered_though_the_spread_is_of_the_newest() -> None:
    found = samples(7.0, *(0.1,) * (2 * KEPT_SAMPLES))
    assert (found.longest, len(found.newest), max(found.newest)) == (7.0, KEPT_SAMPLES, 0.1)
    assert measured_budget(found, 1.0).seconds == 35.0


def test_declared_pauses_keep_their_own_limit_or_five_times_the_longest() -> None:
    assert pause_budget(HangLimits(), "checkpoint", Samples()).seconds == 1800.0
    assert pause_budget(HangLimits(), "checkpoint", samples(600.0)).seconds == 3000.0
    assert pause_budget(HangLimits(), "evaluation", Samples()).seconds == 3600.0
    assert pause_budget(HangLimits(init_seconds=5.0), "ending", Samples()).seconds == 5.0


def test_defaults_are_the_profiles() -> None:
    shared = ("init_seconds", "step_floor_seconds", "step_factor", "checkpoint_seconds")
    assert {name: getattr(ProfileLimits(), name) for name in shared} == {
        name: getattr(HangLimits(), name) for name in shared
    }


@given(st.lists(st.floats(1e-3, 1e4), min_size=LEAST_SAMPLES, max_size=60), st.floats(0.1, 100), st.floats(1.1, 10))
def test_no_window_is_shorter_than_the_floor_or_five_times_the_longest(
    seconds: list[float], floor: float, factor: float
) -> None:
    found = measured_budget(samples(*seconds), floor, factor)
    assert found.seconds >= max(floor, factor * max(seconds) * (1 - 1e-12))
    more = measured_budget(samples(*seconds, max(seconds) * 2), floor, factor)
    assert more.seconds >= factor * max(seconds) * 2 * (1 - 1e-12), "a step that was survived makes it longer"
    assert found.second_seconds >= max(0.75, found.seconds / 2)


@given(st.lists(st.one_of(st.floats(), st.just(math.nan)), max_size=30))
def test_what_is_no_time_is_no_sample(seconds: list[float]) -> None:
    found = samples(*seconds)
    good = [value for value in seconds if math.isfinite(value) and value >= 0]
    assert (found.count, found.longest) == (len(good), max(good, default=0.0))
