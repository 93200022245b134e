"""Formulas against the published values."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.decisions.formulas import (
    daly_interval_seconds,
    expected_ettr,
    expected_wall_seconds,
    failure_probability,
    mttf_hours,
    spares,
    young_interval_seconds,
)

MINUTE, HOUR = 60.0, 3600.0


@pytest.mark.parametrize(("nodes", "hours"), [(2048, 1.803), (16384, 0.225)])
def test_mean_time_to_failure_of_large_gangs(nodes: int, hours: float) -> None:
    assert mttf_hours(nodes, 6.5e-3) == pytest.approx(hours, abs=6e-4)
    assert mttf_hours(0, 6.5e-3) == float("inf")


@pytest.mark.parametrize(
    ("nodes", "rate", "restart", "interval", "queue", "share"),
    [
        (2000, 6.5e-3, 5, 60, 0, 0.684),
        (2000, 6.5e-3, 5, 5, 0, 0.932),
        (12500, 2.34e-3, 2, 2, 0, 0.939),
        (12500, 6.5e-3, 5, 7, 0, 0.520),
        (1000, 6.5e-3, 5, 30, 1, 0.906),
    ],
)
def test_expected_productive_share(
    nodes: int, rate: float, restart: float, interval: float, queue: float, share: float
) -> None:
    found = expected_ettr(nodes, rate, restart * MINUTE, interval * MINUTE, queue_seconds=queue * MINUTE)
    assert found == pytest.approx(share, abs=2e-3)


def test_no_share_is_promised_where_failures_come_faster_than_restarts() -> None:
    with pytest.raises(ValueError, match="restart_seconds"):
        expected_ettr(100_000, 6.5e-3, 600, 3600)


@pytest.mark.parametrize(
    ("mttf_minutes", "daly", "young"), [(24 * 60, 116.7, 120.0), (6 * 60, 56.7, 60.0), (15, 9.1, 12.2)]
)
def test_checkpoint_intervals_for_five_minutes_a_save(mttf_minutes: float, daly: float, young: float) -> None:
    found = daly_interval_seconds(5 * MINUTE, mttf_minutes * MINUTE) / MINUTE
    assert found == pytest.approx(daly, abs=0.06)
    assert young_interval_seconds(5 * MINUTE, mttf_minutes * MINUTE) / MINUTE == pytest.approx(young, abs=0.06)


def test_the_interval_is_near_the_minimum_of_the_exact_cost() -> None:
    stall, mttf = 5 * MINUTE, 6 * HOUR
    best = min(range(20, 120), key=lambda minutes: expected_wall_seconds(HOUR, minutes * MINUTE, stall, 0, mttf))
    assert daly_interval_seconds(stall, mttf) / MINUTE == pytest.approx(best, abs=1)
    assert daly_interval_seconds(3 * mttf, mttf) == mttf


@pytest.mark.parametrize("probability", [1.17e-3, 1.2e-3, 1.249e-3])
def test_spares_of_the_published_table(probability: float) -> None:
    assert [spares(nodes, probability) for nodes in (128, 256, 512, 1024)] == [2, 2, 3, 4]


@settings(deadline=None)
@given(st.integers(0, 3000), st.floats(0, 0.5))
def test_spares_stay_within_the_gang(nodes: int, probability: float) -> None:
    assert 0 <= spares(nodes, probability) <= nodes


def test_failure_probability() -> None:
    assert failure_probability(6.5e-3, 1.0) == pytest.approx(6.479e-3, abs=1e-5)
    with pytest.raises(ValueError, match="failure_probability"):
        spares(10, 1.0)
