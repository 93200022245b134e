"""Rounds of reconciling over a real embedded cluster and a real ledger, at an hour of our choosing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.monitor import glance, look_around
from flows.watching.nodes import NodeNotice
from flows.watching.reconcile import Reconciler, Round
from profiles.errors import Unavailable
from profiles.vocabulary import Mode, RunState
from tasks.cluster import using
from tasks.clusters import embedded_cluster
from tasks.context import World, standing_in
from tasks.ledger.ledger import Ledger
from tasks.observe.nodes import stream_nodes
from tasks.observe.reconcile import Scope
from tasks.settings import Settings
from tests.support.builders.ledgers import a_person, a_run
from tests.support.faults.node_faults import local, quarantined
from tests.support.harness.embedded_stage import jobset, pod, role
from workflows import labels
from workflows.model.records import ApprovalRecord, AttemptRecord, Driver, NodeRecord, RequestRecord

THERE = Driver("elsewhere", 7, 3.0)


class Scene:
    """A home, its embedded cluster, its ledger, and a clock that may be moved."""

    def __init__(self, home: Path) -> None:
        self.settings = Settings.from_environment({"PRIMUS_HOME": str(home)})
        self.settings.make_home()
        self.cluster: Any = embedded_cluster(local(), home)
        self.ledger = Ledger(self.settings.ledger_url, clock=self.now)
        self.ahead = 0.0
        self.lines: list[NodeNotice] = []
        self.reconciler = self.monitor(Mode.ACT)

    def now(self) -> float:
        return time.time() + self.ahead

    def monitor(self, mode: Mode) -> Reconciler:
        return Reconciler(local(), mode, self.lines.append)

    def take(self, ahead: float = 0.0, mode: Mode | None = None, nodes: bool = True) -> Round:
        """A round so many seconds later."""
        self.ahead += ahead
        if mode is not None:
            self.reconciler = self.monitor(mode)
        here = World(self.settings, self.ledger, now=self.now)
        with standing_in(here), using(self.cluster):
            scope = Scope(nodes=(lambda: stream_nodes(local())) if nodes else None)
            return self.reconciler.take(scope)

    def apply(self, run: str, attempt: int = 1, kind: str = "JobSet") -> str:
        """An object of ours that lives for a long time; its name."""
        name = labels.attempt_name(run, attempt)
        marks = labels.labels(run, attempt, "train", "trainer")
        made: dict[str, Any] = jobset(name, role("trainer", 1, "sleep", "600"))
        if kind == "Pod":
            made = pod(f"{name}-p", "sleep", "600")
        made["metadata"]["labels"] = marks
        self.cluster.apply(made)
        return str(made["metadata"]["name"])

    def open(self, run: str, **more: Any) -> str:
        self.ledger.open_run(a_run(run, created_at=self.now() - 300, **more))
        attempt = AttemptRecord(run, 1, self.now() - 290, "first")
        self.ledger.plan_attempt(self.drive(run), attempt)
        return run

    def drive(self, run: str) -> int:
        return self.ledger.acquire(run, THERE, self.now(), lambda _: None).fencing

    def applied(self, run: str) -> str:
        """A run that is driven and whose JobSet was seen."""
        self.open(run, state=RunState.RUNNING)
        now = self.now()
        self.ledger.update_attempt(None, run, 1, submitted_at=now - 280, applied_at=now - 270)  # type: ignore[arg-type]
        return run

    def end(self, run: str) -> None:
        self.ledger.set_run_state(run, None, RunState.SUCCEEDED, "done", self.now())

    def names(self, kind: str = "JobSet") -> list[str]:
        """Of those that nobody has deleted."""
        found = [item["metadata"] for item in self.cluster.list(kind, {})]
        return [item["name"] for item in found if "deletionTimestamp" not in item]

    def wanted(self) -> list[Any]:
        """What somebody wanted of the cluster's objects: all but their status."""
        found = [item for kind in ("JobSet", "Node") for item in self.cluster.list(kind, {})]
        return [(item["metadata"].get("labels"), item["spec"], len(item["metadata"])) for item in found]

    def kinds(self, *, open_only: bool = True) -> list[str]:
        return [item.kind for item in self.ledger.findings("local", open_only=open_only)]

    def events(self) -> list[str]:
        return [line.event for line in self.lines]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.cluster.stop()
    made.ledger.close()


