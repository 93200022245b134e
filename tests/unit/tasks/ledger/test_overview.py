"""Reading over all runs at once says the same as every story by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flows.decisions.views.status import incident_row
from profiles.vocabulary import Action, FaultClass, NodeAction, RunState
from tasks.ledger.ledger import Ledger
from tests.support.builders.ledgers import HERE, Clock, a_person, a_run, an_attempt, an_incident, driven, nobody_knows
from workflows.model.records import ActionRecord, ApprovalRecord, NodeRecord, StepRow
from workflows.model.runs import IncidentQuery

pytest_plugins = ["tests.support.servers.ledger_fixtures"]


def a_story(ledger: Ledger, name: str, attempts: int, *, begun: float, state: RunState = RunState.RUNNING) -> int:
    """A run of so many attempts, an incident between each two."""
    ledger.open_run(a_run(name, created_at=begun))
    fencing = ledger.acquire(name, HERE, begun, nobody_knows).fencing
    for number in range(1, attempts + 1):
        at = begun + 10.0 * number
        ledger.plan_attempt(fencing, an_attempt(number, name, last_step=100 * number))
        ledger.update_attempt(fencing, name, number, first_step_at=at)
        if number < attempts:
            told: dict[str, Any] = {"fault_class": FaultClass.FABRIC, "action": Action.NEW_ATTEMPT, "why": "moved"}
            incident = an_incident(number, name, **told)
            ledger.open_incident(fencing, replace(incident, attempt=number, at=at + 8.0, detected_at=at + 9.0))
    ended = begun + 100.0 if state is not RunState.RUNNING else None
    ledger.set_run_state(name, fencing, state, f"{state} here", ended)
    return fencing


def test_runs_tell_what_their_stories_tell(ledger: Ledger) -> None:
    for index, attempts in enumerate((3, 0, 1)):
        a_story(ledger, f"r{index}", attempts, begun=1000.0 + index, state=list(RunState)[index])
    lines = ledger.run_lines()
    assert [line.name for line in lines] == ["r0", "r1", "r2"] == ledger.run_names()
    for line in lines:
        story = ledger.story(line.name)
        newest = story.attempt
        assert (line.attempts, line.step) == (len(story.attempts), newest.last_step if newest else None)
        assert (line.state, line.why, line.created_at) == (story.run.state, story.run.why, story.run.created_at)


def test_runs_are_filtered_and_the_newest_are_kept(ledger: Ledger) -> None:
    states = (RunState.SUCCEEDED, RunState.RUNNING, RunState.FAILED, RunState.RUNNING)
    for index, state in enumerate(states):
        a_story(ledger, f"r{index}", 1, begun=1000.0 * (index + 1), state=state)
    names = lambda **more: [line.name for line in ledger.run_lines(**more)]  # noqa: E731
    assert names(limit=2) == ["r2", "r3"]
    assert names(states=(RunState.RUNNING,)) == ["r1", "r3"]
    assert names(states=(RunState.RUNNING, RunState.FAILED), limit=2) == ["r2", "r3"]
    assert names(since=1101.0) == ["r1", "r2", "r3"], "r0 had ended before"
    for run, owner, tags in (("r0", "ada", {"team": "a_b"}), ("r2", "ada", {"team": "a_b", "x": ""}), ("r3", "bo", {})):
        ledger.set_tags(run, owner, tags)
    assert names(owner="ada") == ["r0", "r2"]
    assert names(owner="Ada") == names(owner="bo", tags={"team": "a_b"}) == names(tags={"team": "aXb"}) == []
    assert names(tags={"team": "a_b"}) == ["r0", "r2"]
    assert names(tags={"team": "a_b"}, limit=1) == names(tags={"team": "a_b", "x": ""}) == ["r2"]
    assert [(line.owner, line.tags) for line in ledger.run_lines(limit=2)] == [
        ("ada", {"team": "a_b", "x": ""}),
        ("bo", {}),
    ]


def test_incidents_tell_what_their_stories_tell(ledger: Ledger) -> None:
    a_story(ledger, "r0", 3, begun=1000.0)
    a_story(ledger, "r1", 2, begun=1015.0, state=RunState.SUCCEEDED)
    lines, total = ledger.incident_lines(IncidentQuery())
    assert total == len(lines) == 3
    assert [line.incident.detected_at for line in lines] == sorted(line.incident.detected_at for line in lines)
    for line in lines:
        story = ledger.story(line.incident.run)
        [mine] = [item for item in story.incidents if item.id == line.incident.id]
        assert line.incident == mine
        assert incident_row(mine)["resumed_after_seconds"] == 2.0
        assert line.run_state is story.run.state


@pytest.mark.parametrize(
    ("query", "ids", "total"),
    [
        (IncidentQuery(limit=1), ["r1-a1-i1"], 3),
        (IncidentQuery(run="r0"), ["r0-a1-i1", "r0-a1-i2"], 2),
        (IncidentQuery(run="r0", limit=1), ["r0-a1-i2"], 2),
        (IncidentQuery(since=1025.0), ["r0-a1-i2", "r1-a1-i1"], 2),
        (IncidentQuery(fault_class="fabric"), ["r0-a1-i1", "r0-a1-i2", "r1-a1-i1"], 3),
        (IncidentQuery(fault_class="data"), [], 0),
        (IncidentQuery(run="nobody"), [], 0),
    ],
)
def test_incidents_are_filtered_and_the_newest_are_kept(
    ledger: Ledger, query: IncidentQuery, ids: list[str], total: int
) -> None:
    a_story(ledger, "r0", 3, begun=1000.0)
    a_story(ledger, "r1", 2, begun=1015.0)
    lines, found = ledger.incident_lines(query)
    assert ([line.incident.id for line in lines], found) == (ids, total)


def test_an_incident_is_open_until_a_step_follows_or_its_run_ends(ledger: Ledger) -> None:
    fencing = a_story(ledger, "r0", 1, begun=1000.0)
    ledger.open_incident(fencing, an_incident(1, "r0"))
    opened = lambda: [line.incident.id for line in ledger.incident_lines(IncidentQuery(open_only=True))[0]]  # noqa: E731
    assert opened() == ["r0-a1-i1"], "not decided yet"
    ledger.update_incident(fencing, "r0", "r0-a1-i1", action=Action.NEW_ATTEMPT)
    assert opened() == ["r0-a1-i1"], "no step yet"
    ledger.plan_attempt(fencing, an_attempt(2, "r0"))
    assert opened() == ["r0-a1-i1"], "planned is not back"
    ledger.update_attempt(fencing, "r0", 2, first_step_at=2000.0)
    assert opened() == []
    ledger.open_incident(fencing, replace(an_incident(2, "r0"), attempt=2, action=Action.NONE))
    assert opened() == [], "nothing is wrong"
    ledger.open_incident(fencing, replace(an_incident(3, "r0"), attempt=2))
    assert opened() == ["r0-a1-i3"]
    ledger.set_run_state("r0", fencing, RunState.STOPPED, "enough", 3000.0)
    assert opened() == []


def test_an_incident_of_no_run_is_told_and_is_not_open(ledger: Ledger) -> None:
    ledger.open_incident(None, an_incident(1, "monitor/local"))
    [line], _ = ledger.incident_lines(IncidentQuery())
    assert (line.run_state, line.is_open) == (None, False)


def test_questions_come_with_what_an_answer_decides_about(ledger: Ledger) -> None:
    fencing = a_story(ledger, "r0", 1, begun=1000.0)
    asked = ApprovalRecord("i-approval", "r0", "i", "really?", "waiting", 5.0, 9.0)
    ledger.ask(fencing, asked)
    ledger.plan_action(fencing, ActionRecord("i-q", "r0", "i", NodeAction.QUARANTINE, "node-1", "planned", "w", 1.0))
    ledger.plan_action(fencing, ActionRecord("j-q", "r0", "j", NodeAction.QUARANTINE, "node-2", "planned", "w", 1.0))
    about_nodes = ApprovalRecord("monitor/c-1", "monitor/c", "monitor/c/p", "three?", "waiting", 6.0, 9.0)
    ledger.ask(None, about_nodes)
    waits = ActionRecord("m-q", "monitor/c", "m", NodeAction.QUARANTINE, "node-3", "waiting", "w", 1.0)
    ledger.plan_action(None, waits)
    first, second = ledger.waiting_approvals()
    assert (first.approval, first.run_state, [item.target for item in first.actions]) == (
        asked,
        RunState.RUNNING,
        ["node-1"],
    )
    assert (second.approval, second.run_state, second.actions) == (about_nodes, None, (waits,))
    ledger.answer("i-approval", True, a_person(), "yes", 6.0)
    assert [line.approval.id for line in ledger.waiting_approvals()] == ["monitor/c-1"]


def test_a_cordon_is_ours_until_the_node_is_given_back(ledger: Ledger) -> None:
    fencing = driven(ledger)  # of a run on `local`
    one = ActionRecord("d-1", "demo", "i", NodeAction.DRAIN, "node-1", "done", "w", 10.0)
    ledger.plan_action(fencing, one)
    by_hand = replace(one, id="d-2", run="people/local", planned_at=11.0)
    ledger.plan_action(None, by_hand)
    ledger.plan_action(None, replace(one, id="d-3", run="people/elsewhere"))
    ledger.plan_action(None, replace(one, id="d-4", run="people/local", kind=NodeAction.QUARANTINE))
    ledger.plan_action(None, replace(one, id="d-5", run="people/local", state="refused"))
    found = ledger.standing_drains("local", "node-1", "people/local")
    assert sorted(item.id for item in found) == ["d-1", "d-2"]
    ledger.set_node(NodeRecord("local", "node-1", "schedulable", "back", 12.0))
    assert ledger.standing_drains("local", "node-1", "people/local") == []
    assert [item.why for item in ledger.node_history("local", "node-1")] == ["back"]


@pytest.mark.parametrize("count", [1, 5, 300, 900])
def test_the_newest_steps_without_the_old_ones(ledger: Ledger, count: int) -> None:
    fencing = a_story(ledger, "r0", 1, begun=1000.0)
    rows = [StepRow(number, 2000.0 + number, None, 1.0 / number) for number in range(1, 800)]
    ledger.add_steps("r0", 1, rows, fencing=fencing)
    assert ledger.newest_steps("r0", 1, count) == rows[-count:]
    assert ledger.newest_steps("r0", 2, count) == []


def test_the_newest_lines_of_the_history(ledger: Ledger, clock: Clock) -> None:
    for number in range(5):
        clock.now = 1000.0 + number
        ledger.open_run(a_run(f"r{number}"))
    whole = list(ledger.history())
    assert [line.run for line in whole] == [f"r{number}" for number in range(5)]
    assert list(ledger.history(limit=2)) == whole[-2:]
    assert list(ledger.history(limit=9)) == whole
    assert list(ledger.history(since=1003.0)) == whole[3:]
    assert list(ledger.history(since=1002.0, limit=1)) == whole[-1:]
    assert list(ledger.history("r1", limit=3)) == whole[1:2]
    assert list(ledger.history(since=2000.0)) == []


def test_a_pause_of_everything_stands_in_every_living_run(ledger: Ledger) -> None:
    a_story(ledger, "old", 1, begun=1000.0, state=RunState.SUCCEEDED)
    a_story(ledger, "young", 2, begun=1001.0)
    a_story(ledger, "fresh", 0, begun=1002.0)
    before = {name: ledger.changes(name) for name in ("old", "young", "fresh")}
    ledger.pause(None, "fabric (me@here)")
    ledger.pause(None, "again")
    assert ledger.everything_paused() == "fabric (me@here)"
    assert {name: ledger.changes(name) - was for name, was in before.items()} == {"old": 0, "young": 1, "fresh": 1}
    marks = {name: [(mark.kind, mark.attempt) for mark in ledger.marks(name)] for name in before}
    assert marks == {"old": [], "young": [("paused", 2)], "fresh": [("paused", 0)]}
    assert [line.run for line in ledger.history() if line.kind == "paused"] == ["", "fresh", "young"]
    ledger.unpause(None, "done")
    assert ledger.everything_paused() is None
    assert [mark.kind for mark in ledger.marks("young")] == ["paused", "unpaused"]
