"""A node against its own past: falls, drifts, flapping, and how the past is read from the ledger's verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.node_tests.grading.columns import Stage, column
from flows.decisions.node_tests.grading.comparisons import (
    DAYS,
    OUTCOMES,
    History,
    Past,
    by_drift,
    by_fall,
    failed_last,
    falls,
    history_of,
    past_of,
)
from flows.decisions.node_tests.grading.history_arrays import DAY_SECONDS
from flows.decisions.node_tests.grading.model import CheckRule, Depth, Direction, Drift, Fall, NodeReadings
from profiles.vocabulary import VerdictWord
from tests.support.cases.rows import rows
from workflows.model.records import VerdictRecord
from workflows.programs.parsers.text import ParsedOutput, Reading

NOW = 1e9
NAN = math.nan
RULE = CheckRule("copy", Depth.DEVICE, "bandwidth", "GB/s")
STEADY = [100.0, 101.0, 99.0, 100.5, 99.5] * 6


def now_and_before(
    limit: Fall | Drift, value: float, past: Sequence[float], direction: Direction = "higher_is_better"
) -> Stage:
    rule = CheckRule("copy", Depth.DEVICE, "bandwidth", "GB/s", direction)
    told = column(rule, [NodeReadings("n", "h", {"copy": (ParsedOutput((Reading("bandwidth", value, "GB/s"),)),)})])
    known = Past(np.array(past, dtype=np.float64).reshape(-1, 1), np.zeros((0, 1), dtype=np.int8))
    return by_fall(told, known, limit) if isinstance(limit, Fall) else by_drift(told, known, limit)


def said(found: Stage) -> bool | None:
    """None: it says nothing."""
    return bool(found.fails[0]) if found.applies[0] else None


@pytest.mark.parametrize(
    ("value", "past", "direction", "fails"),
    [
        (94.0, [100.0] * 7, "higher_is_better", True),
        (96.0, [100.0] * 7, "higher_is_better", False),
        (150.0, [100.0] * 7, "higher_is_better", False),
        (106.0, [100.0] * 7, "lower_is_better", True),
        (50.0, [100.0] * 7, "lower_is_better", False),
        (94.0, [500.0] * 20 + [94.0] * 7, "higher_is_better", False),
        (94.0, [100.0, NAN, NAN, 100.0, NAN, 100.0, NAN], "higher_is_better", True),
        (94.0, [100.0, 100.0], "higher_is_better", None),
        (94.0, [NAN] * 30, "higher_is_better", None),
        (94.0, [], "higher_is_better", None),
        (NAN, [100.0] * 7, "higher_is_better", None),
        (5.0, [0.0] * 7, "lower_is_better", None),
        (-5.0, [-1.0] * 7, "higher_is_better", None),
    ],
)
def test_a_fall_is_counted_from_the_median_of_the_last_good_ones(
    value: float, past: list[float], direction: Direction, fails: bool | None
) -> None:
    assert said(now_and_before(Fall(5.0), value, past, direction)) is fails


def test_the_sentence_of_a_fall_names_the_usual_figure() -> None:
    words = now_and_before(Fall(5.0), 90.0, [100.0] * 4).words(0)
    assert words == "10.0 % below 100 GB/s, the median of its last 4"


def falling(percent: float, days: int = 30) -> list[float]:
    return [100.0 * (1 - percent / 100 * day / days) for day in range(days)]


@pytest.mark.parametrize(
    ("value", "past", "direction", "fails"),
    [
        (89.0, falling(10.0), "higher_is_better", True),
        (97.0, falling(3.0), "higher_is_better", False),
        (100.0, STEADY, "higher_is_better", False),
        (50.0, STEADY, "higher_is_better", False),
        (111.0, [200 - one for one in falling(10.0)], "higher_is_better", False),
        (111.0, [200 - one for one in falling(10.0)], "lower_is_better", True),
        (89.0, falling(10.0, 9), "higher_is_better", None),
        (NAN, falling(10.0), "higher_is_better", None),
        (89.0, [one if n % 2 else NAN for n, one in enumerate(falling(10.0))], "higher_is_better", True),
    ],
)
def test_a_drift_is_a_trend_that_is_large_enough(
    value: float, past: list[float], direction: Direction, fails: bool | None
) -> None:
    assert said(now_and_before(Drift(5.0), value, past, direction)) is fails


def test_the_rank_test_agrees_with_its_definition() -> None:
    dice = np.random.default_rng(3)
    for _ in range(20):
        series = dice.integers(-3, 12, 21) - np.arange(21)  # it falls, with ties
        score = sum(int(np.sign(later - one)) for one, later in combinations(series.tolist(), 2))
        z = (score + 1) / math.sqrt(21 * 20 * 47 / 18)
        told = [100.0 + value for value in series.tolist()]
        assert score < -1
        assert said(now_and_before(Drift(0.0, -z - 1e-9), told[-1], told[:-1])) is True
        assert said(now_and_before(Drift(0.0, -z + 1e-9), told[-1], told[:-1])) is False


@given(
    st.lists(st.one_of(st.just(NAN), st.floats(1.0, 1000.0), st.sampled_from([90.0, 100.0])), max_size=30),
    st.floats(1.0, 1000.0),
    st.floats(0.0, 500.0),
    st.sampled_from([Fall(5.0), Fall(0.0, 3), Drift(2.0, 1.0), Drift(5.0), Drift(0.0, 0.0)]),
)
def test_a_better_figure_never_looks_worse_against_the_own_past(
    past: list[float], value: float, more: float, limit: Fall | Drift
) -> None:
    worse, better = now_and_before(limit, value, past), now_and_before(limit, value + more, past)
    assert said(better) is said(worse) or (said(worse) is True and said(better) is False)


@rows("node_tests/grading/history")
def test_how_often_a_check_fell_from_pass_to_fail(past: list[int], now: int, count: int, again: bool) -> None:
    known = Past(np.zeros((0, 1)), np.array(past, dtype=np.int8).reshape(-1, 1))
    assert falls(known, np.array([now], dtype=np.int8)).tolist() == [count]
    assert failed_last(known).tolist() == [again]


def record(node: str, days_ago: float, verdict: str = "pass", measured: Any = 100.0, **more: Any) -> VerdictRecord:
    reason = {"check": "copy", "verdict": verdict, "measured": measured, "unit": "GB/s", **more}
    return VerdictRecord("c", node, VerdictWord.PASS, "device", NOW - days_ago * DAY_SECONDS, (reason,))


def test_the_past_is_read_from_verdicts_in_any_order() -> None:
    records = [
        record("a", 0.5, measured=101.0),
        record("a", 2.5, measured=102.0),
        record("a", 2.1, measured=103.0),
        record("a", 1.5, "fail", 50.0),
        record("a", 3.5, "unknown", 60.0, repeat=True),
        record("a", 4.5, "unknown", None),
        record("a", 5.5, "fail", 99.0, flaps=True),
        record("a", 6.5, measured="N/A"),
        record("a", 7.5, measured=7.0, unit="TB/s"),
        record("a", 8.5, measured=8.0, check="another"),
        record("a", 31.0, measured=31.0),
        record("a", -0.1, measured=0.1),
        record("stranger", 1.0),
    ]
    for told in (records, records[::-1]):
        history = history_of(told, [RULE], ["a", "b"], NOW)
        assert history.values is not None
        assert history.outcomes is not None
        days = np.flatnonzero(np.isfinite(history.values[0, :, 0])).tolist()
        good = {DAYS - 1 - day: float(history.values[0, day, 0]) for day in days}
        assert good == {0: 101.0, 2: 103.0, 5: 99.0}
        assert history.outcomes[0, :, 0].tolist() == [0, 0, 1, 1, 1, -1, 1, 1, -1, 1]
        assert not np.isfinite(history.values[0, :, 1]).any()


def test_what_was_before_a_repair_is_forgotten() -> None:
    records = [record("a", 3.0, measured=50.0), record("a", 1.0, measured=100.0), record("b", 3.0)]
    history = history_of(records, [RULE], ["a", "b"], NOW, {"a": NOW - 2 * DAY_SECONDS})
    assert history.values is not None
    assert np.isfinite(history.values[0]).sum(axis=0).tolist() == [1, 1]


def test_nodes_and_checks_are_found_by_name() -> None:
    history = History(("a", "b"), ("copy",), np.array([[[1.0, 2.0]]]), np.array([[[1, -1]] * OUTCOMES], dtype=np.int8))
    found = past_of(history, "copy", ("b", "new", "a"))
    assert found.values[0].tolist() == pytest.approx([2.0, NAN, 1.0], nan_ok=True)
    assert found.outcomes[0].tolist() == [-1, 0, 1]
    assert past_of(history, "another", ("a",)).values.shape == (0, 1)
