"""Which groups come next, what counts as said, and what an exhausted budget leaves open."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.decisions.node_tests.fabric.knowledge import State, bits, mask_of
from flows.decisions.node_tests.fabric.model import (
    Answer,
    Fabric,
    FabricFault,
    Floor,
    Group,
    Measurement,
    Node,
    circle,
    dealt,
    shuffled,
)
from flows.decisions.node_tests.fabric.plan import next_round
from tests.fabrics import GIGABYTES_PER_SECOND, ORDINARY, Fault, drawn, leaf_spine, play, untold, world_of

GOOD = (GIGABYTES_PER_SECOND,) * 8
ALL = tuple(range(8))


def asked(state: State) -> tuple[Group, ...]:
    groups = next_round(state)
    assert not isinstance(groups, Answer)
    return groups


def answered(state: State) -> Answer:
    answer = next_round(state)
    assert isinstance(answer, Answer)
    return answer


def test_the_first_round_is_everybody() -> None:
    world = world_of(leaf_spine(20, 4))
    assert asked(State(world.fabric)) == (tuple(node.name for node in world.fabric.nodes),)


def test_after_a_miss_the_blocks_are_what_hangs_at_one_switch() -> None:
    state = State(world_of(leaf_spine(20, 4)).fabric)
    state = state.after((Measurement(asked(state)[0], None),))
    assert {frozenset(group) for group in asked(state)} == {
        frozenset(f"n{number}" for number in range(first, first + 4)) for first in range(0, 20, 4)
    }


def test_the_same_seed_plans_the_same_and_another_seed_other_partners() -> None:
    plans: list[tuple[tuple[Group, ...], ...]] = []
    for seed in (4, 4, 5):
        world = replace(world_of(untold(40), seed=seed), nodes={"n3": Fault(ALL, 0.5)})
        rounds = play(world, 1).state.rounds
        plans.append(tuple(tuple(one.group for one in each) for each in rounds))
    assert plans[0] == plans[1] != plans[2]


def test_a_state_built_from_its_rounds_goes_on_like_one_that_grew() -> None:
    world = drawn(Random(3), noise=ORDINARY)
    grown = play(world, 3).state
    assert State(grown.fabric, grown.rounds) == grown
    assert next_round(State(grown.fabric, grown.rounds)) == next_round(grown)


def test_a_spent_budget_leaves_unknown_what_is_open() -> None:
    world = replace(world_of(leaf_spine(32, 8)), nodes={"n5": Fault(ALL, 0.5)})
    for rounds in range(1, 5):
        answer = play(replace(world, fabric=replace(world.fabric, rounds=rounds)), 1).answer
        assert answer.spent
        assert "n5" not in answer.proven
        assert not answer.findings
        assert "n5" in {one.node for one in answer.unknown}
        assert answer.unexplained


def test_no_budget_no_nodes_or_one_node_is_an_answer_and_no_error() -> None:
    world = world_of(untold(4))
    none = answered(State(replace(world.fabric, rounds=0)))
    assert len(none.unknown) == 4
    assert {one.why for one in none.unknown} == {"no group with it was measured"}
    assert answered(State(world_of(()).fabric)).unknown == ()
    assert [one.node for one in answered(State(world_of(untold(1)).fabric)).unknown] == ["n0"]


@pytest.mark.parametrize("told", [(), GOOD[:7], (float("nan"),) * 8])
def test_what_cannot_be_read_says_nothing_for_or_against_anybody(told: tuple[float, ...]) -> None:
    state = State(replace(world_of(untold(6)).fabric, rounds=12))
    while not isinstance(groups := next_round(state), Answer):
        state = state.after(tuple(Measurement(group, told) for group in groups))
    assert not groups.findings
    assert not groups.proven
    assert len(groups.unknown) == 6


def test_groups_that_were_never_run_prove_and_blame_nobody() -> None:
    state = State(replace(world_of(untold(6)).fabric, rounds=12))
    while not isinstance(groups := next_round(state), Answer):
        state = state.after(())
    assert (groups.findings, groups.proven, len(groups.unknown), groups.spent) == ((), (), 6, True)


def test_strangers_in_a_result_are_passed_over() -> None:
    fabric = world_of(untold(3)).fabric
    state = State(fabric).after((Measurement(("n0", "n1", "elsewhere"), GOOD), Measurement(("n0",), GOOD)))
    assert state.observations == ()


def test_nothing_ever_answers_is_told_of_the_fabric_and_of_no_node() -> None:
    world = replace(world_of(untold(24)), everywhere=Fault(ALL, None))
    answer = play(world, 1).answer
    assert [finding.kind for finding in answer.findings] == [FabricFault.FABRIC]
    assert not answer.proven


@given(st.integers(0, 1 << 40), st.data())
@settings(max_examples=150)
def test_whatever_comes_back_it_ends_within_its_rounds(seed: int, data: st.DataObject) -> None:
    fabric = replace(drawn(Random(seed), largest=12).fabric, rounds=15)
    chance, state = Random(data.draw(st.integers(0, 1 << 30))), State(fabric)
    while not isinstance(groups := next_round(state), Answer):
        members = [name for group in groups for name in group]
        assert len(members) == len(set(members))
        results = [
            Measurement(group, chance.choice((None, GOOD, (1.0,) * 8, (*GOOD[1:], 1.0), ()))) for group in groups
        ]
        state = state.after(tuple(results[: chance.randint(0, len(results))]))
    assert len(state.rounds) <= 15
    blamed = {name for finding in groups.findings if finding.kind is FabricFault.NODE for name in finding.members}
    told = [*groups.proven, *(one.node for one in groups.unknown), *blamed]
    assert sorted(told) == sorted(node.name for node in fabric.nodes), "each node is told once"


def test_the_floor_of_the_largest_fitting_group_counts() -> None:
    fabric = Fabric((Node("a"), Node("b")), (Floor(2, 45.0), Floor(64, 40.0), Floor(8, 43.0)))
    assert [fabric.floor(nodes) for nodes in (1, 2, 7, 8, 63, 64, 9999)] == [45.0, 45.0, 45.0, 43.0, 43.0, 40.0, 40.0]


@given(st.integers(2, 40))
def test_in_the_circle_all_meet_once(count: int) -> None:
    turns = count - 1 + count % 2
    met = [frozenset(pair) for turn in range(turns) for pair in circle(list(range(count)), turn)]
    assert len(met) == len(set(met)) == count * (count - 1) // 2


@given(st.lists(st.integers(0, 5000), unique=True), st.integers(0, 1 << 62), st.integers(1, 9))
def test_orders_keep_everybody(items: list[int], seed: int, parts: int) -> None:
    mixed = shuffled(items, seed)
    assert sorted(mixed) == sorted(items)
    assert sorted(item for part in dealt(mixed, parts) for item in part) == sorted(items)
    assert list(bits(mask_of(sorted(items)))) == sorted(items)
