"""What is believed of nodes now, what a standing failure leads to, and which nodes a run may have."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.node_tests.grading.admission import judged, to_test, waits_for_proofs
from flows.decisions.node_tests.grading.model import Depth
from flows.decisions.node_tests.grading.standing import (
    counting,
    findings_of,
    hours_of,
    proofs_of,
    released_at,
    standings,
)
from flows.decisions.recovery.nodes import NodeNeed, choose_nodes
from profiles.checks.suite import Lifetimes
from profiles.vocabulary import FaultClass, VerdictWord
from tests.support.cases.rows import rows
from workflows.model.fleet import NodeCandidate
from workflows.model.records import NodeRecord, VerdictRecord

F, P, U = VerdictWord.FAIL, VerdictWord.PASS, VerdictWord.UNKNOWN
NOW, HOUR = 1e9, 3600.0
HOURS = hours_of(Lifetimes())
POOLS = {"a": "p", "b": "p"}


def told(node: str, hours_ago: float, depth: str, word: VerdictWord, **reason: object) -> VerdictRecord:
    reasons = ({"check": "gemm", "verdict": str(word), "evidence": "12 of 16", **reason},)
    return VerdictRecord("c", node, word, depth, NOW - hours_ago * HOUR, reasons)


def known(*records: VerdictRecord, released: dict[str, float] | None = None) -> dict[str, tuple[VerdictWord, str]]:
    found = proofs_of(records, released or {}, HOURS, NOW)
    return {node: (item.standing.word, item.deciding.depth if item.deciding else "") for node, item in found.items()}


def test_a_gate_is_good_for_as_long_as_a_smoke_test() -> None:
    assert HOURS == {"gate": 24.0, "smoke": 24.0, "device": 168.0, "fabric": 168.0, "storage": 72.0, "training": 720.0}


@rows("node_tests/grading/proofs")
def test_what_is_believed_of_a_node(
    records: Sequence[tuple[str, float, VerdictWord]],
    released: float | None,
    expected: tuple[VerdictWord, str] | None,
) -> None:
    given_back = {} if released is None else {"a": NOW - released * HOUR}
    found = known(*(told("a", ago, depth, word) for depth, ago, word in records), released=given_back)
    assert found == ({} if expected is None else {"a": expected})


def test_giving_a_node_back_takes_failures_and_leaves_passes() -> None:
    before, after = told("a", 3, "device", F), told("a", 1, "device", F)
    passed, other = told("a", 3, "smoke", P), told("b", 3, "device", F)
    assert counting([before, passed, after, other], {"a": NOW - 2 * HOUR}) == [passed, after, other]
    states = [
        NodeRecord("c", "a", "schedulable", "repaired", 5.0, "", "p"),
        NodeRecord("c", "b", "quarantined", "bad", 6.0, "", "p"),
    ]
    assert released_at(states) == {"a": 5.0}


def test_a_failure_that_stands_becomes_a_finding_with_its_class() -> None:
    records = [told("b", 2, "device", F, **{"class": "gpu_hardware"}), told("a", 1, "smoke", P)]
    [found] = findings_of(proofs_of(records, {}, HOURS, NOW), POOLS)
    assert (found.node, found.pool, found.condition, found.fault_class) == (
        "b",
        "p",
        "preflight-device",
        FaultClass.GPU_HARDWARE,
    )
    assert (found.verdict, found.certain, found.judged, found.since) == (F, True, True, NOW - 2 * HOUR)
    assert found.why == "gemm: 12 of 16"


@pytest.mark.parametrize("depth", ["gate", "sweep", "condition"])
def test_what_others_look_after_is_not_told_twice(depth: str) -> None:
    assert findings_of(proofs_of([told("a", 1, depth, F)], {}, HOURS, NOW), POOLS) == []


def test_a_class_that_nobody_knows_is_unknown_and_warnings_name_nothing() -> None:
    reasons = (
        {"check": "thp", "verdict": "fail", "severity": "warning", "class": "config", "evidence": "never"},
        {"check": "gemm", "verdict": "fail", "class": "broken", "evidence": "nan"},
    )
    record = VerdictRecord("c", "a", F, "smoke", NOW - 1.0, reasons)
    [found] = findings_of(proofs_of([record], {}, HOURS, NOW), POOLS)
    assert (found.fault_class, found.why) == (FaultClass.UNKNOWN, "gemm: nan")


def test_nodes_of_no_pool_of_ours_are_left_alone() -> None:
    assert findings_of(proofs_of([told("z", 1, "smoke", F)], {}, HOURS, NOW), POOLS) == []


def pool(*names: str) -> list[NodeCandidate]:
    return [NodeCandidate(name, "p") for name in names]


def chosen(
    records: Sequence[VerdictRecord], wanted: tuple[Depth, ...], count: int = 2, tried: dict[str, str] | None = None
) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Chosen nodes, those to be tested first, and why nothing begins."""
    names = ("a", "b", "c", "d")
    known = standings(names, records, wanted, HOURS, NOW)
    choice = choose_nodes(judged(pool(*names), known, ("d",), tried or {}), NodeNeed(count))
    return choice.nodes, to_test(choice, known, ("d",), tried or {}), waits_for_proofs(choice)


