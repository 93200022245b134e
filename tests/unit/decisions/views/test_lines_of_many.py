"""Incidents, questions and runs as one line each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flows.decisions.views import approvals, status
from profiles.vocabulary import Action, FaultClass, NodeAction, RunState
from workflows.model.records import ActionRecord, ApprovalRecord, IncidentRecord
from workflows.model.runs import ApprovalLine, IncidentLine, RunLine

SEEN = IncidentRecord("r-a1-i1", "r", 1, 100.0, 100.5, "pod-failed", evidence=("exit code 137",))
DECIDED = replace(
    SEEN,
    fault_class=FaultClass.NODE_LOST,
    confidence=0.97,
    culprits=(("node-1", 3), ("node-1", 4)),
    action=Action.NEW_ATTEMPT,
    why="without node-1",
)
RUNNING = RunState.RUNNING


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            IncidentLine(SEEN, RUNNING),
            {"class": "not diagnosed yet", "culprit": "-", "action": "not decided yet", "why": "exit code 137"},
        ),
        (
            IncidentLine(replace(DECIDED, resumed_at=102.4), RUNNING),
            {"class": "node_lost (0.97)", "culprit": "node-1", "action": "new-attempt", "took": "2.4 s"},
        ),
        (IncidentLine(replace(DECIDED, resumed_at=700.0), RUNNING), {"took": "10.0 min"}),
        (IncidentLine(DECIDED, RUNNING), {"took": "5.0 min so far"}),
        (IncidentLine(DECIDED, RunState.FAILED), {"took": "-"}),
        (IncidentLine(replace(DECIDED, action=Action.NONE), RUNNING), {"took": "-"}),
        (IncidentLine(replace(DECIDED, culprits=(("", 3),)), RUNNING), {"culprit": "rank 3"}),
        (IncidentLine(replace(DECIDED, culprits=(("a", 1), ("b", 2), ("c", 3))), RUNNING), {"culprit": "a +2"}),
        (IncidentLine(replace(SEEN, evidence=()), RUNNING), {"why": "pod-failed"}),
    ],
)
def test_an_incident_in_one_line(line: IncidentLine, told: dict[str, str]) -> None:
    row = approvals.row(line, 400.0)
    assert {key: row[key] for key in told} == told
    assert row["run"] == "r/1"


def test_an_incident_as_a_document_is_that_of_status_with_its_run() -> None:
    document = approvals.incident_document(IncidentLine(replace(DECIDED, resumed_at=102.4), RUNNING))
    assert (document["run"], document["open"], document["run_state"]) == ("r", False, "running")
    assert (document["class"], document["resumed_after_seconds"]) == ("node_lost", 2.4)


@pytest.mark.parametrize(
    ("lines", "total", "told"),
    [
        ([IncidentLine(replace(DECIDED, resumed_at=102.4), RUNNING)], 1, "1 incident; none is open"),
        ([IncidentLine(DECIDED, RUNNING)], 7, "7 incidents, the newest 1 are shown; 1 not over"),
    ],
)
def test_how_many_incidents(lines: list[IncidentLine], total: int, told: str) -> None:
    assert approvals.headline(lines, total) == told


ASKED = ApprovalRecord("q", "r", "i", "take out node-1?", "waiting", 100.0, 400.0)


def planned(kind: Any, target: str = "") -> ActionRecord:
    return ActionRecord(f"i-{kind}-{target}", "r", "i", kind, target, "planned", "w", 100.0)


QUARANTINE = NodeAction.QUARANTINE


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        ((), "what was decided is carried out"),
        ((planned(Action.NEW_ATTEMPT),), "new-attempt"),
        ((planned(Action.NEW_ATTEMPT), planned(QUARANTINE, "node-1")), "quarantine node-1, then new-attempt"),
        (tuple(planned(QUARANTINE, f"n{n}") for n in range(9)), "quarantine n0, n1, n2, n3, n4, n5 and 3 more"),
    ],
)
def test_what_a_yes_does(actions: tuple[ActionRecord, ...], said: str) -> None:
    assert approvals.if_yes(ApprovalLine(ASKED, RUNNING, actions)) == said


def test_what_a_no_does_to_a_run_and_to_nodes() -> None:
    assert "r ends as stopped; `primus resume r`" in approvals.if_no(ApprovalLine(ASKED, RUNNING))
    assert approvals.if_no(ApprovalLine(ASKED, None)) == "the nodes stay as they are"


def test_a_question_with_its_age_and_the_commands_that_answer_it() -> None:
    line = ApprovalLine(ASKED, RunState.WAITING_FOR_APPROVAL, (planned(Action.NEW_ATTEMPT),))
    document = approvals.approval_document(line, 130.0)
    assert (document["age_seconds"], document["seconds_left"]) == (30.0, 270.0)
    assert (document["run_state"], document["if_yes"]) == ("waiting-for-approval", "new-attempt")
    assert document["approve"] == 'primus approve q --why "..."'
    text = "\n".join(approvals.lines(line, 130.0))
    assert "asked 30 s ago; 4.5 min left, then it counts as no" in text
    assert "its time is up: it counts as no" in "\n".join(approvals.lines(line, 500.0))
    assert approvals.approval_document(line, 500.0)["seconds_left"] == 0.0


TAGS = {"team": "vision", "long": ""}
LINE = RunLine("r", RUNNING, "trains", "demo", "local", 100.0, attempts=2, step=40, owner="ada", tags=TAGS)


def test_a_run_in_one_line() -> None:
    assert status.row(LINE, 400.0) | {} == {
        "run": "r",
        "state": "running",
        "profile": "demo",
        "cluster": "local",
        "owner": "ada",
        "tags": "team=vision,long=",
        "age": "5.0 min",
        "step": 40,
        "attempts": 2,
        "why": "trains",
    }
    assert status.row(replace(LINE, paused=True), 400.0)["state"] == "running (paused)"
    assert status.row(replace(LINE, paused=True, state=RunState.FAILED), 400.0)["state"] == "failed"


@pytest.mark.parametrize(
    ("count", "more", "said"),
    [
        (1, False, "1 run, 1 not ended"),
        (2, False, "2 runs, 2 not ended"),
        (2, True, "2 runs, 2 not ended; older ones are left out: primus runs --limit 0"),
    ],
)
def test_how_many_runs(count: int, more: bool, said: str) -> None:
    assert status.headline([LINE] * count, more=more) == said
