"""A preflight that dies at any of its writes: nobody is left held, nobody wrongly schedulable, and the next goes on."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.testing.due import AfterTests
from flows.testing.proofs import suite_of
from flows.testing.prove import prove
from profiles.admission import Admission
from profiles.cluster import ClusterProfile
from profiles.vocabulary import VerdictWord
from tasks.cluster import using
from tasks.clusters import embedded_cluster
from tasks.context import World, at_hand, standing_in
from tasks.nodes.holds import hold_of
from tasks.observe.nodes import stream_nodes
from tasks.settings import Settings, localised
from tests.stories.nodes.test_admission import FAKE, GOOD, SLOW
from tests.support.faults.node_faults import local, quarantined
from workflows import labels

pytestmark = pytest.mark.story
NODES = {"node-0": "cpu", "node-1": "cpu"}
WRITES = frozenset({"apply", "patch", "delete"})
LEDGER_WRITES = frozenset(
    {"add_verdicts", "move_cursor", "settle", "finish_node_actions", "keep_link_round", "end_link_test"}
)


class DeathError(BaseException):
    """The process is gone: nothing of it catches this, and nothing of it is done afterwards."""


class Life:
    """How many writes are left."""

    def __init__(self, writes: int) -> None:
        self.left, self.dead, self.last = writes, False, ""

    def spend(self, what: str) -> None:
        """One write; the last one is not made."""
        if self.left == 0:
            self.dead, self.last = True, self.last or what
        self.left -= 1
        self.breathe()

    def breathe(self) -> None:
        """Nobody dead does anything."""
        if self.dead:
            raise DeathError(self.last)


class Mortal:
    """A cluster or a ledger that is asked by a process with so many writes to live."""

    def __init__(self, inner: Any, life: Life, writes: frozenset[str]) -> None:
        self._inner, self._life, self._writes = inner, life, writes

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def asked(*words: Any, **named: Any) -> Any:
            if name in self._writes:
                self._life.spend(f"{name} {words[:2]}"[:80])
            else:
                self._life.breathe()
            return found(*words, **named)

        return asked


class Scene:
    """A home with two nodes: one good, one slow."""

    def __init__(self, home: Path) -> None:
        self.home, self.speeds = home, home / "speeds"
        self.speeds.mkdir()
        tool = home / "fake-stream"
        tool.write_text(FAKE.format(folder=self.speeds))
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        (self.speeds / "node-0").write_text(GOOD)
        (self.speeds / "node-1").write_text(SLOW)
        check = {
            "name": "copy",
            "depth": "device",
            "command": [str(tool)],
            "parser": "babelstream",
            "quantity": "hbm_bandwidth",
            "unit": "GB/s",
            "direction": "higher_is_better",
            "limits": {"absolute": [{"at_least": 3000, "source": "the story"}]},
            "deadline_seconds": 20,
            "fault_class": "gpu_hardware",
            "what_to_do": "Look at the memory.",
        }
        suite = home / "suite.yaml"
        suite.write_text(yaml.safe_dump({"name": "mortal", "checks": [check]}))
        self.settings = Settings.from_environment({"PRIMUS_HOME": str(home)})
        self.settings.make_home()
        self.profile: ClusterProfile = localised(local(admission=Admission(suite=str(suite))), home)
        self.cluster: Any = embedded_cluster(self.profile, home)

    def prove(self, here: World, life: Life) -> dict[str, VerdictWord]:
        """Test both, with so many writes to live."""
        ledger: Any = Mortal(here.ledger, life, LEDGER_WRITES)
        with standing_in(replace(here, ledger=ledger)), using(Mortal(self.cluster, life, WRITES)):  # type: ignore[arg-type]
            tests = prove(self.profile, suite_of(self.profile), ("device",), NODES, lambda _: None)
        return tests[0].words

    def words(self) -> dict[str, str]:
        return {
            node["metadata"]["name"]: node["metadata"]["labels"].get(labels.VERDICT, "")
            for node in self.cluster.list("Node")
            if node["metadata"]["name"] in NODES
        }

    def held(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.cluster.list("Node") if hold_of(node)[0]]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.cluster.stop()


def test_whoever_dies_at_any_write_leaves_nothing_wrong_and_the_next_goes_on(tmp_path: Path) -> None:
    points: list[str] = []
    for writes in range(60):
        home = tmp_path / f"life-{writes}"
        home.mkdir()
        scene, life = Scene(home), Life(writes)
        with at_hand(scene.settings) as here:
            try:
                words = scene.prove(here, life)
            except DeathError as death:
                points.append(str(death))
                _nothing_is_wrong(scene, here)
                words = scene.prove(here, Life(10_000))
            assert words == {"node-0": VerdictWord.PASS, "node-1": VerdictWord.FAIL}, points
            _all_is_told(scene, here, points)
        scene.cluster.stop()
        if not life.dead:
            break
    assert len(points) >= 12, points
    assert any("add_verdicts" in point for point in points)


def _nothing_is_wrong(scene: Scene, here: World) -> None:
    """What stands on nodes is in the ledger; nobody who is not proven is called so."""
    words = scene.words()
    passed = {item.node for item in here.ledger.verdicts("local") if item.verdict is VerdictWord.PASS}
    assert {node for node, word in words.items() if word == "pass"} <= passed
    assert words["node-1"] != "pass"


def _all_is_told(scene: Scene, here: World, points: list[str]) -> None:
    """Nobody is held, the slow one is out, and both tell what they are; the monitor adds what the dead left out."""
    assert scene.held() == [], points
    with using(scene.cluster):
        AfterTests(scene.profile, lambda _: None).take(list(stream_nodes(scene.profile)))
    assert quarantined(scene.cluster) == {"node-1": "gpu_hardware"}, points
    assert scene.words() == {"node-0": "pass", "node-1": "fail"}, points
    asked = (scene.speeds / "asked").read_text().split()
    assert asked.count("node-0") <= 2, (points, asked)
