"""When steps count as slower, and when they do not."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.diagnosis.step_times import ENOUGH, RATIO, StepTimes, falls_of
from workflows.model.records import StepRow


def steps(seconds: list[float], first: int = 1) -> list[StepRow]:
    """Steps of so many hundreds of seconds."""
    at, rows = 1000.0, list[StepRow]()
    for index, taken in enumerate(seconds):
        at += 100 * taken
        rows.append(StepRow(first + index, at))
    return rows


def noisy(seconds: float, count: int, seed: int, spread: float = 0.1) -> list[float]:
    chance = Random(seed)
    return [seconds * max(0.2, chance.gauss(1.0, spread)) for _ in range(count)]


def test_a_fall_is_found_where_it_began() -> None:
    rows = steps([0.1] * 100 + [0.15] * 60)
    [fall] = falls_of(rows)
    assert abs(fall.step - 101) <= 1
    assert fall.before_seconds == pytest.approx(10.0)
    assert fall.ratio == pytest.approx(1.5)
    assert fall.at == rows[fall.step - 1].at


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_no_fall_and_a_fall_in_noise_is_found(seed: int) -> None:
    assert falls_of(steps(noisy(0.1, 3000, seed))) == ()
    [fall] = falls_of(steps(noisy(0.1, 300, seed) + noisy(0.14, 300, seed + 1)))
    assert 290 <= fall.step <= 340
    assert fall.ratio > RATIO


@pytest.mark.parametrize(
    "seconds",
    [
        [0.1] * 300,
        [5.0, 3.0, 2.0] + [0.1] * 300,  # warm-up
        ([0.1] * 24 + [2.0]) * 12,  # a save every 25 steps
        [0.1] * 100 + [0.11] * 200,  # ten per cent are not enough
        [0.1] * 100 + [0.5] * (ENOUGH // 2) + [0.1] * 100,  # over before it is told
        [0.1] * 40,
        [],
    ],
)
def test_what_is_no_fall(seconds: list[float]) -> None:
    assert falls_of(steps(seconds)) == ()


def test_it_is_told_once_and_a_second_one_is_told_again() -> None:
    assert len(falls_of(steps([0.1] * 100 + [0.15] * 400))) == 1
    first, second = falls_of(steps([0.1] * 100 + [0.15] * 100 + [0.3] * 100))
    assert first.step < 110 < second.step
    assert second.before_seconds == pytest.approx(15.0)


def test_who_becomes_faster_is_compared_with_that() -> None:
    [fall] = falls_of(steps([0.2] * 100 + [0.1] * 100 + [0.15] * 100))
    assert fall.before_seconds == pytest.approx(10.0)


def test_quick_steps_are_slower_only_where_they_are_for_a_minute() -> None:
    quick = [0.02] * 20_000
    assert falls_of(timed(quick + [0.05] * 500 + quick)) == (), "half a minute"
    [fall] = falls_of(timed(quick + [0.05] * 3000))
    assert 19_800 <= fall.step <= 20_200
    assert fall.ratio == pytest.approx(2.5, rel=0.05)


def timed(seconds: list[float]) -> list[StepRow]:
    at, rows = 1000.0, list[StepRow]()
    for index, taken in enumerate(seconds, 1):
        at += taken
        rows.append(StepRow(index, at))
    return rows


def test_what_the_program_says_of_a_step_outranks_the_clock() -> None:
    rows = [StepRow(step, 1000.0 + step * (90.0 if step > 100 else 10.0), seconds=10.0) for step in range(1, 200)]
    assert falls_of(rows) == ()


@given(st.lists(st.floats(allow_nan=True) | st.floats(1.0, 100.0), max_size=300), st.integers(0, 300))
def test_however_steps_come_in_the_falls_are_the_same(seconds: list[float], cut: int) -> None:
    rows = [StepRow(index, 1000.0 + index, seconds=taken) for index, taken in enumerate(seconds)]
    times = StepTimes()
    bits = [fall for part in (rows[:cut], rows[cut:]) for row in part if (fall := times.add(row)) is not None]
    assert tuple(bits) == falls_of(rows)
    assert all(fall.ratio > RATIO and math.isfinite(fall.ratio) for fall in bits)
