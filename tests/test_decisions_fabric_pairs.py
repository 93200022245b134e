"""Which pairs meet, and who is to blame: properties over made-up nodes, and the cases that a person would ask about."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.node_tests.fabric.pairs import MANY, ROUNDS, Meeting, Pair, Pairs, checks_for, next_pairs
from profiles.vocabulary import VerdictWord as V

BW = "bandwidth"
Said = Callable[[Pair, str], V]


def played(count: int, said: Said, *, seed: int = 0, checks: tuple[str, ...] = (BW,)) -> Pairs:
    """All rounds, measured as `said` tells."""
    state = Pairs(tuple(f"n{number}" for number in range(count)), checks, seed)
    while pairs := next_pairs(state):
        names = [node for pair in pairs for node in pair]
        assert len(set(names)) == len(names), "a node meets one other at a time"
        assert all(right not in state.partners[left] for left, right in pairs), "nobody meets the same one twice"
        asked = checks_for(state) or checks
        state = state.after([Meeting(pair, {check: said(pair, check) for check in asked}) for pair in pairs])
        assert len(state.rounds) <= ROUNDS
    return state


def words(state: Pairs, check: str = BW) -> dict[str, V]:
    return {node: state.views[check].word(node) for node in state.nodes}


def bad(*nodes: str, word: V = V.FAIL) -> Said:
    return lambda pair, _: word if set(pair) & set(nodes) else V.PASS


def all_but(state: Pairs, nodes: Iterable[str], word: V) -> dict[str, V]:
    return {node: word if node in set(nodes) else V.PASS for node in state.nodes}


@given(st.integers(2, 60), st.integers(0, 1000))
def test_good_nodes_are_proven_in_one_round_and_an_odd_one_in_a_second(count: int, seed: int) -> None:
    state = played(count, bad(), seed=seed)
    assert set(words(state).values()) == {V.PASS}
    assert len(state.rounds) == 1 + count % 2
    assert len(state.rounds[0]) == count // 2
    assert all(len(meetings) == 1 for meetings in state.rounds[1:])


@given(st.integers(8, 60), st.integers(0, 1000), st.data())
def test_bad_nodes_are_named_and_never_their_partners(count: int, seed: int, data: st.DataObject) -> None:
    faulty = data.draw(st.sets(st.sampled_from([f"n{number}" for number in range(count)]), max_size=count // 4))
    state = played(count, bad(*faulty), seed=seed)
    assert words(state) == all_but(state, faulty, V.FAIL)


@given(st.integers(8, 40), st.integers(0, 1000), st.data())
def test_a_node_that_tells_nothing_is_unknown_and_its_partners_are_proven(
    count: int, seed: int, data: st.DataObject
) -> None:
    silent = data.draw(st.sets(st.sampled_from([f"n{number}" for number in range(count)]), max_size=count // 4))
    state = played(count, bad(*silent, word=V.UNKNOWN), seed=seed)
    assert words(state) == all_but(state, silent, V.UNKNOWN)


@given(st.integers(2, 30), st.integers(0, 500), st.randoms(use_true_random=False))
def test_whatever_is_told_it_ends_and_a_node_that_never_missed_is_never_blamed(count: int, seed: int, chance) -> None:  # type: ignore[no-untyped-def]
    state = played(count, lambda _pair, _check: chance.choice(list(V)), seed=seed, checks=("a", "b"))
    for check in state.checks:
        view = state.views[check]
        for node, word in words(state, check).items():
            if word is V.FAIL:
                assert len(set(view.blamed(node))) >= 2
                assert set(view.blamed(node)) <= view.proven
            assert (word is V.PASS) == (node in view.proven)


@given(st.integers(3, 40), st.integers(0, 500), st.data())
def test_a_bad_way_between_two_blames_neither(count: int, seed: int, data: st.DataObject) -> None:
    ends = data.draw(st.lists(st.integers(0, count - 1), min_size=2, max_size=2, unique=True))
    link = {f"n{end}" for end in ends}
    state = played(count, lambda pair, _: V.FAIL if set(pair) == link else V.PASS, seed=seed)
    assert set(words(state).values()) == {V.PASS}


@given(st.integers(2, 12), st.integers(0, 100))
def test_the_same_seed_plans_the_same_meetings(count: int, seed: int) -> None:
    assert played(count, bad("n0"), seed=seed) == played(count, bad("n0"), seed=seed)


def test_two_alone_cannot_tell_whose_fault_it_is() -> None:
    state = played(2, bad("n0"))
    assert set(words(state).values()) == {V.UNKNOWN}
    assert len(state.rounds) == 1


@pytest.mark.parametrize("seed", range(5))
def test_of_three_the_bad_one_is_named(seed: int) -> None:
    state = played(3, bad("n1"), seed=seed)
    assert words(state) == all_but(state, ["n1"], V.FAIL)


@pytest.mark.parametrize(("word", "rounds"), [(V.UNKNOWN, 1), (V.FAIL, 3)])
def test_where_nobody_is_good_it_gives_up_and_blames_nobody(word: V, rounds: int) -> None:
    state = played(2 * MANY, lambda _pair, _check: word)
    assert set(words(state).values()) == {V.UNKNOWN}
    assert len(state.rounds) == rounds, "a tool that no node has is asked for once"


def test_only_what_is_open_is_measured_again() -> None:
    state = played(8, lambda pair, check: V.FAIL if check == BW and "n3" in pair else V.PASS, checks=(BW, "loss"))
    assert [set(one.verdicts) for one in state.rounds[0]] == [{BW, "loss"}] * 4
    assert all(set(one.verdicts) == {BW} for meetings in state.rounds[1:] for one in meetings)
    assert words(state, "loss") == all_but(state, [], V.PASS)
    assert words(state) == all_but(state, ["n3"], V.FAIL)


def test_without_checks_that_count_everybody_still_meets_somebody_once() -> None:
    state = played(5, bad(), checks=())
    assert all(state.partners[node] for node in state.nodes)
    assert len(state.rounds) == 2
