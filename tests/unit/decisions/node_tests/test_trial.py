"""What a trial of a run says about its nodes: who passes, who fails, and of whom nothing is known."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.diagnosis.diagnose import Diagnosis
from flows.decisions.node_tests.grading.model import NodeGrade
from flows.decisions.node_tests.trial import (
    Blame,
    Rate,
    TrialObservation,
    blamed_by,
    grades_of,
    is_good,
    merged,
    not_finite,
    rate_of,
    rates,
    seat,
    seat_again,
    slow_alone,
    steps_done,
)
from profiles.vocabulary import FaultClass, VerdictWord
from workflows.model.records import StepRow

PASS, FAIL, UNKNOWN = VerdictWord.PASS, VerdictWord.FAIL, VerdictWord.UNKNOWN
GOOD = Rate(PASS, 10.0, 5.0, "")
SLOW = Rate(FAIL, 10.0, 50.0, "at least 50 1/s")
HARD = Blame("gpu_hardware", "Xid 79")


def rows(count: int, every: int = 1, seconds: float = 0.1, loss: float | None = 2.0) -> tuple[StepRow, ...]:
    return tuple(StepRow(step * every, 100.0 + step * every * seconds, None, loss) for step in range(1, count + 1))


def seen(
    told: tuple[StepRow, ...] = rows(20),
    nodes: tuple[str, ...] = ("a", "b"),
    ended: str = "",
    blamed: dict[str, Blame] | None = None,
    every: int = 1,
    skip: int = 5,
) -> TrialObservation:
    return TrialObservation("demo", nodes, 20, told, every, skip, ended, blamed or {})


def words(one: TrialObservation, rate: Rate = GOOD) -> dict[str, VerdictWord]:
    return {node: grade.verdict for node, grade in grades_of(one, rate).items()}


def said(one: TrialObservation, rate: Rate = GOOD, node: str = "a") -> str:
    return " ".join(str(reason["evidence"]) for reason in grades_of(one, rate)[node].reasons)


@pytest.mark.parametrize(
    ("one", "rate", "expected", "why"),
    [
        (seen(), GOOD, (PASS, PASS), ""),
        (seen(rows(19)), GOOD, (UNKNOWN, UNKNOWN), "only 19 of 20 steps"),
        (seen(()), GOOD, (UNKNOWN, UNKNOWN), "no step was seen"),
        (seen(rows(20, loss=math.nan)), GOOD, (UNKNOWN, UNKNOWN), "loss not finite at step 1"),
        (replace(seen(), lost="numeric: grad_norm nan"), GOOD, (UNKNOWN, UNKNOWN), "numeric: grad_norm nan"),
        (seen(rows(20, loss=math.inf)), GOOD, (UNKNOWN, UNKNOWN), "loss not finite at step 1"),
        (seen(rows(20, loss=None)), GOOD, (UNKNOWN, UNKNOWN), "the program reports no loss"),
        (seen(ended="user_code: ValueError: no"), GOOD, (UNKNOWN, UNKNOWN), "user_code: ValueError: no"),
        (seen(), SLOW, (UNKNOWN, UNKNOWN), "at least 50 1/s; nothing shows which node is slow"),
        (seen(blamed={"a": Blame("straggler", "a is slow")}), SLOW, (FAIL, UNKNOWN), "a is slow"),
        (seen((), ended="gpu_hardware: Xid 79", blamed={"a": HARD}), GOOD, (FAIL, UNKNOWN), "Xid 79"),
        (seen(rows(20, loss=math.nan), blamed={"a": HARD}), GOOD, (FAIL, UNKNOWN), "loss not finite at step 1; Xid 79"),
        (seen(blamed={"a": HARD}), GOOD, (PASS, PASS), ""),
    ],
)
def test_the_table(one: TrialObservation, rate: Rate, expected: tuple[VerdictWord, ...], why: str) -> None:
    assert tuple(words(one, rate).values()) == expected
    assert why in said(one, rate)
    assert is_good(one, rate) == (expected == (PASS, PASS))


def test_who_sat_beside_a_culprit_is_told_who_it_was() -> None:
    assert "the evidence names a" in said(seen((), ended="it died", blamed={"a": HARD}), node="b")


@pytest.mark.parametrize(
    ("told", "every", "skip", "expected"),
    [
        (rows(20), 1, 5, 10.0),
        (rows(20), 1, 0, 10.0),
        (rows(2, every=10), 10, 5, 10.0),
        (rows(1), 1, 0, None),
        (rows(5), 1, 5, None),
        (rows(20, seconds=0.0), 1, 5, None),
        ((), 1, 0, None),
        ((*rows(10), *rows(10)), 1, 5, 10.0),
        ((StepRow(1, 0.0), *rows(20)[1:]), 1, 5, 10.0),
    ],
)
def test_the_rate_is_that_after_the_first_steps(
    told: tuple[StepRow, ...], every: int, skip: int, expected: float | None
) -> None:
    found = rate_of(seen(told, every=every, skip=skip))
    assert found == (None if expected is None else pytest.approx(expected))


def test_steps_count_from_the_first_one() -> None:
    assert steps_done((), 1) == 0
    assert steps_done(rows(2, every=10), 10) == 20
    assert steps_done(tuple(StepRow(step, 1.0) for step in range(1001, 1021)), 1) == 20
    assert not_finite((StepRow(3, 0.0, None, math.nan), StepRow(2, 0.0, None, math.inf))) == 2


def test_a_gang_below_the_limit_fails_and_without_any_limit_only_tells() -> None:
    [slow] = rates([seen()], 50.0)
    assert (slow.verdict, slow.measured, slow.limit) == (FAIL, pytest.approx(10.0), 50.0)
    [good] = rates([seen()], 5.0)
    assert (good.verdict, good.limit) == (PASS, 5.0)
    [free] = rates([seen()], None)
    assert (free.verdict, free.limit) == (PASS, None)
    [none] = rates([seen(rows(3))], None)
    assert none.verdict is UNKNOWN
    assert rates([], None) == []


def test_a_gang_far_slower_than_four_others_is_told() -> None:
    gangs = [seen(rows(20, seconds=0.1 + 0.0001 * number), (f"n{number}", f"m{number}")) for number in range(5)]
    found = rates([*gangs, seen(rows(20, seconds=0.2), ("z", "y"))], None)
    assert [rate.verdict for rate in found] == [PASS] * 5 + [FAIL]
    assert "peers" in found[-1].evidence


def test_a_gang_of_one_that_is_slower_than_others_is_its_node() -> None:
    alone = seen(nodes=("a",))
    assert slow_alone(alone, Rate(FAIL, 10.0, 20.0, "peers"), None).keys() == {"a"}
    assert slow_alone(alone, Rate(FAIL, 10.0, 20.0, "floor"), 20.0) == {}, "the limit may ask for too much"
    assert slow_alone(seen(), Rate(FAIL, 10.0, 20.0, "peers"), None) == {}


@pytest.mark.parametrize(
    ("kind", "culprits", "expected"),
    [
        (FaultClass.GPU_HARDWARE, (("b", 1),), "b"),
        (FaultClass.GPU_HARDWARE, (("", 1),), "b"),
        (FaultClass.GPU_HARDWARE, (("", 7),), ""),
        (FaultClass.GPU_HARDWARE, (), ""),
        (FaultClass.STRAGGLER, (("a", 1),), "b"),
        (FaultClass.USER_CODE, (("b", 1),), ""),
        (FaultClass.NODE_LOST, (("b", None),), ""),
        (FaultClass.NUMERIC, (("b", 1),), ""),
        (FaultClass.FABRIC, (("b", None),), "b"),
        (FaultClass.FABRIC, (("elsewhere", None),), ""),
        (FaultClass.STRAGGLER, (("a", 0), ("b", 1)), ""),
    ],
)
def test_only_hardware_and_slowness_of_a_named_node_blame(
    kind: FaultClass, culprits: tuple[tuple[str, int | None], ...], expected: str
) -> None:
    diagnosis = Diagnosis(kind, 0.9, culprits=culprits, why="it says so")
    assert "".join(blamed_by(diagnosis, ("a", "b"), {0: "a", 1: "b"})) == expected


@given(st.lists(st.text("abcdef0123456789", min_size=1, max_size=4), unique=True, max_size=40), st.integers(1, 7))
def test_everybody_sits_once_in_a_gang_or_is_left(nodes: list[str], size: int) -> None:
    found = seat(nodes, size)
    assert [*(node for gang in found.gangs for node in gang), *found.rest] == nodes
    assert all(len(gang) == size for gang in found.gangs)
    assert len(found.rest) < size


def graded(word: VerdictWord, *named: str) -> NodeGrade:
    return NodeGrade("", word, ({"check": "x", "verdict": str(word), "evidence": "", "named": list(named)},))


NODES = st.dictionaries(
    st.integers(0, 30).map(lambda number: f"n{number}"),
    st.sampled_from([graded(PASS), graded(FAIL), graded(UNKNOWN), graded(UNKNOWN, "n1")]),
)


@given(NODES, st.sets(st.integers(40, 50).map(lambda number: f"r{number}"), max_size=6), st.integers(1, 6))
def test_whoever_nobody_judged_sits_again_beside_nodes_that_passed(
    grades: dict[str, NodeGrade], rest: set[str], size: int
) -> None:
    left = sorted(rest)
    found = seat_again(grades, left, size)
    group_seats = [node for gang in found.gangs for node in gang]
    unjudged = {*left, *(node for node, one in grades.items() if one.reasons[0]["named"])}
    assert len(group_seats) == len(set(group_seats))
    assert unjudged == (set(group_seats) & unjudged) | set(found.rest)
    assert all(grades[node].verdict is PASS for node in group_seats if node not in unjudged), "fillers are proven"
    assert all(len(gang) == size for gang in found.gangs)


WORDS = st.sampled_from(list(VerdictWord))


@given(WORDS, WORDS)
def test_of_two_rounds_a_failure_stands_and_a_pass_is_not_taken_back_by_silence(
    first: VerdictWord, second: VerdictWord
) -> None:
    found = merged({"a": graded(first)}, {"a": graded(second)})["a"].verdict
    assert found is (second if second is FAIL or first is not PASS else PASS)


@given(
    st.integers(0, 25),
    st.sampled_from([None, 2.0, math.nan, math.inf]),
    st.sampled_from(["", "it died"]),
    st.sets(st.sampled_from(["a", "b"])),
    st.sampled_from([GOOD, SLOW, Rate(UNKNOWN, None, None, "too few")]),
)
def test_only_who_is_named_fails_and_only_a_whole_trial_passes(
    count: int, loss: float | None, ended: str, named: set[str], rate: Rate
) -> None:
    one = seen(rows(count, loss=loss), ended=ended, blamed=dict.fromkeys(sorted(named), HARD))
    good = count >= 20 and loss == 2.0 and not ended and rate.verdict is PASS
    for node, word in words(one, rate).items():
        assert word is (PASS if good else FAIL if node in named else UNKNOWN)
    assert all(reason["evidence"] for reason in grades_of(one, rate)["a"].reasons if reason["verdict"] != "pass")
