"""What is bad in some of its looks only: found by repetition and by what earlier tests saw; chance is left alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from flows.decisions.node_tests.fabric.causes import causes
from flows.decisions.node_tests.fabric.flapping import BLAMED, DOUBTED, LOOKS, chance_of, flaps
from flows.decisions.node_tests.fabric.knowledge import State, knowledge_of
from flows.decisions.node_tests.fabric.model import FabricFault, Measurement
from flows.testing.links import PROOFS
from tests.support.cases.rows import rows
from tests.support.fakes.fabrics import (
    ORDINARY,
    QUIET,
    ROUGH,
    Fault,
    Noise,
    World,
    drawn,
    leaf_spine,
    play,
    score,
    world_of,
)

ALL = tuple(range(8))


@pytest.mark.parametrize(
    ("looks", "misses", "chance", "wanted"),
    [(16, 0, 0.06, 1.0), (1, 1, 0.06, 0.06), (2, 1, 0.5, 0.75), (16, 16, 0.5, 2.0**-16), (0, 0, 0.06, 1.0)],
)
def test_the_probability_of_so_many_misses_by_chance(looks: int, misses: int, chance: float, wanted: float) -> None:
    assert chance_of(looks, misses, chance) == pytest.approx(wanted)


def state_of(rounds: list[list[tuple[str, bool]]], count: int = 40) -> State:
    """Rounds of groups, e.g. `0+1`, and whether they were good."""
    state = State(replace(world_of(leaf_spine(count, 8, 1), rails=1).fabric, rails=1))
    for groups in rounds:
        told = [(tuple(f"n{node}" for node in group.split("+")), good) for group, good in groups]
        state = state.after(tuple(Measurement(group, (48.0 if good else 10.0,)) for group, good in told))
    return state


def trial(missed: int, looks: int) -> list[list[tuple[str, bool]]]:
    """Node 0 and its mates are good and bad in turn; then looks at node 0 with others of its own switch and beyond."""
    quarrel = [[("0+1+2+3", False)], [("0+1+2+3", True)], [("0+1+2+3", False)], [("0+1+2+3", False)]]
    everybody = [[("+".join(map(str, range(40))), True)]]
    return [*everybody, *quarrel, *([(f"0+{4 + look}", look >= missed)] for look in range(looks))]


@pytest.mark.parametrize(
    ("missed", "word"), [(0, "clean"), (2, "clean"), (6, "doubted"), (9, "blamed"), (16, "blamed")]
)
def test_a_suspect_is_cleared_doubted_or_blamed_by_its_share_of_misses(missed: int, word: str) -> None:
    known = knowledge_of(state_of(trial(missed, LOOKS)))
    found = flaps(known, 0)
    assert (0 in found.blamed, 0 in found.doubted) == (word == "blamed", word == "doubted"), found
    assert 0 not in found.waiting
    assert (0 in causes(known).nodes) == (word == "blamed")


def test_suspects_are_looked_at_first() -> None:
    found = flaps(knowledge_of(state_of(trial(0, 0))), 0)
    assert set(found.waiting) == {0, 1, 2, 3}


@rows("node_tests/fabric/flapping")
def test_nobody_is_suspected_who_does_not_contradict_himself_twice(rounds: list[list[tuple[str, bool]]]) -> None:
    found = flaps(knowledge_of(state_of(rounds, 4)), 0)
    assert not found.waiting
    assert not found.blamed
    assert not found.doubted


def test_without_noise_and_flaps_nobody_is_ever_suspected() -> None:
    for seed in range(60):
        world = drawn(Random(seed), noise=QUIET, largest=20)
        state = play(world, seed).state
        for number in range(len(state.rounds)):
            found = causes(knowledge_of(State(world.fabric, state.rounds[: number + 1]))).flaps
            assert not found.waiting, (seed, number)


def tried(
    fault: Fault, noise: Noise = ORDINARY, cases: int = 25, *, link: bool = False, known: bool = False
) -> Counter[str]:
    counts = Counter[str]()
    for seed in range(cases):
        world = world_of(leaf_spine(32, 8), seed=seed, noise=noise)
        suspects = (("n20", "n1"), ("n5", "gone")) if known else ()
        world = replace(world, fabric=replace(world.fabric, proofs=PROOFS, suspects=suspects))
        world = replace(world, links={("n1", "n20"): fault}) if link else replace(world, nodes={"n7": fault})
        answer = play(world, seed).answer
        counts += score(world, answer)
        counts["rounds"] += answer.rounds
    return counts


@pytest.mark.parametrize(("shows", "least"), [(0.5, 9), (0.9, 23)])
def test_a_node_that_flaps_is_found_and_nobody_else_is_blamed(shows: float, least: int) -> None:
    counts = tried(Fault(ALL, 0.4, shows))
    assert counts["found"] >= least, counts
    assert counts["accused"] <= 1, counts


def test_a_link_that_missed_before_is_found_where_it_would_be_overlooked() -> None:
    fault = Fault(ALL, 0.4, 0.5)
    before, after = tried(fault, link=True), tried(fault, link=True, known=True)
    assert after["found"] >= 15, after
    assert before["found"] <= 10, before
    assert not after["accused"]


def test_a_suspected_link_that_is_good_costs_a_few_rounds_and_is_not_blamed() -> None:
    counts = tried(Fault(ALL, 1.0), QUIET, 5, link=True, known=True)
    assert counts["findings"] == counts["accused"] == counts["unknown"] == 0
    assert counts["rounds"] == 5 * (PROOFS + 8)


@pytest.mark.parametrize("noise", [ORDINARY, ROUGH], ids=["ordinary", "rough"])
def test_traffic_beside_is_not_taken_for_a_fault(noise: Noise) -> None:
    counts = Counter[str]()
    for seed in range(60):
        world = world_of(leaf_spine(24, 8), seed=seed, noise=noise)
        counts += score(world, play(replace(world, fabric=replace(world.fabric, proofs=PROOFS)), seed).answer)
    assert counts["findings"] == 0, counts
    assert counts["unknown"] <= 0.06 * counts["good"]


def test_limits_are_in_order() -> None:
    assert 0 < BLAMED < DOUBTED < 1


def test_an_everywhere_bad_fabric_ends_though_it_is_asked_to_be_good_twice() -> None:
    world: World = replace(world_of(leaf_spine(16, 8)), everywhere=Fault(ALL, 0.5))
    played = play(replace(world, fabric=replace(world.fabric, proofs=PROOFS)), 1)
    assert [one.kind for one in played.answer.findings] == [FabricFault.FABRIC]
    assert not played.answer.spent
