"""Which nodes the next attempt runs on."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.decisions.recovery.nodes import NodeNeed, choose_nodes, natural
from profiles.vocabulary import VerdictWord
from workflows.model.fleet import NodeCandidate


def nodes(count: int, spares: int = 0, rack: int = 1) -> list[NodeCandidate]:
    return [
        NodeCandidate(f"node-{i}", spare=i >= count - spares, rack=f"r{i // rack}", block=f"b{i // rack // 2}")
        for i in range(count)
    ]


def changed(candidates: list[NodeCandidate], name: str, **facts: object) -> list[NodeCandidate]:
    return [replace(node, **facts) if node.name == name else node for node in candidates]  # type: ignore[arg-type]


def test_a_first_attempt_takes_ordinary_nodes_and_leaves_spares_alone() -> None:
    assert choose_nodes(nodes(4, spares=2), NodeNeed(2)).nodes == ("node-0", "node-1")
    assert choose_nodes(nodes(4, spares=2), NodeNeed(3)).nodes == ("node-0", "node-1", "node-2")


def test_a_lost_node_is_replaced_in_place_by_a_spare() -> None:
    pool = changed(nodes(5, spares=1), "node-1", ready=False)
    choice = choose_nodes(pool, NodeNeed(3, keep=("node-0", "node-1", "node-2")))
    assert choice.nodes == ("node-0", "node-4", "node-2")
    assert choice.why == "keeps node-0, node-2; takes spare node-4"
    assert dict(choice.refused) == {"node-1": "not ready"}


def test_spares_come_last_where_the_profile_says_so() -> None:
    pool = changed(nodes(5, spares=1), "node-1", ready=False)
    need = NodeNeed(3, keep=("node-0", "node-1", "node-2"), use_spares=False)
    assert choose_nodes(pool, need).nodes == ("node-0", "node-3", "node-2")


REFUSED: dict[str, dict[str, object]] = {
    "quarantined: Xid 79": {"quarantined": "Xid 79"},
    "not ready": {"ready": False},
    "silent: the cluster does not know its state": {"ready": None},
    "cordoned": {"cordoned": True},
    "failed its test: GPU count": {"verdict": VerdictWord.FAIL, "verdict_why": "GPU count"},
    "tainted: team=b:NoSchedule": {"taints": ("team=b:NoSchedule",)},
    "used by other-run": {"busy": "other-run"},
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_node_is_refused_with_its_reason(why: str) -> None:
    choice = choose_nodes(changed(nodes(2), "node-0", **REFUSED[why]), NodeNeed(2))
    assert (choice.nodes, choice.missing, choice.refused) == ((), 1, (("node-0", why),))
    assert choice.why == f"1 of 2 nodes are usable (node-0: {why})"


def test_avoided_nodes_are_out_and_unknown_ones_are_left_to_the_gate() -> None:
    choice = choose_nodes(nodes(3), NodeNeed(2, avoid=("node-0",)))
    assert choice.nodes == ("node-1", "node-2")
    assert dict(choice.refused) == {"node-0": "excluded by the last decision"}


def test_a_gang_stays_within_one_rack_where_one_has_room() -> None:
    pool = changed(nodes(8, rack=4), "node-1", ready=False)
    assert choose_nodes(pool, NodeNeed(4, level="rack")).nodes == ("node-4", "node-5", "node-6", "node-7")


def test_a_gang_stays_in_its_rack_rather_than_moving() -> None:
    pool = changed(nodes(12, rack=4), "node-5", ready=False)
    choice = choose_nodes(pool, NodeNeed(3, keep=("node-4", "node-5", "node-6"), level="rack"))
    assert choice.nodes == ("node-4", "node-7", "node-6")


def test_a_preferred_rack_gives_way_and_a_required_one_does_not() -> None:
    pool = nodes(4, rack=2)
    assert choose_nodes(pool, NodeNeed(3, level="rack")).nodes == ("node-0", "node-1", "node-2")
    strict = choose_nodes(pool, NodeNeed(3, level="rack", required=True))
    assert (strict.nodes, strict.missing) == ((), 1)
    assert "within rack" in strict.why


def test_names_are_ordered_as_people_count() -> None:
    assert sorted(["node-10", "node-2", "a", "node-1"], key=natural) == ["a", "node-1", "node-2", "node-10"]


CANDIDATES = st.lists(
    st.builds(
        lambda i, ready, spare, quarantined, verdict, busy: NodeCandidate(
            f"node-{i}", ready=ready, spare=spare, quarantined=quarantined, verdict=verdict, busy=busy,
            rack=f"r{i // 3}", block=f"b{i // 6}"
        ),
        st.integers(0, 17),
        st.sampled_from([True, True, True, False, None]),
        st.booleans(),
        st.sampled_from(["", "", "", "fabric"]),
        st.sampled_from(VerdictWord),
        st.sampled_from(["", "", "", "other"]),
    ),
    max_size=18,
    unique_by=lambda node: node.name,
)  # fmt: skip
NEEDS = st.builds(
    NodeNeed,
    st.integers(1, 8),
    st.lists(st.integers(0, 17).map(lambda i: f"node-{i}"), max_size=8, unique=True).map(tuple),
    st.lists(st.integers(0, 17).map(lambda i: f"node-{i}"), max_size=3).map(tuple),
    st.sampled_from(["none", "rack", "block"]),
    st.booleans(),
    st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(CANDIDATES, NEEDS, st.randoms(use_true_random=False))
def test_only_fit_nodes_are_chosen_none_twice_and_the_same_ones_every_time(
    candidates: list[NodeCandidate], need: NodeNeed, chance: random.Random
) -> None:
    choice = choose_nodes(candidates, need)
    shuffled = list(candidates)
    chance.shuffle(shuffled)
    assert choose_nodes(shuffled, need) == choice
    fit = {node.name for node in candidates} - {name for name, _ in choice.refused}
    assert set(choice.nodes) <= fit - set(need.avoid)
    assert len(set(choice.nodes)) == len(choice.nodes)
    assert (len(choice.nodes) == need.count) is (choice.missing == 0)
    if choice.nodes and need.level == "none":
        for index, name in enumerate(need.keep[: need.count]):
            assert name not in fit or choice.nodes[index] == name
    if choice.nodes and need.required and need.level == "rack":
        assert len({node.rack for node in candidates if node.name in choice.nodes}) == 1
