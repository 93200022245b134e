"""A test between nodes that dies at any of its writes, or while its pods run: real processes meet no more than once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.testing.links import LinksOutcome, try_links
from profiles.loading.load import load_suite
from tasks.cluster import using
from tasks.clusters import embedded_cluster
from tasks.context import at_hand, standing_in
from tasks.settings import Settings, localised
from tests.stories.preflight.test_preflight_killed import LEDGER_WRITES, WRITES, DeathError, Life, Mortal
from tests.support.faults.node_faults import local
from tests.support.harness.embedded_stage import gone

pytestmark = [pytest.mark.story, pytest.mark.alone]  # its limit is what the first pairs reach
NODES = {f"node-{number}": "cpu" for number in range(4)}
ROUNDS = 3
"""Two pairs, then all together, twice."""
UNHURT = 10_000


class Counted:
    """A cluster that remembers which workflows were begun in it."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.begun = inner, list[str]()

    def apply(self, manifest: dict[str, Any], **named: Any) -> Any:
        if manifest["kind"] == "Workflow" and not named.get("dry_run"):
            self.begun.append(manifest["metadata"]["name"])
        return self._inner.apply(manifest, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Scene:
    """A home with an embedded cluster of four nodes that are tested with each other."""

    def __init__(self, home: Path) -> None:
        self.settings = Settings.from_environment({"PRIMUS_HOME": str(home)})
        self.settings.make_home()
        self.profile = localised(local(), home)
        self.inner: Any = embedded_cluster(self.profile, home)
        self.cluster = Counted(self.inner)
        suite = load_suite("any-machine")
        gangs = tuple(check for check in suite.checks if check.spans == "gang")
        self.suite = suite.model_copy(update={"checks": gangs})

    def test(self, life: Life, tell: Callable[[str], None] = lambda _: None) -> LinksOutcome:
        cluster: Any = Mortal(self.cluster, life, WRITES)
        with at_hand(self.settings) as here:
            ledger: Any = Mortal(here.ledger, life, LEDGER_WRITES)
            with standing_in(replace(here, ledger=ledger)), using(cluster):
                return try_links(self.profile, self.suite, NODES, tell, seed=3)

    def verdicts(self) -> list[tuple[str, str]]:
        with at_hand(self.settings) as here:
            return sorted((item.node, str(item.verdict)) for item in here.ledger.verdicts(self.profile.name))

    def is_told(self, outcome: LinksOutcome) -> None:
        """Everybody is proven, by as many workflows as a test has whose flow is never killed."""
        assert {node: str(grade.verdict) for node, grade in outcome.grades.items()} == dict.fromkeys(NODES, "pass")
        rounds = outcome.fabrics[0].rounds  # more of them where the machine is busy
        assert len(self.cluster.begun) == len(set(self.cluster.begun)) == rounds >= ROUNDS, self.cluster.begun
        assert self.verdicts() == [(node, "pass") for node in NODES]
        for name in self.cluster.begun:
            gone(self.inner, "Workflow", name)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.inner.stop()


def test_whoever_dies_at_any_write_measures_no_round_again(tmp_path: Path) -> None:
    points: list[str] = []
    for writes in range(60):
        scene, life = Scene(tmp_path / f"life-{writes}"), Life(writes)
        try:
            try:
                outcome = scene.test(life)
            except DeathError as death:
                points.append(str(death))
                outcome = scene.test(Life(UNHURT))
            scene.is_told(outcome)
        finally:
            scene.inner.stop()
        if not life.dead:
            break
    assert sum(point.startswith("apply") for point in points) >= ROUNDS, points
    assert sum(point.startswith("delete") for point in points) >= ROUNDS, points
    assert sum(point.startswith("keep_link_round") for point in points) >= 2 * ROUNDS, points


def test_the_round_that_is_under_way_is_adopted(scene: Scene) -> None:
    life, said = Life(UNHURT), list[str]()

    def die(line: str) -> None:
        said.append(line)
        if line.startswith("round 2"):
            life.dead, life.last = True, line
            raise DeathError(line)

    with pytest.raises(DeathError):
        scene.test(life, die)
    assert len(scene.cluster.begun) == 2, "the second one was under way"
    assert scene.verdicts() == []
    scene.is_told(scene.test(Life(UNHURT)))
