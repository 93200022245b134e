"""Tests that are due by what happened to nodes, on the embedded cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.testing.due import prove_due
from profiles.admission import Admission, Occasions
from profiles.vocabulary import RunState, VerdictWord
from tasks.cluster import using
from tasks.clusters import embedded_cluster
from tasks.context import at_hand
from tasks.settings import Settings, localised
from tests.support.builders.ledgers import an_attempt, an_incident, driven
from tests.support.faults.node_faults import local
from workflows.model.records import NodeRecord, VerdictRecord

pytestmark = pytest.mark.story
HOUR = 3600.0
SUITE = {
    "name": "due-suite",
    "checks": [
        {
            "name": f"copy-{depth}",
            "depth": depth,
            "probe": {"name": "memory-bandwidth", "arguments": {"bytes": "1048576"}},
            "quantity": "memory_bandwidth",
            "unit": "GB/s",
            "direction": "higher_is_better",
            "limits": {"absolute": [{"at_least": 0.001, "source": "the story"}]},
            "deadline_seconds": 20,
            "fault_class": "straggler",
            "what_to_do": "Look at it.",
        }
        for depth in ("smoke", "device")
    ],
}


class Scene:
    """A home with its cluster; all nodes passed `smoke` an hour ago, and joined long before."""

    def __init__(self, home: Path) -> None:
        self.settings = Settings.from_environment({"PRIMUS_HOME": str(home)})
        self.settings.make_home()
        suite = home / "due.yaml"
        suite.write_text(yaml.safe_dump(SUITE))
        self.suite = str(suite)
        self.cluster: Any = embedded_cluster(localised(local(), home), home)
        self.home = home

    def due(self, nightly: bool = False, share: float = 1.0, **depths: tuple[str, ...]) -> dict[str, list[str]]:
        """Depth -> nodes that were tested."""
        wanted = Occasions(**{"nightly": (), "suspect": (), "after_repair": (), **depths})  # type: ignore[arg-type]
        admission = Admission(suite=self.suite, depths=wanted, max_testing_share=share)
        profile = localised(local(admission=admission), self.home)
        with at_hand(self.settings), using(self.cluster):
            tests = prove_due(profile, lambda _: None, nightly=nightly)
        found: dict[str, list[str]] = {}
        for test in tests:
            found.setdefault(test.depth, []).extend(test.grades)
        return found


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    with at_hand(made.settings) as here:
        for number in range(6):
            at = time.time() - HOUR
            here.ledger.add_verdict(VerdictRecord("local", f"node-{number}", VerdictWord.PASS, "smoke", at))
    yield made
    made.cluster.stop()


def test_nodes_that_joined_are_tested_once(scene: Scene) -> None:
    tested = scene.due(join=("smoke",))
    assert sorted(tested["smoke"]) == [f"node-{number}" for number in range(6)], "the cluster was made a moment ago"
    assert scene.due(join=("smoke",)) == {}


def test_idle_nodes_are_tested_at_night_where_their_proof_has_run_out(scene: Scene) -> None:
    assert scene.due(nightly=("device",)) == {}, "it is not night"
    profile_wants = {"nightly": ("smoke", "device")}
    wanted = Occasions(**profile_wants)  # type: ignore[arg-type]
    admission = Admission(suite=scene.suite, depths=wanted, max_testing_share=0.34)
    profile = localised(local(admission=admission), scene.home)
    said: list[str] = []
    with at_hand(scene.settings), using(scene.cluster):
        tests = prove_due(profile, said.append, nightly=True)
    assert [(test.depth, sorted(test.grades)) for test in tests] == [("device", ["node-0", "node-1"])], (
        "at most a third"
    )
    assert sum("not tested yet" in line for line in said) == 4, said


def test_what_was_given_back_suspected_or_used_is_tested(scene: Scene) -> None:
    now = time.time()
    with at_hand(scene.settings) as here:
        here.ledger.set_node(NodeRecord("local", "node-1", "schedulable", "repaired", now - 60, "", "cpu"))
        fencing = driven(here.ledger, "r")
        here.ledger.plan_attempt(fencing, an_attempt(run="r", nodes=("node-2", "node-3")))
        seen = replace(an_incident(run="r"), detected_at=now - 60, culprits=(("node-4", 0),))
        here.ledger.open_incident(fencing, seen)
        here.ledger.set_run_state("r", fencing, RunState.SUCCEEDED, "done", now - 30)
    assert scene.due(after_repair=("smoke",)) == {"smoke": ["node-1"]}
    assert scene.due(suspect=("smoke",)) == {"smoke": ["node-4"]}
    assert scene.due(post_flight=("smoke",)) == {"smoke": ["node-2", "node-3"]}
    assert scene.due(after_repair=("smoke",), suspect=("smoke",), post_flight=("smoke",)) == {}, "they were tested"
