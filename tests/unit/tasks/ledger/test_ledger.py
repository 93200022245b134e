from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from flows.decisions.recovery.odds import restart_seconds
from profiles.errors import Conflict, NotFound, Permanent
from profiles.vocabulary import Action, FaultClass, Mode, NodeAction, RunState, VerdictWord
from tasks.ledger.ledger import Ledger
from tasks.ledger.story import acts_query
from tests.support.builders.ledgers import HERE, Clock, a_person, a_run, an_attempt, an_incident, driven
from workflows.model.attempt import Signal
from workflows.model.incidents import fact_of
from workflows.model.records import (
    ActionRecord,
    ApprovalRecord,
    CheckpointRecord,
    IncidentRecord,
    MarkRecord,
    RequestRecord,
    StepRow,
)

pytest_plugins = ["tests.support.servers.ledger_fixtures"]


def test_a_run_is_created_once_and_afterwards_found_as_it_stands(ledger: Ledger) -> None:
    first = a_run(resolved={"names": ["ä", "\u2028"], "deep": {"x": [1, 2.5, None, True]}})
    assert ledger.open_run(first) == first
    assert ledger.open_run(a_run(digest="other", why="again")) == first
    assert ledger.run("demo") == first
    assert ledger.run("unknown") is None
    later = ledger.open_run(a_run("later", created_at=2000.0))
    assert ledger.runs() == [first, later]


def test_state_and_mode_change_with_their_reason(ledger: Ledger) -> None:
    fencing = driven(ledger)
    ledger.set_run_state("demo", fencing, RunState.FAILED, "the budget is spent", ended_at=1200.0)
    record = ledger.set_mode("demo", Mode.OBSERVE)
    assert (record.state, record.why, record.ended_at) == (RunState.FAILED, "the budget is spent", 1200.0)
    assert record.mode is Mode.OBSERVE
    assert [(line.kind, line.why) for line in ledger.history("demo")][-2:] == [
        ("run", "the budget is spent"),
        ("mode", "mode observe"),
    ]


def test_only_an_ended_run_without_success_is_resumed_and_old_stop_requests_are_done_with(ledger: Ledger) -> None:
    fencing = driven(ledger)
    ledger.request(RequestRecord("demo-stop-1", "demo", "stop", 1100.0, "lunch"))
    with pytest.raises(Conflict, match="pending"):
        ledger.resume_run("demo", "fixed", 1300.0)
    ledger.set_run_state("demo", fencing, RunState.STOPPED, "asked", ended_at=1200.0)
    record = ledger.resume_run("demo", "fixed", 1300.0)
    assert (record.state, record.why, record.ended_at) == (RunState.PENDING, "fixed", None)
    assert (record.resumes, record.resumed_at) == (1, 1300.0)
    assert ledger.requests("demo") == []
    ledger.set_run_state("demo", fencing, RunState.SUCCEEDED, "done")
    with pytest.raises(Conflict, match="succeeded"):
        ledger.resume_run("demo", "again", 1400.0)


def test_requests_are_left_once_and_finished_once(ledger: Ledger) -> None:
    fencing = driven(ledger)
    asked = RequestRecord("demo-stop-1", "demo", "stop", 1100.0, "lunch")
    assert ledger.request(asked) == asked
    assert ledger.request(replace(asked, at=31.0)) == asked
    assert ledger.requests("demo") == [asked]
    done = ledger.finish_request(fencing, "demo", asked.id, 1150.0)
    assert ledger.requests("demo") == []
    assert ledger.requests("demo", open_only=False) == [done]
    with pytest.raises(NotFound, match="nobody"):
        ledger.request(RequestRecord("x", "nobody", "stop", 1.0))


def test_pausing_one_run_and_pausing_everything_do_not_undo_each_other(ledger: Ledger, clock: Clock) -> None:
    driven(ledger, "one")
    driven(ledger, "two")
    ledger.pause("one", "looking at it")
    assert (ledger.paused("one"), ledger.paused("two")) == (True, False)
    clock.now = 1010.0
    ledger.pause(None, "switch maintenance")
    assert (ledger.paused("one"), ledger.paused("two")) == (True, True)
    assert ledger.story("two").extra == {"everything_paused": "switch maintenance"}
    assert ledger.story("two").run.paused is False
    clock.now = 1020.0
    ledger.unpause(None)
    assert (ledger.paused("one"), ledger.paused("two")) == (True, False)
    ledger.unpause("one")
    assert ledger.paused("one") is False
    assert [(mark.kind, mark.at) for mark in ledger.marks("two")] == [("paused", 1010.0), ("unpaused", 1020.0)]


def test_pausing_twice_is_one_pause(ledger: Ledger, clock: Clock) -> None:
    driven(ledger)
    for now in (1010.0, 1011.0):
        clock.now = now
        ledger.pause("demo", "why")
        ledger.pause(None, "why")
    assert len(ledger.marks("demo")) == 1
    with pytest.raises(NotFound):
        ledger.pause("nobody", "why")


