"""Budgets of phases: golden vectors and what holds for every gang."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.recovery import HangLimits
from workflows.programs.coordinator.hang_watch import (
    KEPT_SAMPLES,
    LEAST_SAMPLES,
    Samples,
    early_budget,
    floor_seconds,
    measured_budget,
    pause_budget,
    step_budget,
)
from workflows.programs.coordinator.hang_watch import HangLimits as Limits


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


@pytest.mark.parametrize(
    ("announces", "mistake", "expected"),
    [
        (True, 0.5, 1.0),  # 0.1 s steps, saved just now: no window is shorter than a second
        (True, 3.0, 2.0),  # both windows together: 3 s
        (True, 600.0, 60.0),  # ten minutes at risk: the profile's floor, 90 s with the second window
        (False, 0.5, 60.0),  # a save that nobody announces would look like a hang
    ],
)
def test_the_floor_is_what_a_mistake_would_cost(announces: bool, mistake: float, expected: float) -> None:
    found = floor_seconds(Limits(), announces, mistake)
    assert found == pytest.approx(expected)


def test_steps_that_are_hardly_known_keep_the_configured_floor() -> None:
    assert step_budget(Limits(), Samples(), 1.0).seconds == 1800.0
    assert step_budget(Limits(), samples(0.1), 1.0).seconds == 60.0
    assert step_budget(Limits(), samples(90.0), 1.0).seconds == 900.0, "steps longer than the configured floor"
    assert step_budget(Limits(), samples(*EVEN[1:]), 1.0).seconds == 60.0
    assert step_budget(Limits(), samples(*EVEN), 1.0).seconds == 1.0
    assert early_budget(Limits(), samples(0.1, 30.0)).seconds == 300.0


def test_the_longest_step_is_remembered_though_the_spread_is_of_the_newest() -> None:
    found = samples(7.0, *(0.1,) * (2 * KEPT_SAMPLES))
    assert (found.longest, len(found.newest), max(found.newest)) == (7.0, KEPT_SAMPLES, 0.1)
    assert measured_budget(found, 1.0).seconds == 35.0


def test_declared_pauses_keep_their_own_limit_or_five_times_the_longest() -> None:
    assert pause_budget(Limits(), "checkpoint", Samples()).seconds == 1800.0
    assert pause_budget(Limits(), "checkpoint", samples(600.0)).seconds == 3000.0
    assert pause_budget(Limits(), "evaluation", Samples()).seconds == 3600.0
    assert pause_budget(Limits(init_seconds=5.0), "ending", Samples()).seconds == 5.0


def test_defaults_are_the_profiles() -> None:
    shared = ("init_seconds", "step_floor_seconds", "step_factor", "checkpoint_seconds")
    assert {name: getattr(HangLimits(), name) for name in shared} == {name: getattr(Limits(), name) for name in shared}


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
