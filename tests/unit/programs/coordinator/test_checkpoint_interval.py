"""Checkpoint intervals: published vectors, the minimum itself, advice from measurements."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflows.programs.coordinator.saves import (
    LEAST_SAVES,
    advice,
    daly_seconds,
    optimal_seconds,
    overhead,
    young_seconds,
)

MINUTE, HOUR = 60.0, 3600.0
STALLS, MTTFS = st.floats(1e-3, 1e4), st.floats(1.0, 1e8)


@pytest.mark.parametrize(
    ("mttf_minutes", "daly", "young", "exact"),
    [(24 * 60, 116.7, 120.0, 116.69), (6 * 60, 56.7, 60.0, 56.71), (15, 9.1, 12.2, 9.17)],
)
def test_the_figures_of_dalys_paper(mttf_minutes: float, daly: float, young: float, exact: float) -> None:
    given_figures = (5 * MINUTE, mttf_minutes * MINUTE)
    assert daly_seconds(*given_figures) / MINUTE == pytest.approx(daly, abs=0.06)
    assert young_seconds(*given_figures) / MINUTE == pytest.approx(young, abs=0.06)
    assert optimal_seconds(*given_figures) / MINUTE == pytest.approx(exact, abs=6e-3)


@settings(deadline=None)
@given(STALLS, MTTFS, st.floats(0.5, 0.99))
def test_no_other_interval_costs_less(stall: float, mttf: float, share: float) -> None:
    best = optimal_seconds(stall, mttf)
    least = overhead(best, stall, 0.0, mttf)
    assert all(overhead(best * factor, stall, 0.0, mttf) >= least * (1 - 1e-9) for factor in (share, 1 / share))
    assert 0 < best <= mttf


def test_advice_waits_for_measurements_and_for_a_gain() -> None:
    early = advice([1.0] * (LEAST_SAVES - 1), [], 1.0, 100, 1e5)
    assert (early.steps, early.change) == (100, False)
    assert "saves measured" in early.why
    for step, mttf in ((math.nan, 1e5), (0.0, 1e5), (1.0, 0.0), (1.0, math.inf)):
        assert not advice([1.0] * 9, [], step, 100, mttf).change
    # d = 5 min, M = 6 h, 10 s steps: 56.71 min = 340 steps; every 30 steps costs twice the time
    often = advice([300.0] * 3, [], 10.0, 30, 6 * HOUR)
    assert (often.steps, often.change) == (340, True)
    cost = [overhead(steps * 10.0, 300.0, 600.0, 6 * HOUR) for steps in (30, 340)]
    assert often.gain == pytest.approx(1 - cost[1] / cost[0])
    near = advice([300.0] * 3, [], 10.0, 330, 6 * HOUR)
    assert (near.steps, near.change) == (340, False), "a gain below a hundredth is no reason"


def test_background_saves_never_overtake_each_other() -> None:
    found = advice([0.05] * 3, [95.0, 90.0, 100.0], 1.0, 10, 1e4)
    assert found.steps == 95
    assert found.change
    assert advice([0.05] * 3, [94.5] * 3, 2.0, 10, 1e4).steps == 48, "rounded up: the drain is a floor"


@settings(deadline=None)
@given(st.lists(STALLS, min_size=3, max_size=9), st.floats(0.01, 100), st.integers(1, 10_000), MTTFS)
def test_advice_never_makes_it_worse(stalls: list[float], step: float, between: int, mttf: float) -> None:
    found = advice(stalls, [], step, between, mttf)
    assert found.steps >= 1
    assert 0 <= found.gain <= 1
    if found.change:
        stall = sorted(stalls)[len(stalls) // 2]
        assert overhead(found.seconds, stall, 1.0, mttf) < overhead(between * step, stall, 1.0, mttf)
