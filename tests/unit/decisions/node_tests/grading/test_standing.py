"""What holds for a node: failures that stay, passes that run out, and what unknown means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.node_tests.grading.model import DEEPER, Depth
from flows.decisions.node_tests.grading.standing import SKEW_SECONDS, NodeStanding, depth_of, standing_of, standings
from profiles.vocabulary import VerdictWord
from workflows.model.records import VerdictRecord

F, P, U = VerdictWord.FAIL, VerdictWord.PASS, VerdictWord.UNKNOWN
NOW = 1e9
HOUR = 3600.0
HOURS = {
    Depth.GATE: 1.0,
    Depth.SMOKE: 24.0,
    Depth.DEVICE: 168.0,
    Depth.FABRIC: 168.0,
    Depth.STORAGE: 168.0,
    Depth.TRAINING: 720.0,
}


def told(hours_ago: float, depth: str, word: VerdictWord, *reasons: dict[str, Any], node: str = "n") -> VerdictRecord:
    return VerdictRecord("c", node, word, depth, NOW - hours_ago * HOUR, reasons)


def of(records: Sequence[VerdictRecord], *wanted: Depth) -> NodeStanding:
    return standing_of("n", records, wanted or (Depth.SMOKE,), HOURS, NOW)


@pytest.mark.parametrize(
    ("records", "wanted", "word", "why"),
    [
        ([], [], U, "smoke: it was never tested"),
        ([told(1, "smoke", P)], [], P, "smoke: passed"),
        ([told(25, "smoke", P)], [], U, "was good for 24.0 h"),
        ([told(24, "smoke", P)], [], U, "was good for 24.0 h"),
        ([told(2, "smoke", F)], [], F, "failed test smoke 2.0 h ago, and none cleared it"),
        ([told(9999, "smoke", F)], [], F, "failed test smoke"),
        ([told(2, "smoke", F), told(1, "smoke", P)], [], P, "passed"),
        ([told(1, "smoke", P), told(2, "smoke", F)], [], P, "passed"),
        ([told(2, "smoke", P), told(1, "smoke", F)], [], F, "failed"),
        ([told(2, "smoke", F), told(2, "smoke", P)], [], F, "failed"),
        ([told(2, "device", F), told(1, "smoke", P)], [], F, "failed test device"),
        ([told(2, "device", F), told(1, "gate", P)], [], F, "failed test device"),
        ([told(2, "smoke", F), told(1, "device", P)], [], P, "passed in test device"),
        ([told(2, "fabric", F), told(1, "storage", P)], [], F, "failed test fabric"),
        ([told(2, "storage", F), told(1, "fabric", P)], [], F, "failed test storage"),
        ([told(2, "fabric", F), told(1, "training", P)], [], P, "passed in test training"),
        ([told(2, "training", F), told(1, "fabric", P)], [], F, "failed test training"),
        ([told(2, "device", F), told(1, "fabric", P)], [Depth.DEVICE], F, "failed test device"),
        ([told(2, "device", F), told(1, "storage", P)], [], F, "failed test device"),
        ([told(2, "device", F), told(1, "training", P)], [Depth.DEVICE], P, "passed in test training"),
        ([told(2, "device", F), told(1, "device", U)], [Depth.DEVICE], F, "failed test device"),
        ([told(2, "smoke", P), told(1, "smoke", U)], [], U, "its last test, 60.0 min ago, could not tell"),
        ([told(2, "smoke", P), told(1, "gate", U)], [], P, "passed"),
        ([told(2, "smoke", U), told(1, "device", P)], [], P, "passed in test device"),
        ([told(30, "device", P)], [], U, "was good for 24.0 h"),
        ([told(30, "device", P)], [Depth.DEVICE], P, "passed 30.0 h ago"),
        ([told(1, "smoke", P)], [Depth.SMOKE, Depth.DEVICE], U, "device: it was never tested"),
        ([told(1, "smoke", P), told(2, "device", P)], [Depth.DEVICE, Depth.SMOKE], P, "smoke: passed"),
        ([told(1, "device", P), told(1, "storage", P)], [Depth.FABRIC], U, "fabric: it was never tested"),
        ([told(-1, "smoke", P)], [], U, "dated 60.0 min ahead"),
        ([told(-0.05, "smoke", P)], [], P, "passed"),
        ([told(-1, "smoke", P), told(1, "smoke", P)], [], P, "passed"),
        ([told(1, "smoke", F), told(-1, "smoke", P)], [], F, "failed test smoke"),
        ([told(1, "smoke", F), told(-1, "device", P), told(0.5, "device", P)], [], P, "in test device 30.0 min ago"),
        ([told(2, "condition", F)], [], F, "failed test condition"),
        ([told(2, "condition", F), told(1, "gate", P)], [], F, "failed test condition"),
        ([told(2, "condition", F), told(1, "smoke", P)], [], P, "passed"),
        ([told(2, "sweep", F), told(1, "gate", P), told(1, "smoke", P)], [], P, "passed"),
        ([told(2, "invented", F), told(1, "storage", P)], [], F, "failed test invented"),
        ([told(2, "invented", F), told(1, "training", P)], [], P, "passed in test training"),
        ([told(1, "invented", P)], [], U, "it was never tested"),
        ([told(1, "smoke", F, node="another")], [], U, "it was never tested"),
    ],
)
def test_what_holds_now(records: list[VerdictRecord], wanted: list[Depth], word: VerdictWord, why: str) -> None:
    found = of(records, *wanted)
    assert found.word is word
    assert why in found.why
    assert bool(found.failures) == (word is F)


def test_the_sentence_names_the_check_that_failed_and_leaves_warnings_out() -> None:
    soft = {"check": "soft", "verdict": "fail", "severity": "warning", "evidence": "no"}
    hard = {"check": "copy", "verdict": "fail", "evidence": "at least 100 GB/s"}
    assert "failed test device 2.0 h ago (copy: at least 100 GB/s)" in of([told(2, "device", F, soft, hard)]).why
    silent = {"check": "copy", "verdict": "unknown", "evidence": "timed out"}
    assert "could not tell (copy: timed out)" in of([told(2, "smoke", U, silent)]).why


def test_without_a_wanted_depth_nothing_is_proven() -> None:
    assert standing_of("n", [told(1, "training", P)], (), HOURS, NOW).word is U
    assert standing_of("n", [told(1, "smoke", P)], (Depth.SMOKE,), {}, NOW).word is U


def test_many_nodes_at_once_are_each_by_itself() -> None:
    records = [told(1, "smoke", P, node="a"), told(1, "smoke", F, node="b")]
    found = standings(["b", "c", "a"], records, (Depth.SMOKE,), HOURS, NOW)
    assert [(node, item.word) for node, item in found.items()] == [("b", F), ("c", U), ("a", P)]


def test_each_depth_speaks_for_itself_and_for_what_is_shallower() -> None:
    assert all(depth in DEEPER[depth] and Depth.TRAINING in DEEPER[depth] for depth in Depth)
    assert [depth for depth in Depth if Depth.FABRIC in DEEPER[depth]] == [Depth.GATE, Depth.FABRIC]
    assert [depth for depth in Depth if Depth.DEVICE in DEEPER[depth]] == [Depth.GATE, Depth.SMOKE, Depth.DEVICE]


RECORDS = st.lists(
    st.builds(
        told,
        st.floats(-2.0, 400.0),
        st.sampled_from([*map(str, Depth), "sweep", "condition", "invented"]),
        st.sampled_from([F, P, U]),
    ),
    max_size=12,
)
WANTED = st.sets(st.sampled_from(list(Depth)), min_size=1)


@given(RECORDS, WANTED, st.randoms(use_true_random=False))
def test_the_order_of_the_verdicts_changes_nothing(records: list[VerdictRecord], wanted: set[Depth], dice: Any) -> None:
    mixed = records[:]
    dice.shuffle(mixed)
    assert of(mixed, *wanted).word is of(records, *wanted).word


@given(RECORDS, WANTED)
def test_a_failure_stands_until_a_newer_pass_of_equal_or_deeper_test(
    records: list[VerdictRecord], wanted: set[Depth]
) -> None:
    def cleared(failure: VerdictRecord) -> bool:
        clearing = DEEPER[depth_of(failure) or Depth.TRAINING]
        return any(
            r.verdict is P and failure.at < r.at <= NOW + SKEW_SECONDS and depth_of(r) in clearing for r in records
        )

    stands = [item for item in records if item.verdict is F and not cleared(item)]
    found = of(records, *wanted)
    assert (found.word is F) == bool(stands)
    assert sorted(found.failures, key=id) == sorted(stands, key=id)


@given(RECORDS, WANTED, st.floats(0.0, 10_000.0))
def test_a_node_that_passes_has_a_living_pass_for_each_wanted_depth_and_time_never_heals(
    records: list[VerdictRecord], wanted: set[Depth], later: float
) -> None:
    found = of(records, *wanted)
    if found.word is P:
        for depth in wanted:
            assert any(
                r.verdict is P and depth_of(r) in DEEPER[depth] and r.at + HOURS[depth] * HOUR > NOW for r in records
            )
    past = [item for item in records if item.at <= NOW]
    then = standing_of("n", past, wanted, HOURS, NOW + later)
    assert then.word is not P or of(past, *wanted).word is P
