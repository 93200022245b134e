"""Nodes that join on the embedded cluster: only who passed everything that admission asks for takes work."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.testing.due import prove_due
from flows.testing.proofs import suite_of
from flows.testing.prove import prove
from profiles.admission import Admission, Occasions
from profiles.checks.catalogue import Depth
from profiles.loading.load import load_suite
from tasks.cluster import using
from tasks.clusters import embedded_cluster
from tasks.context import at_hand
from tasks.settings import Settings, localised
from tests.stories.nodes.test_admission import FAKE, GOOD, SLOW
from tests.support.faults.node_faults import local, quarantined
from workflows import labels

pytestmark = pytest.mark.story
BOTH: tuple[Depth, ...] = ("smoke", "device")
TEAMS = {"key": "team", "value": "a", "effect": "NoSchedule"}
OURS = {"key": labels.STARTUP_TAINT, "effect": "NoSchedule"}


class Scene:
    """A home with its cluster, and what stands for the nodes' memory at each depth."""

    def __init__(self, home: Path) -> None:
        self.home, self.said = home, list[str]()
        self.settings = Settings.from_environment({"PRIMUS_HOME": str(home)})
        self.settings.make_home()
        suite = home / "gate.yaml"
        suite.write_text(yaml.safe_dump({"name": "gate", "checks": [self._check(depth) for depth in BOTH]}))
        admission = Admission(suite=str(suite), depths=Occasions(nightly=(), suspect=(), join=("device",)))
        self.profile = localised(local(admission=admission), home)
        self.cluster: Any = embedded_cluster(self.profile, home)

    def _check(self, depth: str) -> dict[str, Any]:
        folder = self.home / depth
        folder.mkdir()
        tool = self.home / f"stream-{depth}"
        tool.write_text(FAKE.format(folder=folder))
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        return {
            "name": f"copy-{depth}",
            "depth": depth,
            "command": [str(tool)],
            "parser": "babelstream",
            "quantity": "hbm_bandwidth",
            "unit": "GB/s",
            "direction": "higher_is_better",
            "limits": {"absolute": [{"at_least": 3000, "source": "the story"}]},
            "deadline_seconds": 2,
            "fault_class": "gpu_hardware",
            "what_to_do": "Look at the memory.",
        }

    def speed(self, node: str, **rates: str) -> None:
        """How fast its memory is at each depth; a depth that is left out is silent."""
        for depth, rate in rates.items():
            (self.home / depth / node).write_text(rate)

    def joins(self, *nodes: str) -> None:
        for node in nodes:
            self.cluster.patch("Node", node, {"spec": {"taints": [TEAMS, OURS]}})

    def prove(self, nodes: Sequence[str], depths: Sequence[Depth] = BOTH, suite: str = "") -> None:
        chosen = load_suite(suite) if suite else suite_of(self.profile)
        with at_hand(self.settings), using(self.cluster):
            prove(self.profile, chosen, depths, dict.fromkeys(nodes, "cpu"), self.said.append)

    def taints(self, node: str) -> set[str]:
        found = self.cluster.get("Node", node)["spec"].get("taints") or []
        return {taint["key"].rpartition("/")[2] for taint in found}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.cluster.stop()


def test_who_passes_everything_takes_work_and_who_fails_or_is_silent_does_not(scene: Scene) -> None:
    scene.speed("node-0", smoke=GOOD, device=GOOD)
    scene.speed("node-1", smoke=GOOD, device=SLOW)
    scene.speed("node-2", smoke=GOOD)
    scene.joins("node-0", "node-1", "node-2")
    scene.prove(("node-0", "node-1", "node-2"))
    assert scene.taints("node-0") == {"team"}, scene.said
    assert scene.taints("node-1") == {"team", "startup", "quarantine"}
    assert quarantined(scene.cluster) == {"node-1": "gpu_hardware"}
    assert scene.taints("node-2") == {"team", "startup"}
    assert "node-0: admitted: the start-up taint is off" in scene.said
    [slow] = [line for line in scene.said if line.startswith("node-1 keeps its start-up taint: device: fail: ")]
    assert "copy-device" in slow
    assert any(line.startswith("node-2 keeps its start-up taint: device: unknown: ") for line in scene.said)


def test_a_part_of_what_is_asked_for_or_another_suite_admits_nobody(scene: Scene) -> None:
    scene.speed("node-0", smoke=GOOD, device=GOOD)
    scene.joins("node-0")
    scene.prove(["node-0"], ("smoke",))
    assert "node-0 keeps its start-up taint: device: unknown: it was not tested" in scene.said
    scene.prove(["node-0"], ("smoke",), suite="any-machine")
    assert "node-0: not admitted: tested by suite any-machine, admission asks for suite gate" in scene.said
    assert scene.taints("node-0") == {"team", "startup"}
    scene.prove(["node-0"])
    assert scene.taints("node-0") == {"team"}


def test_who_comes_by_other_means_is_tested_when_its_turn_is_and_only_then(scene: Scene) -> None:
    scene.speed("node-3", smoke=GOOD, device=GOOD)
    scene.joins("node-3")
    for due in (True, False):
        with at_hand(scene.settings), using(scene.cluster):
            outcomes = prove_due(scene.profile, scene.said.append, nightly=False)
        assert ("node-3" in {node for one in outcomes for node in one.grades}) == due, scene.said
        assert scene.taints("node-3") == {"team"}
    assert sum(line.startswith("node-3 is tested: start-up: smoke") for line in scene.said) == 1
