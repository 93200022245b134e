"""A test between nodes that dies at any of its writes: the next goes on, measures no round again, and says the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from flows.testing.links import LinksOutcome, try_links
from profiles.errors import Conflict
from profiles.loading.load import load_suite
from tasks.cluster import using
from tasks.context import World as Here
from tasks.context import at_hand, standing_in
from tasks.node_tests.links import RESUMED_SECONDS, WantedLinks
from tasks.settings import Settings
from tests.stories.preflight.test_preflight_killed import LEDGER_WRITES, WRITES, DeathError, Life, Mortal
from tests.support.fakes.fabrics import ORDINARY, Fault, World, leaf_spine, world_of
from tests.support.fakes.linked_nodes import LinkedNodes
from tests.support.faults.node_faults import local
from workflows.model.records import Driver, VerdictRecord
from workflows.node_tests.links import MOST

SUITE = load_suite("any-machine")
SLOW = Fault((0,), 0.2)
UNHURT = 100_000
"""Writes that nobody needs."""


class Stage:
    """A home with its ledger, and nodes behind a made-up cluster; every flow there has so many writes to live."""

    def __init__(self, home: Path, world: World) -> None:
        self.settings = Settings.from_environment({"PRIMUS_HOME": str(home)})
        self.settings.make_home()
        racks = {node.name: node.switches[0] for node in world.fabric.nodes}
        self.cluster = LinkedNodes(world, racks)
        self.pools = {node.name: "cpu" for node in world.fabric.nodes}
        self.later_seconds = 0.0

    def test(self, life: Life, seed: int | None = None) -> LinksOutcome:
        cluster: Any = Mortal(self.cluster, life, WRITES)
        with at_hand(self.settings) as here, standing_in(self._mortal(here, life)), using(cluster):
            return try_links(local(), SUITE, self.pools, lambda _: None, seed=seed)

    def _mortal(self, here: Here, life: Life) -> Here:
        ledger: Any = Mortal(here.ledger, life, LEDGER_WRITES)
        return replace(here, ledger=ledger, now=lambda: here.now() + self.later_seconds)

    def kept(self) -> list[VerdictRecord]:
        with at_hand(self.settings) as here:
            return here.ledger.verdicts("local")

    def rounds_left(self) -> int:
        """In the ledger, of any test."""
        with at_hand(self.settings) as here:
            return sum(len(here.ledger.link_rounds("local", test)) for test in range(100))


@dataclass(frozen=True)
class Told:
    """What must be the same however often somebody was killed."""

    grades: object
    rounds: object
    pair_rounds: object


def told(stage: Stage, outcome: LinksOutcome) -> Told:
    return Told(outcome.grades, stage.cluster.rounds, stage.cluster.pair_rounds)


def worlds() -> dict[str, World]:
    good = world_of(leaf_spine(8, 4, 1), rails=1)
    return {
        "good": good,
        "bad node, noise": replace(world_of(leaf_spine(8, 4, 1), rails=1, noise=ORDINARY), nodes={"n2": SLOW}),
    }


@pytest.mark.parametrize("name", worlds())
def test_killed_at_any_write_the_next_says_the_same_and_measures_nothing_twice(tmp_path: Path, name: str) -> None:
    unkilled = Stage(tmp_path, worlds()[name])
    wanted = told(unkilled, unkilled.test(Life(UNHURT), seed=7))
    points: list[str] = []
    before = len(unkilled.pools)
    for writes in range(500):
        stage, life = Stage(tmp_path, worlds()[name]), Life(writes)
        try:
            outcome = stage.test(life, seed=7)
        except DeathError as death:
            points.append(str(death))
            outcome = stage.test(Life(UNHURT), seed=7)
        assert told(stage, outcome) == wanted, points
        assert len(stage.cluster.begun) == len(unkilled.cluster.begun), points
        assert stage.cluster.objects == {}, ("what was read is deleted", points)
        kept, before = [item.node for item in stage.kept()], before + len(stage.pools)
        assert Counter(kept).most_common()[-1][1] * len(stage.pools) == len(kept) == before, ("one each", points)
        assert stage.rounds_left() == 0
        if not life.dead:
            break
    rounds = len(unkilled.cluster.rounds) + len(unkilled.cluster.pair_rounds)
    assert len(points) >= 5 * rounds, points
    assert {point.split()[0] for point in points} == {
        "apply", "delete", "add_verdicts", "move_cursor", "keep_link_round", "end_link_test",
    }  # fmt: skip


def test_killed_again_and_again_it_comes_to_its_end_all_the_same(tmp_path: Path) -> None:
    unkilled = Stage(tmp_path, worlds()["bad node, noise"])
    wanted = told(unkilled, unkilled.test(Life(UNHURT), seed=7))
    stage, deaths = Stage(tmp_path, worlds()["bad node, noise"]), 0
    while True:
        try:
            outcome = stage.test(Life(5), seed=7)
            break
        except DeathError:
            deaths += 1
            assert deaths < 200, "each life gets a little further"
    assert deaths >= len(unkilled.cluster.rounds)
    assert told(stage, outcome) == wanted


def test_of_a_round_whose_workflows_were_not_all_begun_no_half_is_believed(tmp_path: Path) -> None:
    """Members of a group that spans workflows wait for those of the one that never came."""
    world = world_of(leaf_spine(MOST + 20, 16, 1), rails=1)
    unkilled = Stage(tmp_path, world)
    wanted = told(unkilled, unkilled.test(Life(UNHURT), seed=7))
    halves = 0
    for writes in range(40):
        stage, life = Stage(tmp_path, world), Life(writes)
        with pytest.raises(DeathError) as death:
            stage.test(life, seed=7)
        assert told(stage, stage.test(Life(UNHURT), seed=7)).grades == wanted.grades, str(death.value)
        extra = len(stage.cluster.begun) - len(unkilled.cluster.begun)
        assert extra in (0, 1), "the half that was there is begun once more"
        halves += extra
        if halves == 2:
            return
    pytest.fail("no round was cut in half")


def test_without_a_seed_the_next_one_meets_the_same_partners(tmp_path: Path) -> None:
    stage = Stage(tmp_path, worlds()["bad node, noise"])
    with pytest.raises(DeathError):
        stage.test(Life(12))
    begun = list(stage.cluster.rounds)
    assert begun, "it was killed after its first round"
    stage.later_seconds = 600.0
    stage.test(Life(UNHURT))
    assert stage.cluster.rounds[: len(begun)] == begun
    assert stage.cluster.rounds.count(begun[0]) == 1


def test_what_was_measured_long_ago_is_measured_anew(tmp_path: Path) -> None:
    stage = Stage(tmp_path, worlds()["good"])
    with pytest.raises(DeathError):
        stage.test(Life(12), seed=7)
    measured = len(stage.cluster.rounds)
    assert measured, "it was killed after its first round"
    stage.later_seconds = RESUMED_SECONDS + 1.0
    stage.test(Life(UNHURT), seed=7)
    assert len(stage.cluster.rounds) == measured + 3, "pairs, and twice the whole"


def test_a_test_that_ended_is_not_gone_on_with(tmp_path: Path) -> None:
    stage = Stage(tmp_path, worlds()["good"])
    for times in (1, 2):
        stage.test(Life(UNHURT), seed=7)
        assert len(stage.cluster.rounds) == 3 * times
    assert len(stage.kept()) == 16


def test_two_do_not_make_the_same_test_at_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path, worlds()["good"])
    key = WantedLinks("local", SUITE, stage.pools, 1.0, 7).key
    with at_hand(stage.settings) as here:
        here.ledger.acquire(f"preflight/local/links-{key}", Driver("elsewhere", 1, 0.0), here.now(), lambda _: None)
        with pytest.raises(Conflict, match="elsewhere"):
            stage.test(Life(UNHURT), seed=7)
    assert stage.cluster.begun == []
