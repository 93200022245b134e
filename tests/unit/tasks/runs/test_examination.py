"""An examination never stops a recovery: whatever goes wrong with it is unknown, and unknown blames nobody.

Which of the collected steps the ledger lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.errors import Fenced, PrimusError, Refused, Unavailable
from profiles.vocabulary import VerdictWord
from tasks.cluster import Cluster, Kind, Manifest, Seen, using
from tasks.context import Right, World, standing_in
from tasks.ledger.ledger import Ledger
from tasks.runs.examine import SLACK_SECONDS, Look, examine, lacking, proven, unexamined
from tasks.settings import Settings
from tests.support.builders.attempt_plans import a_plan
from tests.support.builders.ledgers import Clock, an_attempt, driven
from tests.support.cases.rows import rows
from workflows.attempt.templates import DEADLINE_MARGIN_SECONDS
from workflows.model.records import CheckpointRecord, RequestRecord, StepRow
from workflows.wire import GateReport, to_json

RESOLVED = a_plan().resolved
NAME = "demo-a1-x2"
LOOK = Look(("node-1", "node-3"), 2, since=990.0)
GATE_SECONDS = RESOLVED.run.recovery.gate_timeout_seconds


def pod(node: str, report: str | None, phase: str = "Succeeded", message: str = "") -> Manifest:
    """A workflow's node for the examination's pod on `node`; `report`: its output parameter."""
    values = [] if report is None else [{"name": "report", "value": report}]
    return {
        "type": "Pod",
        "templateName": "examine",
        "phase": phase,
        "message": message,
        "inputs": {"parameters": [{"name": "node", "value": node}]},
        "outputs": {"parameters": values},
    }


def said(node: str, verdict: str, at: float = 1005.0) -> str:
    return to_json(GateReport(node, verdict, [{"check": "storage", "verdict": verdict, "evidence": "tried"}], at))


def ended(*pods: Manifest, phase: str = "Succeeded", message: str = "") -> dict[str, Any]:
    nodes = {f"pod-{number}": item for number, item in enumerate(pods)}
    return {"phase": phase, "message": message, "nodes": nodes}


BOTH = ended(pod("node-1", said("node-1", "pass")), pod("node-3", said("node-3", "fail")))


class OneWorkflowCluster:
    """Holds one workflow. Each look at it may change it or fail, as a script says; a watch lets the time pass.

    Args:
        clock: goes on by as much as a watch may take.
        script: called before each `get`, one after the other, with the cluster; they may raise.
        then: status that the workflow gets while it is watched; None: it stays as it is.
    """

    name = "local"

    def __init__(
        self, clock: Clock, *script: Callable[[OneWorkflowCluster], None], then: Mapping[str, Any] | None = BOTH
    ) -> None:
        self.clock, self.script, self.then = clock, list(script), then
        self.workflow: Manifest | None = None
        self.applied: list[Manifest] = []
        self.deleted: list[str] = []
        self.refuses: PrimusError | None = None

    def get(self, kind: Kind, name: str) -> Manifest | None:
        assert (kind, name) == ("Workflow", NAME)
        if self.script:
            self.script.pop(0)(self)
        return self.workflow

    def apply(self, manifest: Manifest) -> Manifest:
        if self.refuses is not None:
            raise self.refuses
        self.applied.append(manifest)
        self.workflow = {**manifest, "status": {"phase": "Running"}}
        return self.workflow

    def watch(self, kind: Kind, labels: Mapping[str, str], *, timeout_seconds: float) -> Iterator[Seen]:
        assert self.workflow is not None
        yield Seen("ADDED", {"metadata": {"name": "demo-a1"}, "status": {"phase": "Succeeded"}}, "1")
        self.clock.now += timeout_seconds
        if self.then is not None:
            self.workflow = {**self.workflow, "status": dict(self.then)}
        yield Seen("MODIFIED", self.workflow, "2")

    def delete(self, kind: Kind, name: str, *, grace_seconds: int | None = None) -> None:
        self.deleted.append(name)


class Place:
    """A ledger, a clock and the right to drive."""

    def __init__(self, ledger: Ledger, clock: Clock, home: Path) -> None:
        self.ledger, self.clock = ledger, clock
        self.right = Right("demo", driven(ledger))
        self.world = World(Settings.from_environment({"PRIMUS_HOME": str(home)}), ledger, self.right, clock)

    def examine(self, cluster: OneWorkflowCluster) -> dict[str, GateReport]:
        with standing_in(self.world), using(cast("Cluster", cluster)):
            reports = examine.fn(RESOLVED, an_attempt(nodes=("node-1", "node-3")), LOOK)
        assert [report.node for report in reports] == list(LOOK.nodes), "one report a node, in their order"
        return {report.node: report for report in reports}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    clock = Clock()
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.sqlite", clock)
    yield Place(ledger, clock, tmp_path)
    ledger.close()


def verdicts(reports: Mapping[str, GateReport]) -> list[str]:
    return [report.verdict for report in reports.values()]


def words(reports: Mapping[str, GateReport]) -> str:
    return " ".join(str(check.get("evidence")) for report in reports.values() for check in report.checks)


def unavailable(_: OneWorkflowCluster) -> None:
    raise Unavailable("no answer", retry_after_seconds=0.0)


def test_an_examination_is_made_under_its_own_name_and_its_reports_are_kept(place: Place) -> None:
    cluster = OneWorkflowCluster(place.clock)
    assert verdicts(place.examine(cluster)) == ["pass", "fail"]
    [made] = cluster.applied
    assert made["metadata"]["name"] == NAME
    assert "--kernel-since=990.0" in made["spec"]["templates"][0]["container"]["command"]
    kept = place.ledger.verdicts(RESOLVED.cluster.name)
    assert [(item.node, item.verdict, item.source) for item in kept] == [
        ("node-1", "pass", NAME),
        ("node-3", "fail", NAME),
    ]
    assert cluster.deleted == [], "an ended one stays until the attempt is cleared away: a second life reads it"


def test_an_examination_of_an_earlier_life_is_read(place: Place) -> None:
    cluster = OneWorkflowCluster(place.clock)
    cluster.workflow = {"metadata": {"name": NAME}, "status": BOTH}
    assert verdicts(place.examine(cluster)) == ["pass", "fail"]
    assert cluster.applied == []


def test_a_cluster_that_is_away_for_a_moment_is_asked_again(place: Place) -> None:
    cluster = OneWorkflowCluster(place.clock, unavailable, unavailable)
    assert verdicts(place.examine(cluster)) == ["pass", "fail"]


def test_a_refused_examination_is_unknown(place: Place) -> None:
    cluster = OneWorkflowCluster(place.clock)
    cluster.refuses = Refused("spec.templates[0]", "not permitted here")
    reports = place.examine(cluster)
    assert verdicts(reports) == ["unknown", "unknown"]
    assert "not permitted here" in words(reports)
    assert place.ledger.verdicts(RESOLVED.cluster.name) == [], "nothing was found out about the nodes"


def test_an_examination_without_an_end_is_unknown_and_left_running_nowhere(place: Place) -> None:
    cluster = OneWorkflowCluster(place.clock, then=None)
    began = place.clock.now
    reports = place.examine(cluster)
    assert verdicts(reports) == ["unknown", "unknown"]
    assert "no end within" in words(reports)
    limit = GATE_SECONDS + DEADLINE_MARGIN_SECONDS + SLACK_SECONDS
    assert limit <= place.clock.now - began <= limit + 10
    assert cluster.deleted == [NAME]


def test_one_that_somebody_deleted_is_not_made_again(place: Place) -> None:
    def gone(cluster: OneWorkflowCluster) -> None:
        cluster.workflow = None

    cluster = OneWorkflowCluster(place.clock, lambda _: None, gone, then=None)
    reports = place.examine(cluster)
    assert verdicts(reports) == ["unknown", "unknown"]
    assert "somebody deleted it" in words(reports)
    assert len(cluster.applied) == 1


def test_a_person_who_wants_the_end_does_not_wait_for_it(place: Place) -> None:
    place.ledger.request(RequestRecord("stop-1", "demo", "stop", 1000.0, "enough"))
    cluster = OneWorkflowCluster(place.clock, then=None)
    began = place.clock.now
    assert verdicts(place.examine(cluster)) == ["unknown", "unknown"]
    assert place.clock.now - began < 5
    assert cluster.deleted == [NAME]


def test_a_driver_that_was_replaced_touches_nothing_more(place: Place) -> None:
    cluster = OneWorkflowCluster(place.clock, then=None)

    def taken_over(_: OneWorkflowCluster) -> None:
        place.right.lose("another driver")

    cluster.script = [taken_over]
    with pytest.raises(Fenced):
        place.examine(cluster)
    assert cluster.deleted == []


def test_a_cluster_that_knows_a_newer_driver_stops_this_one(place: Place) -> None:
    cluster = OneWorkflowCluster(place.clock)
    cluster.refuses = Fenced("written by a newer driver")
    with pytest.raises(Fenced):
        place.examine(cluster)
    assert cluster.deleted == []


NOTHING = to_json(GateReport("", "unknown", [{"check": "gate", "verdict": "unknown", "evidence": "no report"}]))


@pytest.mark.parametrize(
    ("status", "wanted", "told"),
    [
        (ended(pod("node-1", "{broken"), pod("node-3", said("node-3", "pass"))), ["unknown", "pass"], "no report"),
        (ended(pod("node-1", None, "Failed", "OOMKilled")), ["unknown", "unknown"], "OOMKilled"),
        (ended(pod("node-1", NOTHING, "Failed"), pod("node-3", NOTHING, "Error")), ["unknown", "unknown"], "no report"),
        (ended(phase="Error", message="no such service account"), ["unknown", "unknown"], "no such service account"),
        (ended(pod("node-7", said("node-7", "fail"))), ["unknown", "unknown"], "nothing about this node"),
        (
            ended(pod("node-1", NOTHING, "Error", "pod deleted"), pod("node-1", said("node-1", "pass"))),
            ["pass", "unknown"],
            "nothing about this node",
        ),
    ],
    ids=["unreadable", "killed", "lost", "refused-later", "of-another-node", "tried-again"],
)
def test_what_was_not_found_out_is_unknown(status: dict[str, Any], wanted: list[str], told: str, place: Place) -> None:
    reports = place.examine(OneWorkflowCluster(place.clock, then=status))
    assert verdicts(reports) == wanted
    assert told in words(reports)


def test_the_task_is_called_by_the_nodes() -> None:
    assert str(examine.task_run_name).format(look=LOOK) == "examines node-1, node-3"


def test_nobody_is_blamed_by_an_examination_that_was_not_made() -> None:
    assert [(report.node, report.verdict) for report in unexamined(("a", "b"), "paused")] == [
        ("a", "unknown"),
        ("b", "unknown"),
    ]


def recorded(*told: tuple[int, float]) -> list[StepRow]:
    return [StepRow(step, at) for step, at in told]


@rows("tasks/runs/examination")
def test_what_the_ledger_lacks(
    collected: list[tuple[int, float]], known: list[tuple[int, float]], fresh: list[tuple[int, float]]
) -> None:
    assert lacking(recorded(*collected), recorded(*known)) == recorded(*fresh)


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0, 100)), max_size=20))
def test_what_is_known_is_never_lacking(told: list[tuple[int, float]]) -> None:
    assert lacking(recorded(*told), recorded(*told)) == []
    assert lacking(recorded(*told), []) == sorted(recorded(*told), key=lambda row: row.at)


def test_the_proof_of_a_last_save_that_nobody_was_told_of_reaches_the_ledger() -> None:
    attempt = an_attempt(2)
    known = [CheckpointRecord("demo", 20, "/c/step-20", 1, 10.0, VerdictWord.PASS)]
    rows = [
        [40, "/c/step-40", 30.0, "pass", "3 files", 7, "dcp"],
        [20, "/c/step-20", 10.0, "pass", "", 7, "dcp"],
        [20, "/c/step-20", 40.0, "fail", "after the first NaN (step 15)", 7, "dcp"],
        [60, "/c/step-60"],
        ["x", "/c/step-60", 30.0, "pass", "", 7, "dcp"],
        None,
    ]
    found = proven(attempt, rows, known)
    assert [(item.step, item.verdict, item.attempt) for item in found] == [(40, "pass", 2), (20, "fail", 2)]
    assert proven(attempt, rows, [*known, *found]) == []
    assert proven(attempt, {"not": "rows"}, known) == []
