"""The node watch on the embedded cluster: bad nodes go out within the brake, whoever is killed or away meanwhile."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from deployments.cli.monitor import show_monitor
from flows.monitor import in_words, look
from flows.watching.nodes import NodeNotice, NodeReport
from profiles.cluster import Brake, ClusterProfile, Monitor, NodeCondition
from profiles.errors import Conflict, ProfileError
from profiles.vocabulary import FaultClass, Mode
from tasks.cluster import using
from tasks.clusters import embedded_cluster
from tasks.context import at_hand
from tasks.embedded.api import EmbeddedCluster
from tasks.ledger.ledger import Ledger
from tasks.nodes.marks import Mark, set_mark
from tasks.settings import Settings
from tests.support.builders.ledgers import a_person
from tests.support.faults.node_faults import entry, inject, local, loop, quarantined
from tests.support.harness.embedded_stage import jobset, role
from tests.support.running.waiting import patience, until
from workflows import labels
from workflows.model.records import Driver, NodeRecord
from workflows.model.runs import FindingRecord

DEADLINE_SECONDS = patience(60.0)
WIDE = Brake(max_quarantined_share=1.0, max_evictions=100)


class Scene:
    """A home, its embedded cluster of six nodes, its ledger."""

    def __init__(self, home: Path) -> None:
        self.settings = Settings.from_environment({"PRIMUS_HOME": str(home)})
        self.settings.make_home()
        self.cluster = embedded_cluster(local(), home)
        self.ledger = Ledger(self.settings.ledger_url)

    def look(self, mode: Mode = Mode.ACT, brake: Brake = WIDE, cluster: Any = None) -> NodeReport:
        with at_hand(self.settings), using(cluster or self.cluster):
            return look(local(brake=brake), mode)

    def out(self) -> set[str]:
        return set(quarantined(self.cluster))

    def wait_for(self, wanted: set[str]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.out() != wanted:
            assert time.monotonic() < deadline, self.out()
            time.sleep(0.02)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.cluster.stop()
    made.ledger.close()


def watching(scene: Scene, profile: ClusterProfile, mode: Mode = Mode.ACT) -> AbstractContextManager[list[NodeNotice]]:
    """The loop over the scene's cluster."""
    return loop(scene.settings, scene.cluster, profile, mode)


def test_bad_nodes_go_out_once(scene: Scene) -> None:
    inject(scene.cluster, "node-1", entry("KernelDeadlock"))
    inject(scene.cluster, "node-2", entry("AMDGPUXgmi"), entry("MemoryPressure"))
    inject(scene.cluster, "node-3", entry("DiskPressure"), entry("IBLinkFlapping"))
    scene.cluster.patch("Node", "node-4", {"spec": {"unschedulable": True}})
    inject(scene.cluster, "node-4", entry("KernelDeadlock"))
    report = scene.look()
    assert quarantined(scene.cluster) == {"node-1": "node_lost", "node-2": "gpu_hardware"}
    assert [item.node for item in report.unknown] == ["node-3"], "a link that flaps has not stood long enough"
    assert report.held == [("node-4", "cordoned by somebody")]
    assert in_words(report).endswith("1 out of service already; 2 quarantined now")
    again = scene.look()
    assert (again.faults, len(again.held), again.lines) == ([], 3, [])


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.ASK])
def test_modes_touch_nothing_by_themselves(scene: Scene, mode: Mode) -> None:
    inject(scene.cluster, "node-1", entry("KernelDeadlock"))
    report = scene.look(mode)
    assert scene.out() == set()
    assert [line.event for line in report.lines] == (["recorded"] if mode is Mode.OBSERVE else ["asked"])
    assert scene.look(mode).lines == [], "said once"


def test_an_approved_node_goes_out(scene: Scene) -> None:
    inject(scene.cluster, "node-1", entry("KernelDeadlock"))
    scene.look(Mode.ASK)
    [question] = scene.ledger.approvals(waiting_only=True)
    scene.ledger.answer(question.id, True, a_person(), "yes", time.time())
    assert [line.event for line in scene.look(Mode.ASK).lines] == ["answered", "quarantined"]
    assert scene.out() == {"node-1"}


