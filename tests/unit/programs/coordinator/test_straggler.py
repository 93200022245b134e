"""Stragglers: vectors, noisy gangs, the job's own change of pace, and when acting pays."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.recovery import StragglerLimits
from tests.support.cases.rows import rows
from workflows.programs.coordinator.step_change import BASELINE_STEPS, Cusum, GangPace, StepTimeChange, attribute_change
from workflows.programs.coordinator.stragglers import (
    SAMPLE,
    STEPS_PER_WINDOW,
    Loss,
    Peers,
    SlowRank,
    Votes,
    find_slow_ranks,
    lower_median,
)
from workflows.programs.coordinator.stragglers import StragglerLimits as Limits

LIMITS = Limits()
INF = math.inf


@rows("programs/coordinator/straggler")
def test_one_window(values: list[float], named: list[int]) -> None:
    assert [one.rank for one in find_slow_ranks(values, LIMITS)] == named


def test_the_formula() -> None:
    (one,) = find_slow_ranks([1.0, 1.1, 0.9, 1.0, 1.2, 0.8, 2.0], LIMITS)
    assert (one.rank, one.seconds, one.ratio) == (6, 2.0, 2.0)
    assert one.z == pytest.approx(0.6745 * 1.0 / 0.1)
    (few,) = find_slow_ranks([1.0, 1.5], LIMITS)
    assert (few.ratio, few.z) == (1.5, INF)


def test_a_gang_that_looks_perfectly_even_has_a_spread_of_a_hundredth() -> None:
    sharp = Limits(ratio=1.02)
    assert find_slow_ranks([1.0] * 5 + [1.05], sharp) == ()
    assert [one.rank for one in find_slow_ranks([1.0] * 5 + [1.053], sharp)] == [5]


def test_limits_are_the_profiles() -> None:
    theirs = StragglerLimits()
    assert (theirs.ratio, theirs.robust_z, theirs.windows) == (LIMITS.ratio, LIMITS.robust_z, LIMITS.windows)


def voted(*windows: float, seconds: float = 0.4) -> list[bool]:
    """After each window, whether rank 3 is called slow; windows by its ratio to its peers, 1: it was not slow."""
    votes, found = Votes(), list[bool]()
    for ratio in windows:
        votes = votes.with_window((SlowRank(3, seconds, ratio, 9.0),) if ratio > 1 else (), LIMITS)
        found.append(votes.stragglers() == (3,))
    return found


@rows("programs/coordinator/straggler")
def test_slow_by_enough_and_for_long_enough(windows: list[float], named_after: int | None, seconds: float) -> None:
    found = voted(*windows, seconds=seconds)
    assert (found.index(True) + 1 if True in found else None) == named_after


def test_a_good_window_is_no_cure_and_five_are() -> None:
    assert voted(*[2.0] * 4, *[1.0] * 5)[3:] == [True] * 5 + [False]
    assert voted(*[2.0] * 4, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 2.0)[3:] == [True] * 8
    votes = Votes()
    for window in [(SlowRank(3, 2.0, 2.0, 9.0),)] * 9 + [()] * 5:
        votes = votes.with_window(window, LIMITS)
    assert votes == Votes(), "who is well again is forgotten"


def test_less_than_a_schedulers_slice_is_nobodys_slowness() -> None:
    for excess, named in ((0.0049, []), (0.0051, [1])):
        peers, found = Peers(2, LIMITS), None
        for _ in range(STEPS_PER_WINDOW):
            peers.add(0, 0.008)
            peers.add(1, 0.008 + excess)
            found = peers.close_step()
        assert [one.rank for one in found or ()] == named


def trial(seed: int, ranks: int, slow_rank: int | None, steps: int, factor: float = 2.0) -> tuple[int | None, set[int]]:
    """Steps until somebody was named first, and all who ever were; noise of 5 %, one pause in fifty steps."""
    dice = random.Random(seed)
    peers, votes, named = Peers(ranks, LIMITS), Votes(), set[int]()
    first: int | None = None
    for step in range(1, steps + 1):
        for rank in range(ranks):
            seconds = 0.1 * dice.lognormvariate(0, 0.05) * (factor if rank == slow_rank else 1.0)
            peers.add(rank, seconds * (dice.uniform(2, 10) if dice.random() < 0.02 else 1.0))
        window = peers.close_step()
        if window is not None:
            votes = votes.with_window(window, LIMITS)
            named.update(votes.stragglers())
            first = step if named and first is None else first
    return first, named


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 64])
def test_one_rank_twice_as_slow_is_named_within_twenty_steps_and_nobody_else(ranks: int) -> None:
    for seed in range(20):
        first, named = trial(seed, ranks, seed % ranks, 60)
        assert named == {seed % ranks}, seed
        assert first is not None
        assert first <= 20


@pytest.mark.parametrize("ranks", [2, 8])
def test_a_healthy_gang_names_nobody_whatever_its_pace(ranks: int) -> None:
    for seed in range(20):
        assert trial(seed, ranks, None, 200)[1] == set()


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 100), min_size=5, max_size=50), st.floats(0.1, 100))
def test_all_of_them_slower_is_nobody_slower(values: list[float], factor: float) -> None:
    before = [one.rank for one in find_slow_ranks(values, LIMITS)]
    borders = [value for value in values if math.isclose(value, 1.1 * lower_median(values), rel_tol=1e-6)]
    if not borders:
        after = [one.rank for one in find_slow_ranks([value * factor for value in values], LIMITS)]
        assert set(before) ^ set(after) <= {r for r, value in enumerate(values) if _near_z(value, values)}


def _near_z(value: float, values: list[float]) -> bool:
    middle = lower_median(values)
    spread = max(lower_median([abs(one - middle) for one in values]), 0.01 * middle)
    return math.isclose(0.6745 * (value - middle) / spread, 3.5, rel_tol=1e-6)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.floats(0.01, 100), min_size=1, max_size=40), st.integers(0, 5000), st.sampled_from(["as", "up", "same"])
)
def test_the_median_is_exact(some: list[float], more: int, order: str) -> None:
    dice = random.Random(more)
    values = some + [dice.choice(some) if order == "same" else dice.random() for _ in range(more)]
    values = sorted(values) if order == "up" else values
    assert lower_median(values) == statistics.median_low(values)


def test_the_median_of_an_order_that_meets_the_sample() -> None:
    values = [0.0 if index % 5 == 0 else 1.0 + index for index in range(SAMPLE * 5)]
    assert lower_median(values) == statistics.median_low(values)


def test_a_rank_is_judged_by_its_second_best_step() -> None:
    peers = Peers(6, LIMITS)
    for times in ((1.0,) * 6, (1.0,) * 6, (1.0,) * 5 + (9.0,)):
        for rank, seconds in enumerate(times):
            peers.add(rank, seconds)
        found = peers.close_step()
    assert found == (), "a pause in a window"
    for step in range(STEPS_PER_WINDOW):
        for rank in range(6):
            peers.add(rank, 1.0 if rank < 5 or step == 0 else 1.5)
        found = peers.close_step()
    assert found is not None
    assert [(one.rank, one.ratio) for one in found] == [(5, 1.5)]
    for seconds in (math.nan, -1.0, 0.0, INF):
        peers.add(0, seconds)
    peers.add(99, 1.0)
    assert [peers.close_step() for _ in range(STEPS_PER_WINDOW)][-1] == ()


def slowdowns(times: list[float]) -> list[int | None]:
    """Since which step the gang is slower, each time that this changes."""
    pace, found = GangPace(), list[int | None]()
    for step, seconds in enumerate(times, 1):
        pace = pace.with_steps(step, 1, seconds, told=True)
        since = None if pace.slower is None else pace.slower.step
        found += [since] if since != (found[-1] if found else None) else []
    return found


@rows("programs/coordinator/straggler")
def test_a_gang_is_slower_for_long_or_not_at_all(times: list[list[float]], since: list[int | None]) -> None:
    assert slowdowns([seconds for count, seconds in times for _ in range(int(count))]) == since


def cusum(times: list[float]) -> tuple[Cusum, list[StepTimeChange]]:
    found, changes = Cusum(), list[StepTimeChange]()
    for step, seconds in enumerate(times, 1):
        found = found.with_step(step, seconds)
        changes += [found.change] if found.change else []
    return found, changes


def test_a_change_of_pace_is_found_where_it_began() -> None:
    even = [1.0, 1.02, 0.98, 1.01, 0.99] * 6
    _, changes = cusum([*even, 1.3, 1.31, 1.29, 1.3, 1.3, 1.3])
    assert changes == [StepTimeChange(31, 1.0, 1.3)]
    assert cusum(even + [1.08] * 60)[1] == [], "less than a tenth"
    assert cusum([*even, 9.0] * 6)[1] == [], "single pauses"
    assert cusum(even + [0.5] * 60)[1] == [], "faster"
    (late,) = cusum([*even, 9.0, *even] + [1.3] * 6)[1]
    assert late.step == 62, "a pause before it is forgotten"
    two = cusum(even + [1.3, 1.31, 1.29, 1.3, 1.3] * 6 + [2.0] * 6)[1]
    assert [(one.step, one.before_seconds) for one in two] == [(31, 1.0), (61, 1.3)], "the new pace is the usual one"


@pytest.mark.parametrize(("sigmas", "steps"), [(1.0, 11), (1.5, 6), (3.0, 5)])
def test_golden_alarms(sigmas: float, steps: int) -> None:
    """S grows by the shift less a half each step, and the alarm comes above 5, with at least five steps."""
    base = [1.0 + 0.1 * (index % 3 - 1) for index in range(BASELINE_STEPS + 1)][:BASELINE_STEPS]
    found, _ = cusum(base)
    assert (found.mu, found.sigma) == (1.0, pytest.approx(0.14826))
    changes = cusum(base + [found.mu + sigmas * found.sigma * 0.9999] * 30)[1]
    assert changes
    assert changes[0].step == BASELINE_STEPS + 1
    count = next(n for n in range(1, 31) if cusum(base + [found.mu + sigmas * found.sigma * 0.9999] * n)[1])
    assert count == steps


def test_one_slow_rank_is_told_from_a_slower_job() -> None:
    change = StepTimeChange(31, 1.0, 2.0)
    assert attribute_change(change, ()) == "job"
    assert attribute_change(change, (2.0,)) == "rank"
    assert attribute_change(change, (1.1, 1.6)) == "rank"
    assert attribute_change(change, (1.1, 1.2)) == "job"
    assert attribute_change(StepTimeChange(31, 1.0, 1.15), (1.1,)) == "rank"


@given(st.floats(1.01, 10), st.floats(1, 1000), st.integers(1, 1000))
def test_acting_pays_when_waiting_has_cost_as_much(slower: float, cost: float, gpus: int) -> None:
    """A restart costing C comes at t where (s-1)/s * t = C: twice as dear as knowing the future, at most."""
    loss, waited = Loss(), 0.0
    while not loss.justifies(cost, gpus):
        loss = loss.with_step(slower * cost / 100, cost / 100, gpus)
        waited += slower * cost / 100
    assert (slower - 1) / slower * waited == pytest.approx(cost, abs=slower * cost / 99)
    assert loss.with_step(0.5, 1.0, gpus) == loss
    assert not Loss().justifies(0.0, gpus)