def test_attempts_are_planned_once_and_filled_in(ledger: Ledger) -> None:
    fencing = driven(ledger)
    planned = an_attempt(nodes=("node-0", "node-1"), avoid_nodes=("node-2",), max_resume_step=20)
    assert ledger.plan_attempt(fencing, planned) == planned
    assert ledger.plan_attempt(fencing, replace(planned, why="other")) == planned
    changed = ledger.update_attempt(
        fencing, "demo", 1, outcome=FaultClass.NODE_LOST, ended_at=1100.0, resume_proof=VerdictWord.PASS
    )
    assert changed == replace(planned, outcome="node_lost", ended_at=1100.0, resume_proof=VerdictWord.PASS)
    assert ledger.attempts("demo") == [changed]
    with pytest.raises(NotFound, match="demo/2"):
        ledger.update_attempt(fencing, "demo", 2, last_step=1)
    with pytest.raises(Permanent, match="lats_step"):
        ledger.update_attempt(fencing, "demo", 1, lats_step=1)


def test_a_loss_that_is_no_number_survives_and_progress_is_no_history(ledger: Ledger) -> None:
    fencing = driven(ledger)
    ledger.plan_attempt(fencing, an_attempt())
    before = len(list(ledger.history("demo")))
    for loss in (math.nan, math.inf, 0.1):
        found = ledger.update_attempt(fencing, "demo", 1, loss=loss, last_step=5).loss
        assert found is not None
        assert repr(found) == repr(loss)
    assert len(list(ledger.history("demo"))) == before


def test_incidents_and_actions_tell_what_was_decided_and_why(ledger: Ledger) -> None:
    fencing = driven(ledger)
    seen = an_incident(culprits=(("node-1", 1), ("node-2", None)), evidence=("Xid 79\0", "\udcff"))
    opened = ledger.open_incident(fencing, seen)
    assert ledger.open_incident(None, replace(seen, signal="other")).signal == "pod-failed"
    assert ledger.incidents("demo") == [opened]
    decided = ledger.update_incident(
        fencing, "demo", seen.id, fault_class=FaultClass.GPU_HARDWARE, action=Action.NEW_ATTEMPT, why="Xid 79"
    )
    assert decided == replace(seen, fault_class=FaultClass.GPU_HARDWARE, action=Action.NEW_ATTEMPT, why="Xid 79")
    assert ledger.incidents(since=seen.detected_at + 1) == []
    planned = ActionRecord("i-q", "demo", seen.id, NodeAction.QUARANTINE, "node-1", "planned", "Xid 79", 1003.0)
    assert ledger.plan_action(fencing, planned) == planned
    assert ledger.plan_action(fencing, replace(planned, why="other")) == planned
    done = ledger.update_action(fencing, "demo", "i-q", state="done", done_at=1004.0)
    assert ledger.actions("demo") == ledger.actions() == [done]
    assert done == replace(planned, state="done", done_at=1004.0)


def test_a_question_is_over_when_what_it_asks_about_is(ledger: Ledger) -> None:
    fencing = driven(ledger)
    ledger.plan_attempt(fencing, an_attempt())
    seen = ledger.open_incident(fencing, an_incident())
    ledger.decide(fencing, replace(seen, action=Action.ASK, why="w"), (), replace(approval("q"), incident=seen.id))
    ledger.withdraw("demo", 1500.0, "taken back: the run has stopped")
    [found] = ledger.approvals("demo")
    assert (found.state, found.answered_at, found.why) == ("expired", 1500.0, "taken back: the run has stopped")
    ledger.withdraw("demo", 1600.0, "again")
    assert ledger.approvals("demo") == [found]


def test_what_a_person_was_asked_about_may_be_over_by_itself(ledger: Ledger) -> None:
    fencing = driven(ledger)
    ledger.plan_attempt(fencing, an_attempt())
    seen = ledger.open_incident(fencing, replace(an_incident(), fact=fact_of("demo", 1, Signal.HANG)))
    planned = ActionRecord("i-n", "demo", seen.id, Action.NEW_ATTEMPT, "", "waiting", "Xid 79", 1003.0)
    question = replace(approval("q"), incident=seen.id)
    asked = ledger.decide(fencing, replace(seen, action=Action.ASK, why="w", charged=True), (planned,), question)
    assert ledger.take_back(fencing, asked, 1500.0, "taken back: it trains again")
    [after], [found], [undone] = ledger.incidents("demo"), ledger.approvals("demo"), ledger.actions("demo")
    assert (after.action, after.charged, after.over_at, after.went_on) == (Action.NONE, False, 1500.0, True)
    assert (found.state, found.why, found.taken_back) == ("expired", "taken back: it trains again", True)
    assert (undone.state, undone.why) == ("refused", "Xid 79 [taken back: it trains again]")
    assert not ledger.take_back(fencing, asked, 1600.0, "again"), "nobody waits any more"
    ledger.plan_attempt(fencing, replace(an_attempt(), number=2))
    ledger.update_attempt(fencing, "demo", 2, first_step=1, first_step_at=2000.0)
    assert ledger.incidents("demo") == [after], "no later attempt ends it once more"
    again = replace(an_incident(), fact=fact_of("demo", 1, Signal.HANG, number=1))
    assert ledger.open_incident(fencing, again).id != seen.id, "the same in the same attempt is another incident"


