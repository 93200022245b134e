"""From readings to verdicts: the order of the limits, three values, repetition, flapping, and what always holds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.node_tests.grading.columns import significant
from flows.decisions.node_tests.grading.comparisons import History, history_of
from flows.decisions.node_tests.grading.grade import grade, records_of, worst
from flows.decisions.node_tests.grading.history_arrays import DAY_SECONDS
from flows.decisions.node_tests.grading.model import (
    AtLeast,
    AtMost,
    CheckRule,
    Depth,
    Drift,
    Equals,
    Fall,
    Limit,
    Majority,
    NodeGrade,
    NodeReadings,
    PeakShare,
    Peers,
    ToolJudges,
    Word,
)
from profiles.vocabulary import VerdictWord
from workflows.programs.parsers.text import ParsedOutput, Reading

F, P, U = VerdictWord.FAIL, VerdictWord.PASS, VerdictWord.UNKNOWN
RANK = {F: 0, U: 1, P: 2}
NOW = 1e9


def rule(*limits: Limit, name: str = "copy", **more: Any) -> CheckRule:
    values: dict[str, Any] = {"unit": "GB/s", "noisy": False, **more}
    return CheckRule(name, Depth.DEVICE, "bandwidth", limits=limits, **values)


def node(name: str, *values: float | None, hardware: str = "h", check: str = "copy", **more: Any) -> NodeReadings:
    """One reading a subject, in one attempt."""
    readings = tuple(
        Reading("bandwidth", value, more.pop("unit", "GB/s"), f"gpu {index}" if len(values) > 1 else "", **more)
        for index, value in enumerate(values)
    )
    return NodeReadings(name, hardware, {check: (ParsedOutput(readings),)})


def past(values: Sequence[float] = (), outcomes: Sequence[int] = (), name: str = "n") -> History:
    told = np.array(values, dtype=np.float64).reshape(1, -1, 1)
    return History((name,), ("copy",), told, np.array(outcomes, dtype=np.int8).reshape(1, -1, 1))


def of_one(check: CheckRule, told: NodeReadings, history: History | None = None) -> NodeGrade:
    return grade([check], [told], history)[told.node]


PEAKS = {"h": 5300.0}


@pytest.mark.parametrize(
    ("check", "told", "word", "limit", "evidence"),
    [
        (rule(AtLeast(100.0)), node("n", 100.0), P, 100.0, ""),
        (rule(AtLeast(100.0)), node("n", 99.9), F, 100.0, "at least 100 GB/s"),
        (rule(AtLeast(100.0)), node("n", 120.0, 99.0), F, 100.0, "gpu 1: at least 100 GB/s"),
        (rule(AtLeast(100.0)), node("n", 120.0, None), U, 100.0, "gpu 1: no figure was reported"),
        (rule(AtLeast(100.0)), node("n", 99.0, None), F, 100.0, "gpu 0: at least"),
        (rule(AtMost(5.0), direction="lower_is_better"), node("n", 5.1), F, 5.0, "at most 5 GB/s"),
        (rule(AtMost(5.0), direction="lower_is_better"), node("n", 0.0), P, 5.0, ""),
        (rule(Equals(16.0), direction="equal"), node("n", 8.0), F, 16.0, "must be 16 GB/s"),
        (rule(Equals(16.0, 0.5), direction="equal"), node("n", 16.4), P, 16.0, ""),
        (rule(Equals(16.0, 0.5), direction="equal"), node("n", 17.0), F, 16.0, "within 0.5"),
        (rule(AtLeast(1.0), AtMost(2.0), direction="equal"), node("n", 2.5), F, 2.0, "at most 2 GB/s"),
        (rule(PeakShare(80.0, PEAKS)), node("n", 4240.0), P, 4240.0, ""),
        (rule(PeakShare(80.0, PEAKS)), node("n", 4239.0), F, 4240.0, "at least 80 % of the hardware's peak"),
        (rule(PeakShare(80.0, PEAKS)), node("n", 9e9, hardware="x"), U, None, "names no such peak"),
        (rule(AtLeast(1.0), PeakShare(80.0, PEAKS)), node("n", 9e9, hardware="x"), U, 1.0, "names no such peak"),
        (rule(AtLeast(100.0)), node("n", math.nan), U, 100.0, "nan is no figure"),
        (rule(AtLeast(100.0)), NodeReadings("n", "h", {}), U, 100.0, "the check did not run"),
        (rule(AtLeast(100.0)), node("n", 120.0, said="fail"), F, 100.0, "the tool itself"),
        (rule(AtLeast(100.0)), node("n", 99.0, said="pass"), F, 100.0, "at least"),
        (rule(), node("n", 99.0, said="pass"), P, None, ""),
        (rule(), node("n", None, said="pass", unit=""), P, None, ""),
        (rule(), node("n", math.inf, said="pass"), U, None, "inf is no figure"),
        (rule(), node("n", 99.0), U, None, "should have judged it and did not"),
        (rule(ToolJudges()), node("n", None, said="pass", unit=""), P, None, ""),
        (rule(ToolJudges(), AtLeast(1.0)), node("n", 99.0), U, 1.0, "should have judged it and did not"),
        (rule(ToolJudges(), AtLeast(1.0)), node("n", 99.0, said="pass"), P, 1.0, ""),
        (rule(ToolJudges(), AtLeast(1.0)), node("n", None, said="pass"), U, 1.0, "no figure"),
        (rule(Peers()), node("n", 99.0), U, None, "nothing to judge it by"),
        (rule(Peers(), Fall(5.0), Drift(5.0)), node("n", 99.0), U, None, "nothing to judge it by"),
        (rule(AtLeast(1.0), Peers(), Fall(5.0), Drift(5.0)), node("n", 99.0), P, 1.0, ""),
        (rule(Word("up"), direction="text_equal", unit=""), node("n", None, word="up"), P, "up", ""),
        (rule(Word("up"), direction="text_equal", unit=""), node("n", None, word="down"), F, "up", "must be up"),
        (rule(Word("up", ("on",)), direction="text_equal", unit=""), node("n", None, word="on"), P, "up or on", ""),
        (rule(Majority(), direction="text_equal", unit=""), node("n", None, word="6.4"), U, None, "too few peers"),
        (rule(Word("up"), direction="text_equal", unit=""), node("n", 1.0), U, "up", "no word was reported"),
    ],
)
def test_one_check_of_one_node(
    check: CheckRule, told: NodeReadings, word: VerdictWord, limit: float | str | None, evidence: str
) -> None:
    found = of_one(check, told)
    assert found.verdict is word
    (reason,) = found.reasons
    assert reason["verdict"] == str(word)
    assert reason["limit"] == limit
    assert evidence in reason["evidence"]
    assert set(reason) == {"check", "verdict", "measured", "limit", "unit", "evidence"}
    assert "NaN" not in json.dumps(found.reasons)
    assert "Infinity" not in json.dumps(found.reasons)


def test_the_line_that_was_printed_stands_in_the_reason() -> None:
    line = "copy 99 GB/s"
    assert of_one(rule(AtLeast(1.0)), node("n", 99.0, line=line)).reasons[0]["evidence"] == line
    assert of_one(rule(AtLeast(100.0)), node("n", 99.0, line=line)).reasons[0]["evidence"].endswith(f"; {line}")


FLEET = [node(f"node-{n}", 2000.0 + n) for n in range(8)]


def test_a_limit_of_its_own_comes_before_peers_and_peers_before_the_past() -> None:
    every = rule(AtLeast(1000.0), Peers(), Fall(5.0))
    known = past([3000.0] * 7, name="slow")
    for value, why in ((900.0, "at least 1000"), (1800.0, "peers"), (2000.0, "median of its last 7"), (2900.0, "")):
        found = grade([every], [*FLEET, node("slow", value)], known)["slow"]
        assert why in found.reasons[0]["evidence"]
        assert (found.verdict is F) == bool(why)


def test_nodes_that_fail_their_limit_do_not_make_the_good_one_an_outlier() -> None:
    check = rule(AtMost(10.0), Peers(), direction="lower_is_better")
    sick = [node(f"sick-{n}", 100.0) for n in range(20)]
    found = grade([check], [*sick, *[node(f"good-{n}", 5.0) for n in range(5)], node("off", 8.0)])
    assert [found[f"good-{n}"].verdict for n in range(5)] == [P] * 5
    assert found["off"].verdict is F
    assert "of 5 peers" in found["off"].reasons[0]["evidence"]


def test_a_driver_that_most_nodes_do_not_have_fails() -> None:
    check = rule(Majority(), direction="text_equal", unit="")
    found = grade([check], [node(f"n-{n}", None, word="6.4" if n else "6.3") for n in range(6)])
    assert [item.verdict for item in found.values()] == [F, P, P, P, P, P]
    assert found["n-0"].reasons[0]["evidence"] == "5 of its peers say 6.4"
    assert found["n-0"].reasons[0]["measured"] == "6.3"


def test_a_node_with_a_gap_is_no_measure_for_its_peers() -> None:
    check = rule(AtLeast(1.0), Peers(), subjects={"h": 2})
    whole = [node(f"a-{n}", 100.0, 100.0) for n in range(3)]
    assert (
        grade([check], [*whole, *[node(f"b-{n}", 100.0) for n in range(9)], node("slow", 50.0, 50.0)])["slow"].verdict
        is P
    )


@pytest.mark.parametrize(
    ("noisy", "outcomes", "word", "repeat", "evidence"),
    [
        (True, [], U, True, "one bad measurement, to be repeated"),
        (True, [1, 1], U, True, "one bad measurement, to be repeated"),
        (True, [1, -1], F, False, "the time before too"),
        (True, [-1, 1], U, True, "to be repeated"),
        (True, [1, -1, 1, -1, 1], F, False, "from pass to fail 3 times"),
        (False, [], F, False, "at least 100 GB/s"),
    ],
)
def test_a_noisy_failure_counts_when_it_was_repeated(
    noisy: bool, outcomes: list[int], word: VerdictWord, repeat: bool, evidence: str
) -> None:
    found = of_one(rule(AtLeast(100.0), noisy=noisy), node("n", 90.0), past([100.0], outcomes))
    assert found.verdict is word
    assert found.repeat == (("copy",) if repeat else ())
    assert found.reasons[0].get("repeat", False) is repeat
    assert evidence in found.reasons[0]["evidence"]


def test_a_repetition_is_known_from_the_verdict_that_asked_for_it() -> None:
    check = rule(AtLeast(100.0), noisy=True)
    first = of_one(check, node("n", 90.0))
    records = records_of(first, [check], "c", NOW)
    again = of_one(check, node("n", 91.0), history_of(records, [check], ["n"], NOW + 60))
    assert (first.verdict, again.verdict) == (U, F)
    better = of_one(check, node("n", 101.0), history_of(records, [check], ["n"], NOW + 60))
    assert better.verdict is P


def test_a_node_that_passes_and_fails_in_turn_fails_until_it_has_passed_long_enough() -> None:
    check, records = rule(AtLeast(100.0), noisy=True), []
    words: list[VerdictWord] = []
    for day, value in enumerate([120, 90, 120, 90, 120, 90, *[120] * 10]):
        at = NOW + day * DAY_SECONDS
        found = of_one(check, node("n", float(value)), history_of(records, [check], ["n"], at))
        records += records_of(found, [check], "c", at)
        words.append(found.verdict)
    assert words == [P, U, P, U, P, F, F, F, F, F, P, P, P, P, P, P]
    assert "3 times in its last 10 tests; now it passes" in records[6].reasons[0]["evidence"]
    assert records[6].reasons[0]["flaps"] is True


def test_warnings_are_told_and_change_nothing() -> None:
    checks = [rule(AtLeast(100.0)), rule(AtLeast(500.0), name="soft", severity="warning", noisy=True)]
    told = NodeReadings("n", "h", {**node("n", 120.0).parsed, **node("n", 120.0, check="soft").parsed})
    found = grade(checks, [told])["n"]
    assert (found.verdict, found.repeat) == (P, ())
    assert found.reasons[1]["severity"] == "warning"
    assert found.reasons[1]["verdict"] == "unknown"
    alone = grade(checks[1:], [told])["n"]
    assert alone.verdict is U


def test_each_depth_gets_a_verdict_of_its_own() -> None:
    smoke = replace(rule(AtLeast(200.0), name="quick"), depth=Depth.SMOKE)
    told = NodeReadings("n", "h", {**node("n", 120.0).parsed, **node("n", 120.0, check="quick").parsed})
    checks = [rule(AtLeast(100.0)), smoke]
    records = records_of(grade(checks, [told])["n"], checks, "c", NOW, "test-1")
    assert [(one.depth, one.verdict, len(one.reasons)) for one in records] == [("smoke", F, 1), ("device", P, 1)]
    assert {(one.cluster, one.node, one.at, one.source) for one in records} == {("c", "n", NOW, "test-1")}
    assert records_of(NodeGrade("n", U, ()), [], "c", NOW) == ()


def test_without_checks_nothing_is_known_and_doubles_are_refused() -> None:
    assert grade([], [node("n", 1.0)])["n"] == NodeGrade("n", U, ())
    assert grade([rule(AtLeast(1.0))], []) == {}
    assert worst([]) is U
    with pytest.raises(ValueError, match="copy twice"):
        grade([rule(), rule()], [])
    with pytest.raises(ValueError, match="n twice"):
        grade([rule()], [node("n", 1.0), node("n", 2.0)])


def test_a_limit_of_the_profile_is_told_as_it_stands_and_a_computed_one_in_six_digits() -> None:
    assert of_one(rule(AtLeast(12345678.0)), node("n", 2e7)).reasons[0]["limit"] == 12345678.0
    assert of_one(rule(PeakShare(33.0, {"h": 1307.4321})), node("n", 500.0)).reasons[0]["limit"] == 431.453
    told = significant(np.array([1823.4567891, 0.00012345678, 0.0, -5.0, math.nan])).tolist()
    assert told[:4] == [1823.46, 0.000123457, 0.0, -5.0]
    assert math.isnan(told[4])


# What always holds.

FIGURES = st.one_of(st.floats(0.0, 5000.0), st.sampled_from([100.0, 2000.0, 2000.0, 2100.0]))
TOLD = st.one_of(FIGURES, st.none(), st.sampled_from([math.nan, math.inf, -math.inf]))
LIMITS = (AtLeast(100.0), PeakShare(10.0, {"a": 5000.0, "b": 9000.0}), Peers(), Fall(5.0), Drift(5.0, 1.0))
CHECKS = st.builds(
    lambda limits, noisy: rule(*[LIMITS[n] for n in sorted(limits)], noisy=noisy),
    st.sets(st.integers(0, len(LIMITS) - 1)),
    st.booleans(),
)
NODES = st.lists(st.tuples(TOLD, st.sampled_from(["a", "b", "c"])), min_size=1, max_size=14)


def fleet(told: Sequence[tuple[float | None, str]]) -> list[NodeReadings]:
    return [node(f"node-{n}", value, hardware=hardware) for n, (value, hardware) in enumerate(told)]


@st.composite
def histories(draw: st.DrawFn) -> History:
    days, nodes = draw(st.integers(0, 16)), 14
    dice = np.random.default_rng(draw(st.integers(0, 1000)))
    values = dice.choice([math.nan, 90.0, 1900.0, 2000.0, 2100.0, 4000.0], (1, days, nodes))
    outcomes = dice.choice(np.array([-1, 0, 1, 1], dtype=np.int8), (1, draw(st.integers(0, 10)), nodes))
    return History(tuple(f"node-{n}" for n in range(nodes)), ("copy",), values, outcomes)


@given(CHECKS, NODES, histories(), st.integers(0, 13), FIGURES, st.floats(0.0, 3000.0))
def test_a_better_reading_never_worsens_a_verdict(
    check: CheckRule, told: list[tuple[float | None, str]], history: History, which: int, value: float, more: float
) -> None:
    one = which % len(told)
    words: list[VerdictWord] = []
    for figure in (value, value + more):
        nodes = fleet([*told[:one], (figure, told[one][1]), *told[one + 1 :]])
        words.append(grade([check], nodes, history)[f"node-{one}"].verdict)
    assert RANK[words[1]] >= RANK[words[0]]


@given(CHECKS, NODES, histories(), st.randoms(use_true_random=False))
def test_the_order_of_the_nodes_changes_nothing(
    check: CheckRule, told: list[tuple[float | None, str]], history: History, dice: Any
) -> None:
    nodes = fleet(told)
    mixed = nodes[:]
    dice.shuffle(mixed)
    first, second = grade([check], nodes, history), grade([check], mixed, history)
    assert first == second
    assert list(first) == list(second)


@given(CHECKS, NODES, histories(), st.integers(0, 13), st.sampled_from([None, math.nan, math.inf, -math.inf]))
def test_what_is_no_figure_never_passes_and_is_never_an_exception(
    check: CheckRule, told: list[tuple[float | None, str]], history: History, which: int, value: float | None
) -> None:
    one = which % len(told)
    nodes = fleet([*told[:one], (value, told[one][1]), *told[one + 1 :]])
    found = grade([check], nodes, history)[f"node-{one}"]
    assert found.verdict is U
    assert found.reasons[0]["measured"] is None


@given(FIGURES, st.integers(2, 12))
def test_nodes_that_are_all_alike_are_never_accused_by_peers(value: float, count: int) -> None:
    found = grade([rule(Peers())], fleet([(value, "a")] * count))
    assert {item.verdict for item in found.values()} == {P if count > 4 else U}


@given(NODES, st.sampled_from(["best", "median", "worst", "all"]), st.lists(TOLD, min_size=1, max_size=4))
def test_attempts_of_any_kind_give_one_reason_each(
    told: list[tuple[float | None, str]], combine: str, attempts: list[float | None]
) -> None:
    check = rule(AtLeast(100.0), Peers(), attempts=3, combine=combine)
    parsed = tuple(ParsedOutput((Reading("bandwidth", value, "GB/s"),)) for value in attempts)
    nodes = [replace(item, parsed={"copy": (*parsed, *item.parsed["copy"])}) for item in fleet(told)]
    found: Mapping[str, NodeGrade] = grade([check], nodes)
    assert [len(item.reasons) for item in found.values()] == [1] * len(told)
    if not any(value is not None and math.isfinite(value) for value in attempts):
        sound = {f"node-{n}" for n, (value, _) in enumerate(told) if value is None or not math.isfinite(value)}
        assert all(found[name].verdict is U for name in sound)


@given(
    st.sampled_from(["best", "median", "worst", "all"]),
    st.lists(st.lists(st.sampled_from([90.0, 100.0, 110.0, None]), min_size=2, max_size=2), min_size=1, max_size=4),
    st.integers(0, 7),
    st.sampled_from([90.0, 100.0, 110.0]),
)
def test_a_better_attempt_of_one_subject_never_worsens_a_verdict(
    combine: str, attempts: list[list[float | None]], which: int, value: float
) -> None:
    check = rule(AtLeast(100.0), attempts=3, combine=combine, subjects={"h": 2})
    words: list[VerdictWord] = []
    for figure in (value, value + 10.0):
        changed = [list(values) for values in attempts]
        changed[which // 2 % len(changed)][which % 2] = figure
        parsed = tuple(node("n", *values).parsed["copy"][0] for values in changed)
        words.append(of_one(check, NodeReadings("n", "h", {"copy": parsed})).verdict)
    assert RANK[words[1]] >= RANK[words[0]]
