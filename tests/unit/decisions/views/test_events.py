"""Which line of the history is which event, and what a message needs of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.views.events import FIELDS, event_of
from profiles.vocabulary import Action, FaultClass, NodeAction, RunState, VerdictWord
from tasks.ledger.rows import to_row
from tests.support.builders.ledgers import a_person, a_run, an_attempt, an_incident
from workflows.model.events import SCHEMA_VERSION, EventGround
from workflows.model.records import UNVERIFIED, ActionRecord, ApprovalRecord, NodeRecord, Story, VerdictRecord
from workflows.model.runs import FindingRecord, HistoryRow

DOCUMENT = (Path(__file__).parents[4] / "docs" / "events.md").read_text(encoding="utf-8")
INCIDENT = an_incident(
    fault_class=FaultClass.NODE_LOST,
    confidence=0.98,
    culprits=(("node-1", 1),),
    evidence=("node-1 is not ready", "its kubelet does not answer"),
    action=Action.NEW_ATTEMPT,
    why="a node is lost, and the budget allows it",
    would_change="a spare that is healthy",
)
ACTION = ActionRecord(
    "demo-a1-i1-quarantine-node-1", "demo", "demo-a1-i1", NodeAction.QUARANTINE, "node-1", "planned", "lost", 1003.0
)
ASKED = ApprovalRecord("demo-a1-i1-approval", "demo", "demo-a1-i1", "take 3 nodes out?", "waiting", 1003.0, 4603.0)
IN_PLACE = replace(
    INCIDENT,
    id="demo-a1-r1",
    signal="rank-failed",
    fault_class=FaultClass.PROCESS_KILLED,
    action=Action.RESTART_IN_PLACE,
    why="restart in place 1: rank 1, from step 20",
)
LAGS = replace(
    INCIDENT,
    id="demo-a1-n1",
    signal="slow-rank",
    fault_class=FaultClass.STRAGGLER,
    evidence=("rank 1 on node-1 takes 1.83 times as long as its peers since step 40",),
    action=Action.NONE,
    why="rank 1 on node-1 takes 1.83 times as long as its peers since step 40. Training continues; "
    "no action was taken. Next: primus why r",
    would_change="",
)
ATTEMPT = replace(an_attempt(), nodes=("node-0", "node-1"), last_step=143)
STORY = Story(
    run=a_run(), attempts=(ATTEMPT,), incidents=(IN_PLACE, LAGS, INCIDENT), actions=(ACTION,), approvals=(ASKED,)
)
GROUND = EventGround("ledger-1", STORY, link="http://127.0.0.1/runs/flow-run/1")
ON_APPROVAL = replace(GROUND, approval=ASKED)
NOBODY = EventGround("ledger-1")
NODE = NodeRecord("local", "node-1", "quarantined", "lost", 1003.0, "demo-a1-i1", "cpu")
VERDICT = VerdictRecord(
    "local",
    "node-1",
    VerdictWord.FAIL,
    "gate",
    1003.0,
    ({"check": "disk", "verdict": "fail", "evidence": "read-only"},),
    "demo-a1",
)
FINDING = FindingRecord(
    "local/orphan/JobSet x@1", "local", "orphan", "JobSet x", "", "nobody owns it", "deleted", 1.0, 1.0
)


def line(kind: str, subject: str, data: Any = None, why: str = "", run: str = "demo") -> HistoryRow:
    text = data if isinstance(data, str) else json.dumps(data or {}, default=str)
    return HistoryRow(7, 1005.0, run, kind, subject, why, text)


LINES: list[tuple[str | None, HistoryRow, EventGround]] = [
    ("run.opened", line("run", "demo", to_row(a_run())), GROUND),
    ("run.running", line("run", "demo", {"state": "running", "why": "steps"}), GROUND),
    ("run.recovering", line("run", "demo", {"state": "recovering", "why": "pod-failed"}), GROUND),
    ("run.pending", line("run", "demo", {"state": "pending", "why": "submits"}), GROUND),
    ("run.waiting_for_approval", line("run", "demo", {"state": "waiting-for-approval", "why": "?"}), GROUND),
    ("run.succeeded", line("run", "demo", {"state": "succeeded", "why": "300 steps"}), GROUND),
    ("run.failed", line("run", "demo", {"state": "failed", "why": "the budget is spent"}), GROUND),
    ("run.stopped", line("run", "demo", {"state": "stopped", "why": "asked"}), GROUND),
    ("run.unknown", line("run", "demo", {"state": "unknown", "why": "?"}), GROUND),
    ("run.resumed", line("run", "demo", {"state": "pending", "resumed_at": 1.0, "resumes": 1}), GROUND),
    (
        "run.waiting",
        line("run", "demo", {"state": "running", "waits_for": "API away", "goes_on": False}),
        GROUND,
    ),
    (
        "run.waiting",
        line("run", "demo", {"state": "running", "waits_for": "rank 0 is at step 5 by its own log", "goes_on": True}),
        GROUND,
    ),
    ("run.mode_changed", line("mode", "demo", {"mode": "ask"}), GROUND),
    ("run.paused", line("paused", "demo", why="maintenance"), GROUND),
    ("run.unpaused", line("unpaused", "demo"), GROUND),
    ("automation.paused", line("paused", "everything", run=""), NOBODY),
    ("automation.unpaused", line("unpaused", "everything", run=""), NOBODY),
    ("run.stop_asked", line("request", "demo-stop", {"kind": "stop"}, why="tomorrow"), GROUND),
    ("run.throughput_fell", line("throughput", "demo/1", {"attempt": 1, "step": 40, "ratio": 1.5}), GROUND),
    ("attempt.planned", line("attempt", "demo/1", to_row(an_attempt())), GROUND),
    ("attempt.submitted", line("attempt", "demo/1", {"submitted_at": 1.0}), GROUND),
    ("attempt.applied", line("attempt", "demo/1", {"applied_at": 1.0, "submitted_at": 1.0}), GROUND),
    ("attempt.running", line("attempt", "demo/1", {"running_at": 1.0, "nodes": "[]"}), GROUND),
    ("attempt.training", line("attempt", "demo/1", {"first_step": 1, "first_step_at": 1.0}), GROUND),
    ("attempt.ended", line("attempt", "demo/1", {"ended_at": 2.0, "outcome": "node_lost"}), GROUND),
    ("incident.opened", line("incident", "demo-a1-i1", to_row(INCIDENT), why="pod-failed"), GROUND),
    ("incident.restarted_in_place", line("incident", "demo-a1-r1", to_row(IN_PLACE), why=IN_PLACE.why), GROUND),
    ("incident.told", line("incident", "demo-a1-n1", to_row(LAGS), why=LAGS.why), GROUND),
    ("incident.over", line("incident", "demo-a1-n1", {"over_at": 1030.0}), GROUND),
    (None, line("incident", "demo-a1-n1", {"over_at": None}), GROUND),
    ("incident.diagnosed", line("incident", "demo-a1-i1", {"fault_class": "node_lost"}), GROUND),
    ("incident.resumed", line("incident", "demo-a1-i1", {"resumed_at": 99.0}), GROUND),
    ("incident.decided", line("incident", "demo-a1-i1", {"action": "new-attempt", "why": "x"}), GROUND),
    ("action.planned", line("action", ACTION.id, to_row(ACTION), why="lost"), GROUND),
    ("action.recorded", line("action", ACTION.id, {**to_row(ACTION), "state": "recorded"}), GROUND),
    ("action.waiting", line("action", ACTION.id, {**to_row(ACTION), "state": "waiting"}), GROUND),
    ("action.done", line("action", ACTION.id, {"state": "done", "why": "lost [node-1 is quarantined]"}), GROUND),
    ("action.refused", line("action", ACTION.id, {"state": "refused", "why": "lost [denied]"}), GROUND),
    ("action.done", line("action", "monitor/local/node-1/Ready/0-quarantine", why="done", run="monitor/local"), NOBODY),
    ("approval.asked", line("approval", ASKED.id, to_row(ASKED), why=ASKED.question), ON_APPROVAL),
    ("approval.asked", line("approval", ASKED.id, {"nodes": 3}, run="monitor/local"), replace(NOBODY, approval=ASKED)),
    ("approval.answered", line("approval", ASKED.id, {"state": "denied", "answered_by": "ann"}), ON_APPROVAL),
    ("approval.expired", line("approval", ASKED.id, {"state": "expired"}), ON_APPROVAL),
    ("verdict.given", line("verdict", "local/node-1", to_row(VERDICT), run=""), NOBODY),
    (None, line("verdict", "local/node-1", to_row(replace(VERDICT, verdict=VerdictWord.PASS)), run=""), NOBODY),
    ("node.quarantined", line("node", "local/node-1", to_row(NODE)), GROUND),
    ("node.released", line("node", "local/node-1", to_row(replace(NODE, state="schedulable"))), GROUND),
    ("node.testing", line("node", "local/node-1", to_row(replace(NODE, state="testing"))), GROUND),
    ("node.unknown", line("node", "local/node-1", to_row(replace(NODE, state="unknown"))), GROUND),
    ("finding.opened", line("finding", FINDING.id, to_row(FINDING), why=FINDING.why, run=""), NOBODY),
    ("finding.closed", line("finding", FINDING.id, {"closed_at": 9.0}, why="no longer seen", run=""), NOBODY),
    (None, line("lease", "demo", {"fencing": 2}, why="takes over"), GROUND),
    (None, line("checkpoint", "/x/step-20", why="pass"), GROUND),
    (None, line("request", "demo-stop", {"done_at": 1.0}), GROUND),
    (None, line("attempt", "demo/1", {"resume_path": "x"}), GROUND),
    (None, line("something-newer", "x"), GROUND),
]


@pytest.mark.parametrize(
    ("kind", "data", "run", "said"),
    [
        ("paused", {}, "demo", "demo: run paused by ann@desk (os-user): enough"),
        ("mode", {"mode": "ask"}, "demo", "demo: run mode changed by ann@desk (os-user): enough"),
        ("request", {"kind": "stop"}, "demo", "demo: run stop asked by ann@desk (os-user): enough"),
        ("run", {"state": "pending", "resumed_at": 1.0}, "demo", "demo: run resumed by ann@desk (os-user): enough"),
        (
            "node",
            {"node": "node-1", "state": "quarantined"},
            "",
            "node-1: node quarantined by ann@desk (os-user): enough",
        ),
    ],
)
def test_an_event_of_what_a_person_did_says_who(kind: str, data: Any, run: str, said: str) -> None:
    row = replace(line(kind, "x", data, why="enough", run=run), by=a_person("ann@desk"))
    event = event_of(row, GROUND if run else NOBODY)
    assert event is not None
    assert event.payload["message"] == said
    assert [event.payload[name] for name in ("by", "known_by", "claim")] == ["ann@desk", "os-user", ""]
    ours = event_of(replace(row, by=None), GROUND if run else NOBODY)
    assert ours is not None
    assert [ours.payload[name] for name in ("by", "known_by", "claim", "who")] == [""] * 4


def test_the_event_of_an_answer_has_who_gave_it_also_where_an_older_version_wrote_it_down() -> None:
    row = line("approval", ASKED.id, {"state": "approved", "why": "spare"})
    for by, said in ((a_person("ann@desk"), "ann@desk (os-user)"), (None, "ann (unverified)")):
        ground = replace(GROUND, approval=replace(ASKED, state="approved", answered_by="ann", by=by))
        event = event_of(replace(row, by=by or UNVERIFIED), ground)
        assert event is not None
        assert event.payload["message"] == f"demo: {said} answered, approved: spare"


@pytest.mark.parametrize(
    ("name", "row", "ground"), LINES, ids=lambda item: getattr(item, "data", None) and str(item.kind)
)
def test_each_line_is_its_event_or_none(name: str | None, row: HistoryRow, ground: EventGround) -> None:
    event = event_of(row, ground)
    if name is None:
        assert event is None
        return
    assert event is not None
    assert event.name == f"primus.{name}"
    assert set(event.payload) == set(FIELDS)
    assert event.payload["schema_version"] == SCHEMA_VERSION
    assert event.payload["cluster"] == event.place.cluster or event.place.cluster == ""
    assert event.payload["message"]
    assert event.payload["command"].startswith("primus ")
    assert "None" not in event.payload["message"]
    json.dumps(event.payload, allow_nan=False)


def told(kind: str, subject: str, data: Any, ground: EventGround = GROUND, **more: Any) -> Any:
    event = event_of(line(kind, subject, data, **more), ground)
    assert event is not None
    return event


def test_a_decision_tells_everything_a_message_needs() -> None:
    event = told("incident", INCIDENT.id, {"action": "new-attempt"})
    payload = event.payload
    assert event.place.id == "primus.run.local.demo"
    assert [place.id for place in event.nodes] == ["primus.node.local.node-1"]
    assert (payload["run"], payload["attempt"], payload["incident"]) == ("demo", 1, "demo-a1-i1")
    assert (payload["class"], payload["action"]) == ("node_lost", "new-attempt")
    assert payload["culprits"] == [{"node": "node-1", "rank": 1}]
    assert payload["link"] == GROUND.link
    assert payload["command"] == "primus status demo"
    assert payload["message"] == (
        "demo: node_lost (0.98), blamed: node-1 (rank 1); new-attempt: a node is lost, and the budget allows it"
    )


def test_an_incident_that_is_opened_tells_no_later_word() -> None:
    payload = told("incident", INCIDENT.id, to_row(an_incident())).payload
    assert (payload["class"], payload["action"], payload["would_change"]) == (None, None, "")
    assert payload["evidence"] == ["node-1 is not ready"]


def test_a_question_comes_with_the_command_that_answers_it() -> None:
    payload = told("approval", ASKED.id, to_row(ASKED), ON_APPROVAL).payload
    assert payload["command"] == f'primus approve {ASKED.id} --why "..."'
    assert payload["question"] == "take 3 nodes out?"
    assert payload["expires_at"] == "1970-01-01T01:16:43.000Z"
    assert payload["class"] == "node_lost"


def test_a_run_that_failed_tells_of_what() -> None:
    payload = told("run", "demo", {"state": "failed"}, why="the budget is spent").payload
    assert (payload["class"], payload["why"]) == ("node_lost", "the budget is spent")
    assert payload["command"] == 'primus resume demo --why "..."'


def test_a_node_is_a_resource_of_its_own() -> None:
    event = told("node", "local/node-1", to_row(NODE), why="lost")
    assert event.place.id == "primus.node.local.node-1"
    assert event.payload["message"] == "demo: node quarantined: lost"
    paused = event_of(line("paused", "everything", run=""), NOBODY)
    assert paused is not None
    assert paused.place.id == "primus.cluster"


def test_long_evidence_is_cut() -> None:
    long = replace(INCIDENT, evidence=tuple("x" * 9000 for _ in range(90)))
    ground = replace(GROUND, story=replace(STORY, incidents=(long,)))
    payload = told("incident", INCIDENT.id, {"action": "new-attempt"}, ground).payload
    assert (len(payload["evidence"]), len(payload["evidence"][0])) == (10, 500)


@pytest.mark.parametrize("name", sorted({name for name, *_ in LINES if name}))
def test_every_event_is_documented(name: str) -> None:
    assert f"`primus.{name}`" in DOCUMENT


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_is_documented(name: str) -> None:
    assert f"| `{name}` |" in DOCUMENT


@pytest.mark.parametrize("state", RunState)
def test_every_state_of_a_run_is_an_event(state: RunState) -> None:
    assert told("run", "demo", {"state": str(state)}).name == f"primus.run.{str(state).replace('-', '_')}"


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5)
NAMES = st.sampled_from([*FIELDS, "state", "verdict", "planned_at", "ended_at", "fault_class", "signal", "reasons"])
KINDS = [row.kind for _, row, _ in LINES]


@given(
    st.sampled_from(KINDS),
    st.text(),
    st.text(),
    st.dictionaries(NAMES, JSON) | st.text(),
    st.sampled_from([GROUND, NOBODY]),
)
def test_no_line_makes_it_stumble(kind: str, subject: str, why: str, data: Any, ground: EventGround) -> None:
    event = event_of(line(kind, subject, data, why), ground)
    if event is not None:
        assert set(event.payload) == set(FIELDS)
        json.dumps(event.payload, allow_nan=False)


def test_who_lags_is_told_in_a_line_and_that_it_is_well_again_in_another() -> None:
    lags = event_of(line("incident", LAGS.id, to_row(LAGS), why=LAGS.why), GROUND)
    well = event_of(line("incident", LAGS.id, {"over_at": 1030.0}), GROUND)
    assert lags is not None
    assert well is not None
    assert lags.payload["message"] == f"demo: straggler: {LAGS.why}"
    assert lags.payload["culprits"] == [{"node": "node-1", "rank": 1}]
    assert well.payload["message"] == f"demo: slow-rank is over: {LAGS.evidence[0]}"