def test_a_pause_holds_everything_and_ends(scene: Scene) -> None:
    inject(scene.cluster, "node-1", entry("KernelDeadlock"))
    scene.ledger.pause(None, "maintenance")
    assert scene.look().settlement.of("leave")[0].why == "paused: maintenance"
    assert scene.out() == set()
    scene.ledger.unpause(None)
    scene.look()
    assert scene.out() == {"node-1"}


def test_the_brake_stops_and_asks(scene: Scene) -> None:
    for number in range(6):
        inject(scene.cluster, f"node-{number}", entry("KernelDeadlock"))
    report = scene.look(brake=Brake(max_quarantined_share=0.5))
    assert len(scene.out()) == 3
    [asked] = [line for line in report.lines if line.event == "asked"]
    assert "The brake tripped: 3 + 1 of 6 nodes in quarantine" in asked.why


class Killed(BaseException):
    """Stands for SIGKILL: nobody catches it."""


class Dying(EmbeddedCluster):
    """The cluster of a process that is killed where it wants to touch a node."""

    def patch(self, kind: str, name: str, patch: Any) -> Any:
        raise Killed


def test_whoever_is_killed_before_the_patch_finds_it_planned(scene: Scene) -> None:
    inject(scene.cluster, "node-1", entry("KernelDeadlock"))
    with pytest.raises(Killed):
        scene.look(cluster=Dying(scene.cluster.root, scene.cluster.spec))
    assert scene.out() == set()
    assert [item.state for item in scene.ledger.actions("monitor/local")] == ["planned"], "written ahead"
    inject(scene.cluster, "node-1", entry("KernelDeadlock", "False"))
    scene.look()
    assert scene.out() == {"node-1"}, "what was decided is carried out"
    assert [item.state for item in scene.ledger.actions("monitor/local")] == ["done"]


def test_what_a_person_released_stays_released(scene: Scene) -> None:
    inject(scene.cluster, "node-1", entry("KernelDeadlock", stood=100.0))
    scene.look()
    scene.ledger.set_node(NodeRecord("local", "node-1", "schedulable", "looked at", time.time()))
    set_mark(scene.cluster, "node-1", Mark())
    assert scene.look().settlement.of("leave")[0].why == "it was taken out for this before"
    assert scene.out() == set()
    inject(scene.cluster, "node-1", entry("KernelDeadlock", stood=1.0))
    scene.look()
    assert scene.out() == {"node-1"}, "it happened again"


def test_the_loop_reacts_to_a_condition(scene: Scene) -> None:
    inject(scene.cluster, "node-0", entry("KernelDeadlock"))
    with watching(scene, local(brake=WIDE)) as lines:
        scene.wait_for({"node-0"})
        inject(scene.cluster, "node-1", entry("KernelDeadlock"))
        scene.wait_for({"node-0", "node-1"})
    assert sorted(line.node for line in lines if line.event == "quarantined") == ["node-0", "node-1"]
    assert {item.state for item in scene.ledger.actions("monitor/local")} == {"done"}


def test_what_must_stand_is_acted_upon_without_another_event(scene: Scene) -> None:
    own = NodeCondition(type="Acme", fault_class=FaultClass.FABRIC, stands_seconds=1.5)
    with watching(scene, local(brake=WIDE, monitor=Monitor(conditions=(own,)))):
        inject(scene.cluster, "node-1", entry("Acme"))
        inject(scene.cluster, "node-2", entry("Acme"))
        inject(scene.cluster, "node-2", entry("Acme", "False"))
        scene.wait_for({"node-1"})
    assert scene.out() == {"node-1"}, "the other came back in time"


def test_without_a_ledger_nothing_is_touched(scene: Scene) -> None:
    file = scene.settings.home / "ledger.sqlite"
    with watching(scene, local(brake=WIDE)) as lines:
        inject(scene.cluster, "node-0", entry("KernelDeadlock"))
        scene.wait_for({"node-0"})
        file.rename(file.with_suffix(".away"))
        inject(scene.cluster, "node-1", entry("KernelDeadlock"))
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not any(line.event == "away" for line in lines):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert scene.out() == {"node-0"}
        file.with_suffix(".away").rename(file)
        scene.wait_for({"node-0", "node-1"})
    assert [line.event for line in lines if line.event in ("away", "back") and not line.subject] == ["away", "back"]


