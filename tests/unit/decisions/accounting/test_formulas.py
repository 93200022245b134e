"""Formulas against the published values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.decisions.accounting.advice import (
    asynchronous_interval_seconds,
    availability_interval_seconds,
    daly_interval_seconds,
    expected_wall_seconds,
    failure_probability,
    optimal_interval_seconds,
    shortage_probability,
    spares,
    spares_pay,
    two_level_intervals,
    young_interval_seconds,
)
from flows.decisions.accounting.reliability import (
    LARGEST_CHANGE,
    PRIOR_RATE,
    believed_rate,
    expected_ettr,
    expected_rate,
    failure_rate,
    gamma_quantile,
    gamma_share,
    mttf_hours,
    simulated_ettr,
)
from tests.support.cases.rows import rows

MINUTE, HOUR = 60.0, 3600.0


@pytest.mark.parametrize(("nodes", "hours"), [(2048, 1.803), (16384, 0.225)])
def test_mean_time_to_failure_of_large_gangs(nodes: int, hours: float) -> None:
    assert mttf_hours(nodes, 6.5e-3) == pytest.approx(hours, abs=6e-4)
    assert mttf_hours(0, 6.5e-3) == float("inf")


@rows("accounting/formulas")
def test_expected_productive_share(
    nodes: int, rate: float, restart: float, interval: float, queue: float, share: float
) -> None:
    found = expected_ettr(nodes, rate, restart * MINUTE, interval * MINUTE, queue_seconds=queue * MINUTE)
    assert found == pytest.approx(share, abs=2e-3)


def test_no_share_is_promised_where_failures_come_faster_than_restarts() -> None:
    for form in (expected_ettr, simulated_ettr):
        with pytest.raises(ValueError, match="restart_seconds"):
            form(100_000, 6.5e-3, 600, 3600)


@pytest.mark.parametrize(
    ("nodes", "interval", "queue", "simulated", "closed"),
    [(2000, 5, 0, 0.934, 0.932), (512, 60, 5, 0.909, 0.908), (2000, 60, 0, 0.722, 0.684)],
)
def test_played_failures_agree_with_the_closed_form_until_the_interval_nears_them(
    nodes: int, interval: float, queue: float, simulated: float, closed: float
) -> None:
    given = (nodes, 6.5e-3, 5 * MINUTE, interval * MINUTE, 0.0, queue * MINUTE)
    assert simulated_ettr(*given) == pytest.approx(simulated, abs=4e-3)
    assert expected_ettr(*given) == pytest.approx(closed, abs=2e-3)
    # What this comes to without any sampling: whole intervals between failures, M e^(-u0/M) / (e^(dt/M) - 1) of them.
    mttf = 86400 / (nodes * 6.5e-3)
    exact = interval * MINUTE * math.exp(-300 / mttf) / math.expm1(interval * MINUTE / mttf) / (mttf + queue * MINUTE)
    assert simulated_ettr(*given) == pytest.approx(exact, rel=1e-4)


def test_a_short_run_pays_for_its_start_and_a_run_without_failures_for_its_saves_only() -> None:
    long = expected_ettr(64, 6.5e-3, 300, 3600, 10, 60)
    assert expected_ettr(64, 6.5e-3, 300, 3600, 10, 60, work_seconds=365 * 86400) == pytest.approx(long, rel=1e-4)
    assert expected_ettr(64, 6.5e-3, 300, 3600, 10, 60, work_seconds=3600) < long
    assert simulated_ettr(64, 0.0, 300, 3600, 400) == pytest.approx(0.9)
    assert expected_ettr(64, 0.0, 300, 3600, 400) == pytest.approx(0.9)
    # T = 3900 / (1 - 64 r (300 + 1800)) and W = T (1 + 10/3600) (1 + 64 r 60) + 60, by hand
    rate = 64 * 6.5e-3 / 86400
    by_hand = 3600 / (3900 / (1 - rate * 2100) * (1 + 10 / 3600) * (1 + rate * 60) + 60)
    assert expected_ettr(64, 6.5e-3, 300, 3600, 10, 60, 3600) == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize(
    ("mttf_minutes", "daly", "young", "exact"),
    [(24 * 60, 116.7, 120.0, 116.69), (6 * 60, 56.7, 60.0, 56.71), (15, 9.1, 12.2, 9.17)],
)
def test_checkpoint_intervals_for_five_minutes_a_save(
    mttf_minutes: float, daly: float, young: float, exact: float
) -> None:
    found = daly_interval_seconds(5 * MINUTE, mttf_minutes * MINUTE) / MINUTE
    assert found == pytest.approx(daly, abs=0.06)
    assert young_interval_seconds(5 * MINUTE, mttf_minutes * MINUTE) / MINUTE == pytest.approx(young, abs=0.06)
    assert optimal_interval_seconds(5 * MINUTE, mttf_minutes * MINUTE) / MINUTE == pytest.approx(exact, abs=6e-3)


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
        spares(10, 1.1)
    assert spares(10, 1.0) == 10


def test_spares_of_a_gang_in_which_no_day_passes_without_a_failure() -> None:
    assert spares(3000, 0.5) == 1564, "a binomial quantile; the probability of no failure is no float any more"
    with pytest.raises(ValueError, match="confidence"):
        spares(10, 0.1, 1.0)


@settings(deadline=None)
@given(st.integers(1, 400), st.floats(1e-4, 0.2))
def test_spares_are_the_smallest_number_that_covers(nodes: int, probability: float) -> None:
    from math import comb

    def covers(count: int) -> float:
        return sum(comb(nodes, k) * probability**k * (1 - probability) ** (nodes - k) for k in range(count + 1))

    found = spares(nodes, probability)
    assert covers(found) >= 0.99 - 1e-9
    assert found == 0 or covers(found - 1) < 0.99 + 1e-9


def test_a_spare_pays_where_failures_are_frequent_and_a_new_gang_is_slow() -> None:
    # 128 nodes, 0.832 failures a day: (3600 - 60) s x 128 nodes x 0.832 = 4.36 node-days saved a day
    assert spares_pay(128, 6.5e-3, 3600, 60, 4)
    assert not spares_pay(128, 6.5e-3, 3600, 60, 5)
    assert not spares_pay(8, 6.5e-3, 600, 60, 1)


def test_how_likely_the_spares_do_not_last() -> None:
    assert shortage_probability(100, 0.01, 1.0, 0) == pytest.approx(0.632, abs=1e-3)  # 1 - e^-1
    assert shortage_probability(100, 0.01, 1.0, 3) == pytest.approx(0.019, abs=1e-3)
    assert shortage_probability(100, 0.0, 1.0, 0) == 0.0


@settings(deadline=None)
@given(st.floats(0.1, 1e4), st.floats(10.0, 1e7))
def test_the_optimum_is_not_beaten_nearby_nor_by_the_formulas(stall: float, mttf: float) -> None:
    best = optimal_interval_seconds(stall, mttf)

    def cost(interval: float) -> float:
        return expected_wall_seconds(1.0, interval, stall, 0.0, mttf)

    assert 0 < best <= mttf
    # Only where a float can hold the cost at all
    if (best + stall) / mttf < 500:
        assert cost(best) <= cost(best * 1.05) * (1 + 1e-9)
        assert cost(best) <= cost(best * 0.95) * (1 + 1e-9)


def test_the_interval_at_the_best_availability_counts_the_save_and_heeds_late_detection() -> None:
    best = availability_interval_seconds(60, 6 * HOUR, 300)
    assert best == pytest.approx(60 + (2 * (6 * HOUR + 300) * 60 + 3600) ** 0.5)
    assert availability_interval_seconds(60, 6 * HOUR, 300, detection_seconds=2 * HOUR) == 2 * HOUR


def test_a_save_in_the_background_costs_its_stall_but_must_drain() -> None:
    assert asynchronous_interval_seconds(1, 60, 6 * HOUR) == optimal_interval_seconds(1, 6 * HOUR)
    assert asynchronous_interval_seconds(1, 600, 6 * HOUR) == 600


def test_two_levels_are_each_as_frequent_as_their_failures() -> None:
    found = two_level_intervals(1, 6 * HOUR, 60, 72 * HOUR)
    assert found.memory_seconds == optimal_interval_seconds(1, 6 * HOUR)
    assert found.storage_seconds / found.memory_seconds == pytest.approx(27, abs=0.5)
    assert found.storage_seconds == pytest.approx(optimal_interval_seconds(60, 72 * HOUR), rel=0.02)


@pytest.mark.parametrize(
    ("failures", "low", "high"), [(0, 0.0, 3.689), (1, 0.0253, 5.572), (10, 4.795, 18.39), (100, 81.36, 121.6)]
)
def test_intervals_of_a_counted_rate_are_the_published_ones(failures: int, low: float, high: float) -> None:
    found = failure_rate(failures, 1.0)
    assert (found.low, found.high) == (pytest.approx(low, rel=1e-3), pytest.approx(high, rel=1e-3))
    assert found.mttf_hours(2) == (None if not failures else pytest.approx(12 / failures))
    shortest, longest = found.mttf_interval_hours(2)
    assert shortest == pytest.approx(12 / high, rel=1e-3)
    assert longest is None if not failures else longest == pytest.approx(12 / low, rel=2e-3)


def test_where_nothing_ran_no_rate_is_known() -> None:
    assert failure_rate(0, 0.0).mttf_hours(8) is None
    with pytest.raises(ValueError, match="must not be negative"):
        failure_rate(-1, 1.0)


@settings(deadline=None)
@given(st.floats(1, 3000), st.floats(0.001, 0.999))
def test_a_quantile_has_its_share_below_it(shape: float, probability: float) -> None:
    assert gamma_share(shape, gamma_quantile(shape, probability)) == pytest.approx(probability, abs=1e-6)


def test_a_young_run_believes_the_fleet_and_an_old_one_itself() -> None:
    assert expected_rate(0, 0.0) == pytest.approx(PRIOR_RATE)
    assert expected_rate(130, 10_000) == pytest.approx(0.013, rel=0.01)
    assert expected_rate(50, 1.0) == PRIOR_RATE * LARGEST_CHANGE, "three failures at once are a bad hour"
    assert expected_rate(0, 1e9) == PRIOR_RATE / LARGEST_CHANGE


def test_a_count_that_rules_the_fleet_out_stands_alone() -> None:
    assert believed_rate(0, 0.0) == PRIOR_RATE
    assert believed_rate(0, 1.0) == pytest.approx(expected_rate(0, 1.0)), "a day without a failure proves nothing"
    assert believed_rate(7, 0.05) == pytest.approx(140.0)
    assert believed_rate(0, 10_000) == pytest.approx(3.689e-4, rel=1e-3), "no failure: the upper end of what it can be"