def test_what_an_ended_run_left_is_removed_and_others_things_stay(scene: Scene) -> None:
    scene.open("ours")
    left = [scene.apply("ours"), scene.apply("ours", kind="Pod"), scene.apply("theirs"), scene.apply("ours", attempt=2)]
    scene.take()
    assert sorted(scene.kinds()) == ["foreign", "unknown-attempt"]
    scene.end("ours")
    scene.take(30.0)
    assert sorted(scene.names()) == ["ours-a1", "ours-a2", "theirs-a1"], "its driver may still clear away"
    scene.take(31.0)
    assert {"theirs-a1", "ours-a2"} == set(scene.names()), "attempts are written down before anything is made of them"
    assert left[1] not in scene.names("Pod")
    assert [line.subject for line in scene.lines if line.event == "mended"] == [
        "JobSet/ours-a1",
        "Pod/ours-a1-p",
    ]
    scene.take(5.0)
    assert sorted(scene.kinds()) == ["foreign", "unknown-attempt"]
    assert "Shall" not in str(scene.ledger.approvals())
    before = scene.lines[:]
    scene.take(5.0)
    assert scene.lines == before, "told once"


def test_what_is_younger_than_the_end_of_its_run_stays(scene: Scene) -> None:
    scene.open("ours")
    scene.ahead = -500.0
    scene.end("ours")
    scene.ahead = 0.0
    scene.apply("ours")
    scene.take(100.0)
    assert scene.names() == ["ours-a1"]
    assert scene.kinds() == ["foreign"]


def test_mode_observe_writes_nothing_to_the_cluster(scene: Scene) -> None:
    scene.open("ours")
    scene.apply("ours")
    scene.end("ours")
    scene.ledger.set_node(NodeRecord("local", "node-1", "quarantined", "fabric: bad", scene.now()))
    before = scene.wanted()
    scene.take(61.0, Mode.OBSERVE)
    scene.take(61.0)
    assert scene.wanted() == before
    said = [item.action for item in scene.ledger.findings("local")]
    assert said == ["none: mode observe: it would delete it", "none: mode observe: it would mark it again"]
    assert set(scene.events()) == {"found"}
    scene.take(1.0, Mode.ACT)
    scene.take(20.0)
    assert (scene.names(), quarantined(scene.cluster)) == ([], {"node-1": "fabric"})


def test_mode_ask_asks_before_it_deletes(scene: Scene) -> None:
    scene.open("ours")
    scene.apply("ours")
    scene.end("ours")
    scene.take(61.0, Mode.ASK)
    [asked] = scene.ledger.approvals(waiting_only=True)
    assert asked.question.endswith("Shall it be deleted?")
    scene.take(5.0)
    assert scene.names() == ["ours-a1"]
    scene.ledger.answer(asked.id, True, a_person(), "yes", scene.now())
    scene.take(5.0)
    assert scene.names() == []


def test_a_pause_holds_everything_and_ends(scene: Scene) -> None:
    scene.open("ours")
    scene.apply("ours")
    scene.end("ours")
    scene.ledger.pause(None, "maintenance")
    assert [item.outcome for item in scene.take(61.0).handled] == ["none: paused: maintenance"]
    scene.ledger.unpause(None)
    scene.take(1.0)
    assert scene.names() == []