def test_there_is_one_monitor_of_a_cluster(scene: Scene) -> None:
    inject(scene.cluster, "node-0", entry("KernelDeadlock"))
    with watching(scene, local(brake=WIDE)):
        scene.wait_for({"node-0"})
        held_by = scene.ledger.lease("monitor/local")
        assert held_by is not None
        other = Ledger(scene.settings.ledger_url)
        with pytest.raises(Conflict, match="monitor/local is driven by process"):
            other.acquire("monitor/local", held_by.driver.__class__("elsewhere", 1, 1.0), time.time(), lambda _: None)
        other.close()


def test_hooks_are_called_again_and_again_and_may_fail(scene: Scene) -> None:
    called, fails = list[float](), threading.Event()

    def hook() -> None:
        called.append(time.monotonic())
        if not fails.is_set():
            raise RuntimeError("no")

    with loop(scene.settings, scene.cluster, local(), hooks=[hook]) as lines:
        until("it is told", lambda: [line.why for line in lines if line.subject == "hook"] == ["RuntimeError: no"])
        fails.set()
        until("it is over", lambda: [line.event for line in lines] == ["away", "back"])
    assert len(called) >= 2


def shown(scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, **more: Any) -> Any:
    monkeypatch.setenv("PRIMUS_HOME", str(scene.settings.home))
    return show_monitor("local", more.pop("mode", ""), once=True, **more), capsys.readouterr().out


def test_the_command_says_what_it_found(
    scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    say: Callable[..., Any] = lambda **more: shown(scene, capsys, monkeypatch, **more)  # noqa: E731
    assert say(as_json=False)[0] == 0
    inject(scene.cluster, "node-1", entry("IBLinkFlapping"))
    assert say(as_json=False)[0] == 3
    inject(scene.cluster, "node-1", entry("KernelDeadlock"))
    code, text = say(as_json=False, mode="observe")
    assert code == 1
    assert "node-1  fail     KernelDeadlock  node_lost  record" in text
    code, text = say(as_json=True)
    document = json.loads(text)
    assert (code, document["faults"][0]["step"], document["nodes"]) == (1, "quarantine", 6)
    assert document["events"] == [{"event": "quarantined", "node": "node-1", "why": document["faults"][0]["why"]}]
    with pytest.raises(ProfileError, match="observe, ask, act"):
        say(as_json=False, mode="perhaps")
    assert os.environ["PRIMUS_HOME"] == str(scene.settings.home)


def test_where_a_loop_lives_one_pass_only_shows_what_stands(
    scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.ledger.acquire("monitor/local", Driver("elsewhere", 7, 1.0), time.time(), lambda _: None)
    found = FindingRecord("i", "local", "orphan", "JobSet/x-a1", "x", "it lives", "delete it", time.time(), time.time())
    scene.ledger.open_finding(found)
    inject(scene.cluster, "node-1", entry("KernelDeadlock"))
    code, text = shown(scene, capsys, monkeypatch, as_json=False)
    assert code == 1
    assert "nothing was done here: monitor/local is driven by process 7 on elsewhere" in text
    assert "orphan  JobSet/x-a1  it lives  delete it" in text
    assert scene.out() == set()
    code, text = shown(scene, capsys, monkeypatch, as_json=True)
    document = json.loads(text)
    assert (code, document["findings"][0]["kind"], document["faults"][0]["step"]) == (1, "orphan", None)
    assert document["loop"].startswith("monitor/local is driven by")


def test_one_pass_shows_what_it_found_beside_nodes(
    scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = jobset("theirs-a1", role("trainer", 1, "sleep", "600"))
    made["metadata"]["labels"] = labels.labels("theirs", 1, "train")
    scene.cluster.apply(made)
    code, text = shown(scene, capsys, monkeypatch, as_json=False)
    assert code == 0, "it is left alone"
    assert "foreign  theirs   this ledger knows no run theirs on this cluster: JobSet/theirs-a1  none: another" in text
