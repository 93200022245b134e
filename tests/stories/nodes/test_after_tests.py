"""The monitor looks after what tests left behind: failures, holds, and what stands on nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.decisions.node_tests.grading.standing import hours_of, proofs_of
from flows.testing.due import outdated
from profiles.checks.suite import Lifetimes
from profiles.cluster import Brake
from profiles.vocabulary import Mode, VerdictWord
from tasks.cluster import using
from tasks.clusters import embedded_cluster
from tasks.context import at_hand
from tasks.ledger.ledger import Ledger
from tasks.nodes.by_hand import release_by_hand
from tasks.nodes.holds import hold_nodes, hold_of
from tasks.settings import Settings, localised
from tests.support.cases.rows import rows
from tests.support.faults.node_faults import local, loop, quarantined
from tests.support.running.waiting import until
from workflows import labels
from workflows.model.nodes import Node
from workflows.model.records import VerdictRecord

F, P = VerdictWord.FAIL, VerdictWord.PASS
NOW, HOUR = 1e9, 3600.0


@rows("stories/nodes/after_tests")
def test_a_node_is_written_on_when_it_tells_something_else(
    word: VerdictWord, hours_ago: float, label: str, at: float | None, told: VerdictWord | None
) -> None:
    records = [VerdictRecord("c", "n", word, "smoke", NOW - hours_ago * HOUR)]
    proofs = proofs_of(records, {}, hours_of(Lifetimes()), NOW)
    found = outdated([Node("n", "p", verdict=label, verdict_at=at), Node("other", "p")], proofs)
    assert [item.word for item in found] == ([] if told is None else [told])


class Scene:
    """A home, its embedded cluster, and its ledger."""

    def __init__(self, home: Path, **changes: Any) -> None:
        self.settings = Settings.from_environment({"PRIMUS_HOME": str(home)})
        self.settings.make_home()
        self.profile = localised(local(**changes), home)
        self.cluster: Any = embedded_cluster(self.profile, home)
        self.ledger = Ledger(self.settings.ledger_url)

    def failed(self, *nodes: str, depth: str = "device") -> None:
        reasons = ({"check": "gemm", "verdict": "fail", "class": "gpu_hardware", "evidence": "12 of 16 TFLOP/s"},)
        for node in nodes:
            self.ledger.add_verdict(VerdictRecord("local", node, F, depth, time.time(), reasons, "preflight story"))

    def label(self, node: str) -> str:
        return self.cluster.get("Node", node)["metadata"]["labels"].get(labels.VERDICT, "")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    embedded_cluster(localised(local(), tmp_path), tmp_path).stop()


@pytest.mark.story
def test_a_failure_that_nobody_acted_upon_takes_its_node_out_once(home: Path) -> None:
    scene = Scene(home)
    scene.failed("node-1")
    with loop(scene.settings, scene.cluster, scene.profile) as lines:
        until("it is out", lambda: quarantined(scene.cluster) == {"node-1": "gpu_hardware"}, lambda: str(lines))
        held = scene.ledger.node("local", "node-1")
        assert held is not None
        assert "gemm: 12 of 16 TFLOP/s" in held.why
        with at_hand(scene.settings), using(scene.cluster):
            release_by_hand(scene.profile, "node-1", "I looked at it")
        scene.failed("node-2")
        until("the next is out", lambda: "node-2" in quarantined(scene.cluster), lambda: str(lines))
    assert quarantined(scene.cluster) == {"node-2": "gpu_hardware"}, "who gave it back has answered for it"
    told = scene.ledger.verdicts("local", "node-1")
    assert len(told) == 1, told
    [verdict] = told
    assert verdict.depth == "device", "its verdict stands once"
    scene.ledger.close()


@pytest.mark.story
def test_beyond_the_brake_a_person_is_asked_once_and_in_mode_observe_nothing_is_done(home: Path) -> None:
    scene = Scene(home, brake=Brake(max_quarantined_share=0.2, max_evictions=8))
    scene.failed("node-1", "node-2", "node-3")
    with loop(scene.settings, scene.cluster, scene.profile, Mode.OBSERVE) as lines:
        until("it is written down", lambda: len(scene.ledger.actions("monitor/local")) == 3, lambda: str(lines))
    assert quarantined(scene.cluster) == {}
    with loop(scene.settings, scene.cluster, scene.profile) as lines:
        until("one is out", lambda: len(quarantined(scene.cluster)) == 1, lambda: str(lines))
        until("a person is asked", lambda: bool(scene.ledger.waiting_approvals()), lambda: str(lines))
    [question] = scene.ledger.waiting_approvals()
    assert {item.target for item in question.actions} == {"node-2", "node-3"}
    scene.ledger.close()


@pytest.mark.story
def test_holds_of_the_dead_are_freed_and_nodes_tell_what_holds(home: Path) -> None:
    scene = Scene(home)
    scene.ledger.add_verdict(VerdictRecord("local", "node-4", P, "smoke", time.time(), (), "preflight story"))
    old = time.time() - 30 * 24 * HOUR
    scene.ledger.add_verdict(VerdictRecord("local", "node-5", P, "smoke", old, (), "preflight story"))
    with at_hand(scene.settings), using(scene.cluster):
        short = scene.profile.admission.model_copy(update={"hold_seconds": 1.0})
        hold_nodes(scene.profile.model_copy(update={"admission": short}), ["node-1"], "dead")
        hold_nodes(scene.profile, ["node-2"], "lives")
    with loop(scene.settings, scene.cluster, scene.profile) as lines:
        until("it is free", lambda: not hold_of(scene.cluster.get("Node", "node-1"))[0], lambda: str(lines))
        until("they tell", lambda: (scene.label("node-4"), scene.label("node-5")) == ("pass", "unknown"), str)
    assert hold_of(scene.cluster.get("Node", "node-2"))[0] == "lives"
    assert scene.label("node-3") == "", "nobody tested it"
    scene.ledger.close()