def test_without_a_wish_only_failures_of_tests_keep_nodes_away() -> None:
    assert chosen([], ()) == (("a", "b"), (), "")
    assert chosen([told("a", 1, "device", F)], ()) == (("b", "c"), (), "")
    assert chosen([told("a", 1, "gate", F)], ()) == (("a", "b"), (), ""), "its own attempt looked after that"


def test_only_what_is_stale_is_tested() -> None:
    passed = [told("a", 1, "smoke", P), told("b", 30, "smoke", P)]
    assert chosen(passed, (Depth.SMOKE,)) == (("a", "b"), ("b",), "")
    assert chosen(passed, (Depth.SMOKE, Depth.DEVICE)) == (("a", "b"), ("a", "b"), "")


def test_what_nobody_could_test_is_not_used_but_where_it_is_allowed_by_name() -> None:
    passed = [told("a", 1, "smoke", P)]
    assert chosen(passed, (Depth.SMOKE,), 2, {"b": "", "c": "it hangs"}) == (("a", "d"), (), "")
    failed = [*passed, told("d", 1, "smoke", F)]
    nodes, tests, waits = chosen(failed, (Depth.SMOKE,), 2, {"b": "", "c": "it hangs"})
    assert (nodes, tests) == ((), ())
    assert "waits for proven nodes" in waits
    assert "c: not proven: it hangs" in waits


def test_a_run_does_not_wait_for_proofs_that_would_not_be_enough() -> None:
    failed = [told(name, 1, "smoke", F) for name in ("a", "b", "d")]
    nodes, _, waits = chosen(failed, (Depth.SMOKE,), 2, {"c": ""})
    assert (nodes, waits) == ((), "")


words = st.sampled_from([P, F, U])
records_of_nodes = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.floats(0.1, 500.0),
        st.sampled_from(["gate", "smoke", "device", "fabric"]),
        words,
    ),
    max_size=20,
)


@given(records_of_nodes, st.integers(1, 4), st.sets(st.sampled_from("abcd")))
def test_no_run_begins_on_a_node_that_failed_or_is_unknown_and_was_tried(
    lines: list[tuple[str, float, str, VerdictWord]], count: int, tried: set[str]
) -> None:
    records = [told(node, ago, depth, word) for node, ago, depth, word in lines]
    wanted = (Depth.SMOKE, Depth.DEVICE)
    known = standings("abcd", records, wanted, HOURS, NOW)
    nodes, tests, _ = chosen(records, wanted, count, dict.fromkeys(tried, ""))
    for node in set(nodes) - {"d"}:
        assert known[node].word is P or node in tests
        assert node not in tests or node not in tried
    for node in nodes:
        assert not any(item.depth in ("smoke", "device", "fabric") for item in known[node].failures)
