"""What reconciling reads of the ledger, on each kind of database."""

from __future__ import annotations

from profiles.vocabulary import Action, Mode, RunState, VerdictWord
from tasks.ledger.ledger import Ledger
from tests.support.builders.ledgers import THERE, Clock, a_run, an_attempt, an_incident, driven, nobody_knows
from workflows.model.records import ApprovalRecord, RequestRecord, VerdictRecord
from workflows.model.runs import Fate, FindingRecord

pytest_plugins = ["tests.support.servers.ledger_fixtures"]


def test_gangs_are_open_runs_of_a_cluster_with_their_newest_attempt(ledger: Ledger) -> None:
    number = driven(ledger)
    ledger.plan_attempt(number, an_attempt())
    ledger.plan_attempt(number, an_attempt(2, submitted_at=1003.0))
    changes = {"applied_at": 1004.0, "running_at": 1005.0, "last_step_at": 1009.0}
    ledger.update_attempt(number, "demo", 2, **changes)
    ledger.open_run(a_run("bare", mode=Mode.OBSERVE, paused=True))
    ledger.open_run(a_run("elsewhere", cluster="big"))
    ledger.open_run(a_run("over", state=RunState.FAILED))
    found = {gang.run.name: gang for gang in ledger.gangs("local", nobody_knows)}
    assert set(found) == {"demo", "bare"}
    demo, bare = found["demo"], found["bare"]
    assert (demo.attempt, demo.submitted_at, demo.applied_at, demo.heard_at) == (2, 1003.0, 1004.0, 1009.0)
    assert (demo.ended_at, demo.handled, demo.paused, demo.mode) == (None, False, False, Mode.ACT)
    assert demo.run.lease is not None
    assert (bare.attempt, bare.run.lease, bare.paused, bare.mode) == (0, None, True, Mode.OBSERVE)


def test_what_is_dealt_with_is_told_apart(ledger: Ledger) -> None:
    number = driven(ledger)
    ledger.plan_attempt(number, an_attempt())

    def handled() -> bool:
        return ledger.gangs("local", nobody_knows)[0].handled

    ledger.open_incident(number, an_incident(action=Action.NONE))
    assert not handled(), "it led to nothing"
    ledger.open_incident(number, an_incident(2))
    assert handled(), "nobody has decided yet"
    ledger.plan_attempt(number, an_attempt(2))
    assert not handled(), "that was the attempt before"
    ledger.request(RequestRecord("w", "demo", "wake", 1003.0))
    assert not handled()
    ledger.request(RequestRecord("s", "demo", "stop", 1003.0))
    assert handled(), "its driver clears away"
    ledger.finish_request(number, "demo", "s", 1004.0)
    assert not handled()


def test_fates_of_many_names_at_once(ledger: Ledger) -> None:
    number = driven(ledger)
    ledger.plan_attempt(number, an_attempt())
    ledger.update_attempt(number, "demo", 1, ended_at=1005.0)
    ledger.plan_attempt(number, an_attempt(2))
    ledger.open_run(a_run("over", cluster="big"))
    ledger.set_run_state("over", None, RunState.STOPPED, "", 1007.0)
    names = ["demo", "over", *(f"x{index}" for index in range(1200))]
    assert ledger.fates(names) == {
        "demo": Fate("local", None, {1: 1005.0, 2: None}, 1000.0),
        "over": Fate("big", 1007.0, {}, 1000.0),
    }
    ledger.resume_run("over", "once more", 1008.0)
    assert ledger.fates(["over"])["over"].ended_at is None
    assert ledger.fates([]) == {}


def test_questions_lapse_when_their_time_is_up(ledger: Ledger, clock: Clock) -> None:
    ledger.open_run(a_run())
    for number, until in enumerate((1010.0, 1020.0)):
        ledger.ask(None, ApprovalRecord(f"q{number}", "demo", "i", "?", "waiting", 1000.0, until))
    assert [item.id for item in ledger.lapsing(1010.0)] == ["q0"]
    ledger.expire("q0", 1010.0)
    assert ledger.lapsing(1010.0) == []


def test_a_pause_says_why(ledger: Ledger) -> None:
    assert ledger.everything_paused() is None
    ledger.pause(None, "night")
    assert ledger.everything_paused() == "night"


def test_cursors_and_verdicts_of_many_nodes(ledger: Ledger) -> None:
    for name in ("sweep/local", "sweep/local/a", "sweep/local/b", "sweep/local_/c", "beat/local"):
        ledger.move_cursor(name, 7, 1001.0)
    assert sorted(ledger.cursors("sweep/local/")) == ["a", "b"]
    for at, word in ((1.0, VerdictWord.FAIL), (2.0, VerdictWord.PASS)):
        ledger.add_verdict(VerdictRecord("local", "a", word, "sweep", at))
    ledger.add_verdict(VerdictRecord("local", "a", VerdictWord.FAIL, "gate", 3.0))
    ledger.add_verdict(VerdictRecord("big", "b", VerdictWord.FAIL, "sweep", 3.0))
    assert ledger.last_verdicts("local", "sweep", ["a", "b"]) == {"a": ("pass", 2.0)}


def test_what_came_of_a_finding_is_written_once(ledger: Ledger) -> None:
    ledger.acquire("demo", THERE, 1000.0, nobody_knows)
    found = FindingRecord("i", "local", "orphan", "JobSet/x", "x", "why", "delete it", 1.0, 1.0)
    ledger.open_finding(found)
    ledger.tell_finding("i", "it was deleted", 2.0)
    ledger.tell_finding("i", "it was deleted", 3.0)
    [kept] = ledger.findings("local")
    assert (kept.action, kept.last_at) == ("it was deleted", 2.0)
    assert [line.why for line in ledger.history() if line.kind == "finding"] == ["why", "it was deleted"]