def test_an_end_that_its_driver_did_not_see_becomes_an_incident(scene: Scene) -> None:
    scene.applied("ours")
    scene.take()
    scene.drive("ours")
    scene.take(14.0)
    assert scene.kinds() == []
    scene.drive("ours")
    scene.take(2.0)
    [found] = scene.ledger.incidents("ours")
    assert (found.id, found.signal, found.evidence) == (
        "ours-a1-i1",
        "pods-gone",
        ("its JobSet is gone; its driver did not tell",),
    )
    [wake] = scene.ledger.requests("ours")
    assert wake.kind == "wake"
    scene.drive("ours")
    scene.take(1.0)
    assert (scene.kinds(), len(scene.ledger.incidents("ours"))) == ([], 1), "it is being dealt with"


def test_an_end_that_a_person_asked_for_is_no_finding(scene: Scene) -> None:
    scene.applied("ours")
    scene.ledger.request(RequestRecord("r1", "ours", "stop", scene.now()))
    scene.take()
    scene.drive("ours")
    assert scene.take(20.0).handled == ()


def test_a_question_lapses_without_anybody_who_waits_for_it(scene: Scene) -> None:
    scene.open("ours")
    asked = ApprovalRecord("ours-a1-i1-approval", "ours", "i", "go on?", "waiting", scene.now(), scene.now() + 10)
    scene.ledger.ask(None, asked)
    scene.take(11.0)
    scene.take(6.0)
    assert [item.state for item in scene.ledger.approvals()] == ["expired"]


def test_a_run_without_a_driver_is_told_where_no_server_is(scene: Scene) -> None:
    scene.open("ours")
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        scene.take(61.0)
        [dealt] = scene.take(6.0).handled
    assert dealt.finding.why == "its driver did not renew its lease: process 7 on elsewhere"
    assert "no Prefect server is known here" in dealt.outcome
    assert [item.action for item in scene.ledger.findings("local")] == [dealt.outcome]
    scene.drive("ours")
    scene.take(1.0)
    assert scene.kinds() == []
    assert scene.events() == ["found", "failed", "over"]


def test_our_mark_comes_back_and_a_strangers_stays(scene: Scene) -> None:
    scene.ledger.set_node(NodeRecord("local", "node-1", "quarantined", "fabric: bad", scene.now()))
    taint = {"key": labels.QUARANTINE_TAINT, "value": "theirs", "effect": "NoSchedule"}
    scene.cluster.patch("Node", "node-2", {"spec": {"taints": [taint]}})
    scene.take()
    scene.take(16.0)
    assert quarantined(scene.cluster) == {"node-1": "fabric", "node-2": "theirs"}
    assert scene.kinds() == ["mark-missing", "mark-left"]
    scene.take(1.0, nodes=False)
    assert scene.kinds() == ["mark-missing", "mark-left"], "nobody looked"
    scene.take(1.0)
    assert scene.kinds() == ["mark-left"]


class Away:
    """A cluster that does not list JobSets."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def watch(self, kind: str, *words: Any, **named: Any) -> Any:
        if kind == "JobSet":
            raise Unavailable("no answer")
        return self._cluster.watch(kind, *words, **named)


def test_what_does_not_answer_is_not_judged(scene: Scene) -> None:
    scene.applied("ours")
    scene.take()
    scene.cluster, real = Away(scene.cluster), scene.cluster
    scene.drive("ours")
    found = scene.take(20.0)
    assert (found.handled, found.away) == ((), ("JobSet: no answer",))
    scene.cluster = real
    scene.drive("ours")
    assert scene.take(1.0).young == ()
    assert [line.event for line in scene.lines if line.subject == "reconcile"] == ["away", "back"]
    assert scene.kinds() == ["unseen-end"], "it was seen before, and still is"


def test_one_pass_waits_until_it_can_judge(scene: Scene) -> None:
    scene.ahead = -300.0
    scene.applied("ours")
    scene.ahead = 0.0
    here, lines = World(scene.settings, scene.ledger), list[NodeNotice]()
    with standing_in(here), using(scene.cluster):
        found = look_around(local(), Mode.ACT, lines.append)
        assert glance(local()).nodes == 6
    assert [item.finding.kind for item in found.handled] == ["undriven"]
