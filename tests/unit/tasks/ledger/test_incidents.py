from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from profiles.errors import NotFound
from profiles.vocabulary import Action, NodeAction
from tasks.ledger.ledger import Ledger
from tests.support.builders.ledgers import an_attempt, an_incident, driven
from workflows.model.incidents import fact_of
from workflows.model.records import ActionRecord, ApprovalRecord, IncidentRecord, MarkRecord

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
