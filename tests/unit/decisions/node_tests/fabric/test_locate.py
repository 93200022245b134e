"""Simulated fabrics with bad nodes, links, switches and rails: who is found, who is never blamed, at what cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.decisions.node_tests.fabric.model import Answer, FabricFault, FabricFinding, Group, Node
from tests.support.fakes.fabrics import (
    ORDINARY,
    QUIET,
    ROUGH,
    Fault,
    Noise,
    Played,
    World,
    drawn,
    leaf_spine,
    play,
    rail_optimised,
    score,
    untold,
    world_of,
)

ALL = tuple(range(8))
SLOW, SILENT = Fault(ALL, 0.5), Fault(ALL, None)


def told(answer: Answer) -> set[tuple[FabricFault, str | tuple[str, ...]]]:
    return {(finding.kind, finding.switch or finding.members) for finding in answer.findings}


def only(played: Played) -> FabricFinding:
    [finding] = played.answer.findings
    return finding


def test_a_good_fabric_is_proven_by_one_collective() -> None:
    played = play(world_of(leaf_spine(64, 16)), 1)
    assert [len(each) for each in played.state.rounds] == [1]
    assert len(played.answer.proven) == 64
    assert not played.answer.findings
    assert not played.answer.unknown


@pytest.mark.parametrize("shape", [lambda: leaf_spine(40, 8), lambda: rail_optimised(40, 8), lambda: untold(40)])
@pytest.mark.parametrize("fault", [SLOW, SILENT, Fault((3,), 0.7)])
def test_a_bad_node_is_named_by_partners_that_are_proven_good(
    shape: Callable[[], tuple[Node, ...]], fault: Fault
) -> None:
    played = play(replace(world_of(shape()), nodes={"n7": fault}), 1)
    finding = only(played)
    assert (finding.kind, finding.members, finding.rails) == (FabricFault.NODE, ("n7",), fault.rails)
    assert ("no answer" in finding.why) == (fault.factor is None)
    partners = {name for one in finding.evidence if len(one.group) == 2 for name in one.group} - {"n7"}
    assert len(partners) >= 3
    assert partners <= set(played.answer.proven)
    assert set(played.answer.proven) == {f"n{number}" for number in range(40)} - {"n7"}
    assert not played.answer.unexplained


@pytest.mark.parametrize("ends", [("n1", "n2"), ("n1", "n30"), ("n0", "n39")])
def test_a_bad_link_blames_neither_of_its_ends(ends: tuple[str, str]) -> None:
    for nodes in (leaf_spine(40, 8), rail_optimised(40, 8), untold(40)):
        played = play(replace(world_of(nodes), links={ends: SLOW}), 1)
        finding = only(played)
        assert (finding.kind, finding.members) == (FabricFault.LINK, ends)
        assert len(played.answer.proven) == 40
        good = [one for one in finding.evidence if set(one.group) != set(ends)]
        assert {end for end in ends if any(end in one.group for one in good)} == set(ends)


def test_a_link_that_is_slow_one_way_only_is_found_often_and_nothing_else_is_ever_blamed_for_it() -> None:
    found = Counter[str]()
    for seed in range(30):
        world = replace(world_of(leaf_spine(32, 8), seed=seed), links={("n1", "n20"): replace(SLOW, one_way=True)})
        answer = play(replace(world, fabric=replace(world.fabric, proofs=4)), seed).answer
        assert {kind for kind, _ in told(answer)} <= {FabricFault.LINK}
        found.update(["found"] if answer.findings else [])
    assert found["found"] >= 8  # of 30: a larger ring shows it by chance only, so every step of the search may miss it


def test_a_switch_cut_off_from_the_others_is_found_through_its_nodes_that_are_good_among_themselves() -> None:
    played = play(replace(world_of(leaf_spine(48, 8)), switches={"leaf2": replace(SLOW, uplink=True)}), 1)
    finding = only(played)
    assert (finding.kind, finding.switch) == (FabricFault.SWITCH, "leaf2")
    assert finding.members == tuple(f"n{number}" for number in range(16, 24))
    assert "among themselves" in finding.why
    assert len(played.answer.proven) == 40
    assert {one.node for one in played.answer.unknown} == set(finding.members)


def test_a_switch_of_one_rail_is_told_with_its_rail_and_not_as_eight_bad_nodes() -> None:
    played = play(replace(world_of(rail_optimised(48, 8)), switches={"unit2-rail3": Fault((3,), 0.4)}), 1)
    finding = only(played)
    assert (finding.kind, finding.switch, finding.rails) == (FabricFault.SWITCH, "unit2-rail3", (3,))
    assert "neither" in finding.why


def test_with_two_switches_nobody_can_say_which_is_cut_off() -> None:
    played = play(replace(world_of(leaf_spine(16, 8)), switches={"leaf0": replace(SLOW, uplink=True)}), 1)
    assert not played.answer.findings
    assert len(played.answer.unknown) == 16
    assert played.answer.unexplained


@pytest.mark.parametrize("count", [3, 4, 7, 8, 40])
def test_a_rail_or_everything_is_told_as_such(count: int) -> None:
    for nodes in (leaf_spine(count, 8), untold(count)):
        rail = play(replace(world_of(nodes), everywhere=Fault((5,), 0.5)), 1)
        assert (only(rail).kind, only(rail).rails) == (FabricFault.RAIL, (5,))
        assert len(rail.answer.proven) == count
        everything = play(replace(world_of(nodes), everywhere=SLOW), 1)
        assert (only(everything).kind, only(everything).members) == (
            FabricFault.FABRIC,
            tuple(node.name for node in nodes),
        )
        assert not everything.answer.proven


def test_all_at_once_are_told_apart() -> None:
    world = replace(
        world_of(leaf_spine(64, 8)),
        nodes={"n3": SLOW, "n17": SILENT, "n42": Fault((1,), 0.6)},
        links={("n1", "n60"): SLOW, ("n33", "n36"): Fault((6,), 0.5)},
        switches={"leaf6": replace(SLOW, uplink=True)},
        everywhere=Fault((2,), 0.5),
    )
    played = play(world, 3)
    wanted = {(FabricFault.NODE, (name,)) for name in world.nodes} | {(FabricFault.LINK, ends) for ends in world.links}
    assert told(played.answer) - {(FabricFault.RAIL, tuple(node.name for node in world.fabric.nodes))} == wanted | {
        (FabricFault.SWITCH, "leaf6")
    }
    assert not score(world, played.answer)["missed"]


def test_two_nodes_alone_tell_nothing_about_who_it_is() -> None:
    played = play(replace(world_of(untold(2)), nodes={"n0": SLOW}), 1)
    assert not played.answer.findings
    assert not played.answer.proven
    assert {one.node for one in played.answer.unknown} == {"n0", "n1"}


def test_of_three_nodes_the_bad_one_and_the_bad_link_are_told_apart() -> None:
    node = play(replace(world_of(untold(3)), nodes={"n1": SLOW}), 1)
    assert told(node.answer) == {(FabricFault.NODE, ("n1",))}
    assert only(node).confidence < 0.9
    link = play(replace(world_of(untold(3)), links={("n0", "n2"): SLOW}), 1)
    assert told(link.answer) == {(FabricFault.LINK, ("n0", "n2"))}


class Rules:
    """What must hold of every round."""

    def __init__(self, world: World) -> None:
        self.names = {node.name for node in world.fabric.nodes}

    def __call__(self, asked: tuple[Group, ...]) -> None:
        members = [name for group in asked for name in group]
        assert asked
        assert len(members) == len(set(members)), "a node is in two groups of one round"
        assert set(members) <= self.names
        assert all(len(group) > 1 for group in asked)


@pytest.mark.parametrize(
    ("seed", "bad"),
    [(42672, (FabricFault.SWITCH, "leaf1")), (321245017, (FabricFault.LINK, ("n2", "n5")))],
    ids=[
        "under a switch that is cut off, two of four nodes are bad on a rail each",
        "a good node beside a bad one, on a bad link, met both of a switch that is cut off",
    ],
)
def test_fabrics_that_were_misread_once(seed: int, bad: tuple[FabricFault, str]) -> None:
    """Found by the property below. Nodes behind a bad switch must meet mates that are good on the rail in question, and
    are no witnesses against nodes of other switches."""
    world = drawn(Random(seed), largest=24)
    played = play(world, seed, Rules(world))
    assert bad in told(played.answer)
    counts = score(world, played.answer)
    assert not counts["accused"], played.answer.findings
    assert not counts["missed"]


@settings(max_examples=300)
@given(st.integers(0, 1 << 40))
def test_without_noise_nothing_good_is_blamed_nothing_bad_is_proven_and_all_is_found(seed: int) -> None:
    world = drawn(Random(seed), largest=24)
    played = play(world, seed, Rules(world))
    counts = score(world, played.answer)
    assert not counts["accused"], played.answer.findings
    # With so many causes at once that the rounds are used up, what is left is said to be unknown.
    assert not counts["missed"] or (played.answer.spent and played.answer.unknown), (world, played.answer)
    assert not counts["proven bad"]
    assert len(played.state.rounds) <= world.fabric.rounds
    assert all(0 < finding.confidence <= 1 and finding.evidence for finding in played.answer.findings)


@pytest.mark.parametrize(
    ("noise", "fabrics", "missed", "accused", "unknown"),
    [(QUIET, 700, 0.0, 0.0, 0.002), (ORDINARY, 400, 0.01, 0.01, 0.015), (ROUGH, 200, 0.025, 0.025, 0.06)],
    ids=["quiet", "ordinary", "rough"],
)
def test_with_noise_errors_are_rare(noise: Noise, fabrics: int, missed: float, accused: float, unknown: float) -> None:
    """Limits for a sample this small; what was measured over many more stands in `benchmarks/fabric_rounds.py`."""
    counts = Counter[str]()
    for seed in range(fabrics):
        world = drawn(Random(seed), noise=noise, largest=20)
        counts += score(world, play(world, seed).answer)
    assert counts["bad"] > fabrics
    assert counts["missed"] <= missed * counts["bad"]
    assert counts["accused"] <= accused * counts["findings"]
    assert counts["unknown"] <= unknown * counts["good"]


@pytest.mark.parametrize(("count", "most"), [(16, 16), (256, 24), (1024, 30)])
def test_one_cause_takes_few_rounds_and_less_than_pairs_would(count: int, most: int) -> None:
    good, far = world_of(leaf_spine(count, max(4, count // 16))), f"n{count - 2}"
    for world, rounds in ((replace(good, nodes={"n5": SLOW}), 7), (replace(good, links={("n2", far): SLOW}), most)):
        played = play(world, 1)
        assert len(played.state.rounds) <= rounds
        assert played.node_rounds < count * (count - 1)  # what the circle method costs
        assert score(world, played.answer)["found"] == 1