def test_an_answer_that_came_first_stands(ledger: Ledger) -> None:
    fencing = driven(ledger)
    ledger.plan_attempt(fencing, an_attempt())
    seen = ledger.open_incident(fencing, an_incident())
    asked = ledger.decide(fencing, replace(seen, action=Action.ASK), (), replace(approval("q"), incident=seen.id))
    answer = ledger.answer("q", True, a_person(), "go on", 1400.0)
    assert not ledger.take_back(fencing, asked, 1500.0, "taken back: it trains again")
    assert (ledger.approvals("demo"), ledger.incidents("demo")) == ([answer], [asked])


def approval(name: str = "i-approval") -> ApprovalRecord:
    return ApprovalRecord(name, "demo", "i", "Repair node-1?", "waiting", 1000.0, 2000.0)


def test_an_incident_is_over_with_the_first_step_of_a_later_attempt(ledger: Ledger) -> None:
    fencing = driven(ledger)
    ledger.plan_attempt(fencing, an_attempt())
    ledger.update_attempt(fencing, "demo", 1, first_step=1, first_step_at=1002.0)
    ledger.open_incident(fencing, an_incident())
    ledger.update_attempt(fencing, "demo", 1, last_step=9)
    assert [item.resumed_at for item in ledger.incidents("demo")] == [None], "its own attempt ends nothing"
    ledger.plan_attempt(fencing, an_attempt(2))
    ledger.update_attempt(fencing, "demo", 2, ended_at=1004.0, outcome="image")
    assert [item.resumed_at for item in ledger.incidents("demo")] == [None], "one that never trained ends nothing"
    ledger.plan_attempt(fencing, an_attempt(3))
    ledger.update_attempt(fencing, "demo", 3, first_step=9, first_step_at=1007.5)
    ledger.open_incident(fencing, IncidentRecord("demo-a3-i1", "demo", 3, 1008.0, 1008.5, "pod-failed"))
    ledger.update_attempt(fencing, "demo", 3, first_step=9, first_step_at=1007.5)
    assert [item.resumed_at for item in ledger.incidents("demo")] == [1007.5, None]
    said = [row for row in ledger.history_after(0, 99) if row.kind == "incident" and "resumed_at" in row.data]
    assert [row.subject for row in said if "1007.5" in row.data] == ["demo-a1-i1"], "told once"
    assert restart_seconds(ledger.incidents("demo")) == 1007.5 - 1003.5


def test_a_question_is_asked_once_and_answered_once(ledger: Ledger) -> None:
    fencing = driven(ledger)
    assert ledger.ask(fencing, approval()) == approval()
    assert ledger.approvals(waiting_only=True) == [approval()]
    answered = ledger.answer("i-approval", True, a_person("ada"), "go", 1500.0)
    assert (answered.state, answered.answered_by, answered.answered_at) == ("approved", "ada", 1500.0)
    assert ledger.answer("i-approval", True, a_person("bob"), "me too", 1600.0) == answered
    with pytest.raises(Conflict, match="approved by ada"):
        ledger.answer("i-approval", False, a_person("bob"), "no", 1600.0)
    assert ledger.ask(fencing, approval()) == answered
    assert ledger.approval("i-approval") == answered
    assert ledger.approvals("demo", waiting_only=True) == []
    assert ledger.expire("i-approval", 9999.0) == answered
    with pytest.raises(NotFound):
        ledger.answer("other", True, a_person("ada"), "", 1.0)


def test_a_question_nobody_answered_in_time_cannot_be_answered_any_more(ledger: Ledger) -> None:
    ledger.ask(driven(ledger), approval())
    assert ledger.expire("i-approval", 1999.0).state == "waiting"
    with pytest.raises(Conflict, match="expired"):
        ledger.answer("i-approval", True, a_person("ada"), "too late", 2000.0)
    found = ledger.approval("i-approval")
    assert found is not None
    assert (found.state, found.answered_at) == ("expired", 2000.0)


