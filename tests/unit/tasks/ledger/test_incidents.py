"""What reconciling reads of the ledger, on each kind of database."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from profiles.errors import NotFound
from profiles.vocabulary import Action, Mode, NodeAction, RunState, VerdictWord
from tasks.ledger.ledger import Ledger
from tests.support.builders.ledgers import THERE, Clock, a_run, an_attempt, an_incident, driven, nobody_knows
from workflows.model.incidents import fact_of
from workflows.model.records import (
    ActionRecord,
    ApprovalRecord,
    IncidentRecord,
    MarkRecord,
    RequestRecord,
    VerdictRecord,
)
from workflows.model.runs import Fate, FindingRecord

pytest_plugins = ["tests.support.servers.ledger_fixtures"]

DECIDED = replace(
    an_incident(), action=Action.NEW_ATTEMPT, why="the node is gone", would_change="a living node", charged=True
)
ACTIONS = (
    ActionRecord("i-drain-node-1", "demo", DECIDED.id, NodeAction.DRAIN, "node-1", "planned", "gone", 1003.0),
    ActionRecord("i-new-attempt", "demo", DECIDED.id, Action.NEW_ATTEMPT, "", "waiting", "gone", 1003.0),
)
QUESTION = ApprovalRecord("i-approval", "demo", DECIDED.id, "Drain node-1?", "waiting", 1003.0, 2003.0)


def test_a_decision_is_written_whole_and_twice_is_once(ledger: Ledger) -> None:
    fencing = driven(ledger)
    ledger.open_incident(fencing, an_incident())
    for _ in range(2):
        assert ledger.decide(fencing, DECIDED, ACTIONS, QUESTION) == DECIDED
    story = ledger.story("demo")
    assert (story.incidents, story.actions, story.approvals) == ((DECIDED,), ACTIONS, (QUESTION,))
    assert story.open_incident is None


def test_a_decision_about_an_unknown_incident_leaves_nothing_behind(ledger: Ledger) -> None:
    fencing = driven(ledger)
    before = ledger.story("demo")
    with pytest.raises(NotFound, match=DECIDED.id):
        ledger.decide(fencing, DECIDED, ACTIONS, QUESTION)
    assert ledger.story("demo") == before


def seen(signal: str, number: int = 1, **more: object) -> IncidentRecord:
    return replace(an_incident(number), signal=signal, fact=fact_of("demo", 1, signal), **more)  # type: ignore[arg-type]


def noticed(at: float) -> tuple[MarkRecord, ...]:
    return (MarkRecord("demo", 1, "detected", at, "seen"),)


def test_two_observers_at_once_write_one_incident(ledger: Ledger, ledger_url: str) -> None:
    fencing, writers = driven(ledger), 6
    together = threading.Barrier(writers)

    def write(place: int) -> IncidentRecord:
        own = Ledger(ledger_url)
        own.runs()  # opened: only the write itself is left
        together.wait(30)
        signal = "pod-failed" if place % 2 else "attempt-failed"
        record = seen(signal, detected_at=1003.0 + place)
        try:
            return own.open_incident(None if place % 2 else fencing, record, noticed(1003.0 + place))
        finally:
            own.close()

    with ThreadPoolExecutor(writers) as pool:
        found = list(pool.map(write, range(writers)))
    story = ledger.story("demo")
    assert story.incidents == (found[0],)
    assert set(found) == {found[0]}, "everybody has the same one"
    assert [mark.at for mark in story.marks] == [found[0].detected_at], "and what was noticed counts once"
    told = [line for line in ledger.history("demo") if line.kind == "incident"]
    assert len(told) == 1


def test_many_facts_at_once_lose_none_and_have_numbers_without_gaps(ledger: Ledger, ledger_url: str) -> None:
    driven(ledger)
    writers = 6
    together = threading.Barrier(writers)

    def write(place: int) -> str:
        own = Ledger(ledger_url)
        own.runs()
        together.wait(30)
        fact = fact_of("demo", 1, "slow-rank", who=("node-1", place))
        record = replace(an_incident(), id="demo-a1-n1", signal="slow-rank", action=Action.NONE, fact=fact)
        try:
            return own.open_incident(None, record).id
        finally:
            own.close()

    with ThreadPoolExecutor(writers) as pool:
        found = sorted(pool.map(write, range(writers)))
    assert found == [f"demo-a1-n{number}" for number in range(1, writers + 1)]


def test_a_second_observer_takes_over_what_it_finds_later_decided_or_not(ledger: Ledger) -> None:
    fencing = driven(ledger)
    first = ledger.open_incident(fencing, seen("pod-failed"), noticed(1003.5))
    assert ledger.open_incident(None, seen("pods-gone", 2), noticed(1009.0)) == first
    decided = ledger.decide(fencing, replace(first, action=Action.NEW_ATTEMPT, why="w"), (), None)
    assert ledger.open_incident(None, seen("attempt-failed", 2), noticed(1010.0)) == decided
    assert ledger.story("demo").incidents == (decided,)
    assert [mark.at for mark in ledger.marks("demo")] == [1003.5]


def test_what_else_is_seen_while_nothing_was_decided_belongs_to_what_waits(ledger: Ledger) -> None:
    fencing = driven(ledger)
    hung = ledger.open_incident(fencing, seen("hang"))
    note = replace(seen("slow-gang"), id="demo-a1-n1", action=Action.NONE)
    assert ledger.open_incident(fencing, note).id == "demo-a1-n1"
    assert ledger.open_incident(None, seen("attempt-failed", 2)) == hung
    ledger.decide(fencing, replace(hung, action=Action.NONE, why="w"), (), None)
    assert ledger.open_incident(None, seen("attempt-failed", 1)).id == "demo-a1-i2", "a fact of its own, and an id"
    other = replace(seen("pod-failed"), id="demo-a2-i1", attempt=2, fact=fact_of("demo", 2, "pod-failed"))
    assert ledger.open_incident(fencing, other) == other


def test_an_incident_of_a_program_that_knew_no_facts_is_taken_over_by_its_id(ledger: Ledger) -> None:
    fencing = driven(ledger)
    ledger.plan_attempt(fencing, an_attempt())
    old = replace(an_incident(), id="demo-a1-r1", signal="rank-failed", action=Action.RESTART_IN_PLACE)
    ledger.open_incident(fencing, old)
    again = replace(old, fact=fact_of("demo", 1, "rank-failed", incarnation=2))
    assert ledger.open_incident(fencing, again) == old
    assert ledger.story("demo").incidents == (old,)


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
