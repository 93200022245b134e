"""The past of a fleet from packed looks: the same as verdict by verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.node_tests.grading.comparisons import DAYS, OUTCOMES, history_of, laid, past_of
from flows.decisions.node_tests.grading.comparisons import reach_days as reach
from flows.decisions.node_tests.grading.history_arrays import DAY_SECONDS
from flows.decisions.node_tests.grading.model import CheckRule, Depth, Drift, Fall
from profiles.vocabulary import VerdictWord
from tests.support.builders.pasts import NOW, RECORDS, RULES, as_slow, slowly
from tests.unit.decisions.node_tests.grading.test_history import now_and_before, said
from workflows.model.records import VerdictRecord
from workflows.model.verdict_history import looks_of, pack, unpack


@given(st.lists(RECORDS, max_size=40), st.sampled_from([{}, {"a": NOW - 3 * DAY_SECONDS}]))
def test_the_past_is_what_verdicts_say_one_by_one(records: list[VerdictRecord], since: dict[str, float]) -> None:
    wanted = slowly(records, RULES, ("a", "b"), NOW, since)
    assert as_slow(history_of(records, RULES, ("a", "b"), NOW, since)) == wanted


@given(st.lists(st.lists(RECORDS, max_size=6), max_size=12))
def test_it_does_not_matter_how_many_verdicts_were_packed_at_once(batches: list[list[VerdictRecord]]) -> None:
    looks = [unpack(pack(one)) for batch in batches for one in looks_of(batch)]
    every = [record for batch in batches for record in batch]
    assert as_slow(laid(looks, RULES, ("b", "a"), NOW)) == slowly(every, RULES, ("b", "a"), NOW)


def test_of_looks_at_one_time_the_one_that_was_written_last_counts_whatever_else_was_looked_at() -> None:
    def record(measured: float, *more: str) -> VerdictRecord:
        reasons = [
            {"check": check, "verdict": "pass", "measured": measured, "unit": "GB/s"} for check in ("copy", *more)
        ]
        return VerdictRecord("c", "a", VerdictWord.PASS, "device", NOW, tuple(reasons))

    batches = [
        [record(1.0, "latency")],
        [record(2.0)],
        [record(3.0, "latency")],
        [record(4.0)],
        [record(5.0, "latency")],
    ]
    for some in (batches, batches[:4], batches[:3], batches[:2]):
        looks = [one for batch in some for one in looks_of(batch)]
        assert as_slow(laid(looks, RULES, ("a",), NOW)).figures["copy", "a"] == {0: float(len(some))}


def test_a_check_that_is_tested_every_hour_is_known_by_its_last_ten_ends_and_the_last_figure_of_a_day() -> None:
    def record(hours_ago: int) -> VerdictRecord:
        word = "unknown" if hours_ago % 3 else "fail" if hours_ago < 20 else "pass"
        reason: dict[str, Any] = {"check": "copy", "verdict": word, "measured": 1.0 * hours_ago, "unit": "GB/s"}
        return VerdictRecord("c", "a", VerdictWord.PASS, "device", NOW - hours_ago * 3600.0, (reason,))

    found = as_slow(history_of([record(hours) for hours in range(700)], RULES, ("a",), NOW))
    assert found.ends == {("copy", "a"): [1] * 3 + [-1] * 7}
    # A day ends 24 hours ago or a whole number of days before; every third hour it passes.
    assert found.figures["copy", "a"] == {0: 21.0} | {day: 24.0 * day for day in range(1, 30)}


def test_the_past_reaches_as_far_back_as_a_limit_does() -> None:
    rule = CheckRule("copy", Depth.DEVICE, "bandwidth", "GB/s", limits=(Fall(5.0, days=90), Drift(5.0)))
    assert reach([]) == DAYS
    assert reach([CheckRule("x", Depth.DEVICE, "y", limits=(Fall(5.0, days=7),))]) == DAYS
    assert reach([rule]) == 90
    history = history_of([], [rule], ["a"], NOW)
    assert past_of(history, "copy", ("a",)).values.shape == (90, 1)
    assert past_of(history, "copy", ("a",)).outcomes.shape == (OUTCOMES, 1)


@pytest.mark.parametrize(("days", "fails"), [(30, True), (7, None), (9, False), (3, None)])
def test_a_fall_is_counted_from_good_figures_of_its_days_only(days: int, fails: bool | None) -> None:
    past = [100.0] * 20 + [94.0] * 3 + [float("nan")] * 6
    # 94 within nine days; within seven there is one figure, which is no past.
    assert said(now_and_before(Fall(5.0, days=days, good=30), 94.0, past)) is fails


def test_a_drift_is_one_of_the_last_month_however_far_the_past_reaches() -> None:
    month, before = [100.0] * 30, [200.0 - day for day in range(60)]
    assert said(now_and_before(Drift(5.0), 100.0, [*before, *month])) is False
    assert said(now_and_before(Drift(5.0), 100.0, month)) is False


def test_nobody_and_nothing_have_no_past() -> None:
    assert as_slow(laid([], RULES, ("a",), NOW)) == slowly([], RULES, ("a",), NOW)
    record = VerdictRecord("c", "a", VerdictWord.PASS, "smoke", NOW, ({"check": "copy", "verdict": "pass"},))
    assert as_slow(history_of([record], RULES, (), NOW)) == slowly([], RULES, (), NOW)
    assert as_slow(history_of([record], (), ("a",), NOW)) == slowly([], (), ("a",), NOW)
    assert np.isnan(past_of(history_of([record], RULES, ("a",), NOW), "copy", ("a",)).values).all()