def test_a_checkpoint_that_is_found_unchanged_again_adds_nothing(ledger: Ledger) -> None:
    fencing = driven(ledger)
    good = CheckpointRecord("demo", 20, "/c/step-20", 1, 1010.0, VerdictWord.PASS, "4 digests agree", 1 << 41, "primus")
    for record in (good, replace(good, at=1011.0), replace(good, at=1012.0, verdict=VerdictWord.FAIL, why="torn")):
        ledger.add_checkpoint(fencing, record)
    found = ledger.checkpoints("demo")
    assert [(record.at, record.verdict) for record in found] == [(1010.0, "pass"), (1012.0, "fail")]
    assert found[0] == good


def test_steps_are_stored_once_and_come_back_in_order(ledger: Ledger) -> None:
    fencing = driven(ledger)
    rows = [StepRow(step, 1000.0 + step / 10, 0.1, 2.0) for step in range(700)]
    assert ledger.add_steps("demo", 1, rows[:300], fencing=fencing) == 300
    assert ledger.add_steps("demo", 1, rows[200:], fencing=fencing) == 400
    assert ledger.add_steps("demo", 1, rows) == 0
    again = StepRow(650, 2000.0)
    assert ledger.add_steps("demo", 1, [again, again]) == 1
    assert ledger.add_steps("demo", 2, [rows[0]]) == 1
    assert ledger.add_steps("demo", 2, []) == 0
    assert ledger.steps("demo", 1) == [*rows, again]
    assert ledger.steps("demo") == [*rows, again, rows[0]]
    assert ledger.steps("demo", 1, since=1069.0) == [*rows[690:], again]
    assert ledger.steps("nobody") == []


def test_the_story_is_everything_about_one_run(ledger: Ledger) -> None:
    fencing = driven(ledger)
    driven(ledger, "other")
    ledger.plan_attempt(fencing, an_attempt(1))
    ledger.plan_attempt(fencing, an_attempt(2))
    ledger.open_incident(fencing, an_incident())
    mark = MarkRecord("demo", 1, "submitted", 1001.0)
    ledger.add_marks(fencing, [mark, mark])
    ledger.add_marks(None, [])
    ledger.ask(fencing, approval())
    ledger.request(RequestRecord("demo-wake-1", "demo", "wake", 1100.0))
    story = ledger.story("demo")
    assert story.run == ledger.run("demo")
    assert [attempt.number for attempt in story.attempts] == [1, 2]
    assert story.open_incident == story.incidents[-1] == an_incident()
    assert (story.marks, story.approvals, len(story.requests)) == ((mark,), (approval(),), 1)
    assert story.lease is not None
    assert (story.lease.fencing, story.lease.driver) == (fencing, HERE)
    with pytest.raises(NotFound, match="primus runs"):
        ledger.story("nobody")


def test_a_watcher_sees_every_write_about_its_run_and_no_other(ledger: Ledger) -> None:
    assert ledger.changes("demo") == 0
    fencing = driven(ledger)
    lease = ledger.lease("demo")
    assert lease is not None
    writes = [
        lambda: ledger.plan_attempt(fencing, an_attempt()),
        lambda: ledger.add_steps("demo", 1, [StepRow(1, 1.0)]),
        lambda: ledger.set_run_state("demo", fencing, RunState.RUNNING, "go"),
        lambda: ledger.pause(None, "all"),
        lambda: ledger.request(RequestRecord("r", "demo", "stop", 1.0)),
    ]
    for write in writes:
        before = ledger.changes("demo")
        write()
        assert ledger.changes("demo") > before
    before = ledger.changes("demo")
    ledger.renew(lease, 1001.0)
    driven(ledger, "other")
    assert ledger.changes("demo") == before


def test_history_is_every_write_in_order_and_can_begin_late(
    ledger: Ledger, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.ledger.story._HISTORY_PAGE", 10)
    fencing = driven(ledger)
    clock.now = 2000.0
    for number in range(1, 31):
        ledger.update_attempt(fencing, "demo", ledger.plan_attempt(fencing, an_attempt(number)).number)
    lines = list(ledger.history(since=1500.0))
    assert [line.subject for line in lines] == [f"demo/{number}" for number in range(1, 31)]
    assert {(line.kind, line.why, line.run) for line in lines} == {("attempt", "first", "demo")}
    assert lines[0].data["number"] == 1
    assert [line.kind for line in ledger.history("demo")][:2] == ["run", "lease"]
    assert list(ledger.history("other")) == []


def test_what_people_did_is_found_without_reading_what_we_did(tmp_path: Path) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.sqlite")
    ledger.open_run(a_run(), a_person())
    with ledger.database.reading() as transaction:
        asked = acts_query("demo").compile(transaction.connection, compile_kwargs={"literal_binds": False})
        rows = transaction.connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {asked}", tuple(asked.params.values())).all()
    assert "USING INDEX history_by_person (run=?)" in str(rows), rows
    assert [act.what for act in ledger.story("demo").acts] == ["train"]
