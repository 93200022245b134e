"""Who is tested, how deeply and in which order, what waits, and who may be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.node_tests.grading.admission import Admission, Candidate, Occasion, Wishes, due_tests, schedulable
from flows.decisions.node_tests.grading.model import DEEP, Depth
from flows.decisions.node_tests.grading.standing import NodeStanding, standing_of
from profiles.vocabulary import VerdictWord
from tests.support.cases.rows import rows
from workflows.model.records import VerdictRecord

F, P, U = VerdictWord.FAIL, VerdictWord.PASS, VerdictWord.UNKNOWN
NOW, HOUR = 1e9, 3600.0
SMOKE, DEVICE, FABRIC = Depth.SMOKE, Depth.DEVICE, Depth.FABRIC
HOURS = dict.fromkeys(Depth, 24.0)
WISHES = Wishes(
    {
        Occasion.BEFORE_RUN: (SMOKE,),
        Occasion.SUSPECT: (DEVICE,),
        Occasion.AFTER_REPAIR: (SMOKE,),
        Occasion.JOIN: (SMOKE, DEVICE),
        Occasion.NIGHTLY: (DEVICE,),
    },
    max_share=0.25,
)
SIZES = {"p": 8, "q": 8}
Told = tuple[float, Depth, VerdictWord]


def standing(name: str, *told: Told) -> NodeStanding:
    records = [VerdictRecord("c", name, word, str(depth), NOW - hours * HOUR) for hours, depth, word in told]
    return standing_of(name, records, list(Depth), HOURS, NOW)


def node(name: str, occasions: Mapping[Occasion, float], *told: Told, **more: Any) -> Candidate:
    """Occasions are so many hours ago."""
    when = {occasion: NOW - hours * HOUR for occasion, hours in occasions.items()}
    return Candidate(name, more.pop("pool", "p"), standing(name, *told), when, **more)


def due(*candidates: Candidate, wishes: Wishes = WISHES) -> Admission:
    return due_tests(candidates, wishes, SIZES)


RUN, SUSPECT, REPAIR = Occasion.BEFORE_RUN, Occasion.SUSPECT, Occasion.AFTER_REPAIR
JOIN, NIGHT = Occasion.JOIN, Occasion.NIGHTLY


@rows("node_tests/grading/admission")
def test_what_a_node_needs(
    occasions: Mapping[Occasion, float], told: Sequence[Told], depths: list[Depth], why: str
) -> None:
    tests = due(node("n", occasions, *told)).tests
    assert [list(test.depths) for test in tests] == ([depths] if depths else [])
    assert why in (tests[0].why if tests else "")


def test_the_most_urgent_come_first_then_the_oldest_proof_then_the_name() -> None:
    found = due(
        node("n-9", {NIGHT: 0}, (30.0, DEVICE, P)),
        node("n-10", {NIGHT: 0}, (40.0, DEVICE, P)),
        node("n-2", {RUN: 0}),
        node("n-1", {JOIN: 1}, pool="q"),
        node("n-12", {RUN: 0}),
        node("n-3", {SUSPECT: 1}, pool="q"),
    )
    assert [test.node for test in found.tests] == ["n-2", "n-12", "n-3", "n-1", "n-10", "n-9"]


def test_at_most_a_share_of_a_pool_is_tested_deeply_at_once() -> None:
    found = due(*[node(f"n-{n}", {NIGHT: 0}) for n in range(5)], *[node(f"m-{n}", {NIGHT: 0}, pool="q") for n in "a"])
    assert [test.node for test in found.tests] == ["m-a", "n-0", "n-1"]
    assert [(test.node, why) for test, why in found.waiting] == [
        (f"n-{n}", "2 of 8 nodes of pool p are tested now, at most 2 may be") for n in (2, 3, 4)
    ]


def test_tests_that_run_already_count_for_the_brake_and_are_not_begun_twice() -> None:
    found = due(node("n-1", {NIGHT: 0}, testing=True), node("n-2", {NIGHT: 0}), node("n-3", {NIGHT: 0}))
    assert [test.node for test in found.tests] == ["n-2"]
    assert [why for _, why in found.waiting] == [
        "a test runs there now",
        "2 of 8 nodes of pool p are tested now, at most 2 may be",
    ]


def test_one_node_may_always_be_tested() -> None:
    narrow = Wishes(WISHES.depths, max_share=0.0)
    assert len(due(node("n-1", {NIGHT: 0}), node("n-2", {NIGHT: 0}), wishes=narrow).tests) == 1
    assert len(due(node("n-1", {NIGHT: 0}, pool="of unknown size"), wishes=narrow).tests) == 1


def test_shallow_tests_and_those_before_a_run_are_not_braked() -> None:
    shallow = due(*[node(f"n-{n}", {REPAIR: 1}) for n in range(8)])
    deep = Wishes({RUN: (DEVICE,)}, max_share=0.0)
    assert len(shallow.tests) == 8
    assert len(due(*[node(f"n-{n}", {RUN: 0}) for n in range(8)], wishes=deep).tests) == 8


def test_deep_tests_wait_for_an_idle_node_and_shallow_ones_do_not() -> None:
    found = due(node("n-1", {NIGHT: 0}, idle=False), node("n-2", {RUN: 0}, idle=False))
    assert [test.node for test in found.tests] == ["n-2"]
    assert [why for _, why in found.waiting] == ["its GPUs are in use, and the test needs them for itself"]


def test_unknown_is_used_only_where_it_is_named_and_failed_never() -> None:
    found = schedulable(
        [
            standing("n-10", (1.0, SMOKE, P)),
            standing("n-2"),
            standing("n-3", (1.0, SMOKE, F)),
            standing("n-4"),
            NodeStanding("n-1", P, "passed"),
        ],
        named=("n-3", "n-4"),
    )
    assert found.fit == ("n-1", "n-4")
    assert [(name, why.split(":")[0]) for name, why in found.refused] == [
        ("n-2", "not proven"),
        ("n-3", "failed test smoke 60.0 min ago, and none cleared it"),
        ("n-10", "not proven"),
    ]


CANDIDATES = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(list(Occasion)), st.floats(0.0, 48.0), max_size=3),
        st.lists(st.tuples(st.floats(0.0, 48.0), st.sampled_from(list(Depth)), st.sampled_from([F, P, U])), max_size=4),
        st.sampled_from(["p", "q"]),
        st.booleans(),
        st.booleans(),
    ),
    max_size=16,
)


@given(CANDIDATES, st.floats(0.0, 1.0), st.randoms(use_true_random=False))
def test_the_order_changes_nothing_the_brake_holds_and_only_idle_nodes_are_tested_deeply(
    made: list[tuple[dict[Occasion, float], list[Told], str, bool, bool]], share: float, dice: Any
) -> None:
    nodes = [
        node(f"n-{n}", occasions, *told, pool=pool, idle=idle, testing=testing)
        for n, (occasions, told, pool, idle, testing) in enumerate(made)
    ]
    mixed = nodes[:]
    dice.shuffle(mixed)
    wishes = Wishes(WISHES.depths, share)
    found = due(*nodes, wishes=wishes)
    assert found == due(*mixed, wishes=wishes)
    by_name = {item.node: item for item in nodes}
    for pool, size in SIZES.items():
        deep = [t for t in found.tests if t.pool == pool and DEEP & set(t.depths) and t.occasion is not RUN]
        running = sum(item.testing for item in nodes if item.pool == pool)
        assert not deep or len(deep) + running <= max(1, int(share * size))
    for test in found.tests:
        assert not by_name[test.node].testing
        assert by_name[test.node].idle or not DEEP & set(test.depths)
    names = [test.node for test in (*found.tests, *(test for test, _ in found.waiting))]
    assert len(names) == len(set(names))
