"""The outbox of events against a real Prefect server: what it takes, what it keeps, and what a lost one costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.decisions.views.approvals import approval_sheet
from flows.publishing import event_hook, outbox
from profiles.errors import Unavailable
from profiles.vocabulary import Action, FaultClass, RunState
from tasks.ledger.ledger import Ledger
from tasks.prefect.events import BEGIN_SECONDS, CURSOR, ConsoleServer, Outbox, event_id, place_before
from tests.support.builders.ledgers import Clock, a_person, a_run, an_attempt, an_incident, driven
from tests.support.running.waiting import patience
from workflows.model.events import Fall
from workflows.model.records import ApprovalRecord

pytest_plugins = ["tests.support.servers.ledger_fixtures"]
NOBODY = "http://127.0.0.1:9/api"
DEADLINE_SECONDS = patience(60.0)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Ledger]:
    """A ledger whose events nobody else's test has."""
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.sqlite")
    yield ledger
    ledger.close()


def told(ledger: Ledger, run: str) -> list[dict[str, Any]]:
    """What the server keeps of a run, in order."""
    wanted = {"filter": {"resource": {"id": [f"primus.run.local.{run}"]}, "order": "ASC"}, "limit": 50}
    with get_client(sync_client=True) as client:
        events = client.request("POST", "/events/filter", json=wanted).json()["events"]
    return [item for item in events if item["payload"]["ledger"] == ledger.identity()]


def until(holds: Callable[[], bool], box: Outbox) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        box.send()
        time.sleep(0.05)


def an_incident_happens(ledger: Ledger, run: str) -> None:
    fencing = driven(ledger, run)
    ledger.plan_attempt(fencing, an_attempt(run=run))
    incident = an_incident(run=run, culprits=(("node-1", 1),))
    ledger.open_incident(fencing, incident)
    changes = {"fault_class": FaultClass.NODE_LOST, "confidence": 0.98}
    ledger.update_incident(fencing, run, incident.id, **changes)
    ledger.update_incident(fencing, run, incident.id, action=Action.NEW_ATTEMPT, why="lost")
    ledger.set_run_state(run, fencing, RunState.SUCCEEDED, "all steps", 1010.0)


NAMES = [
    "run.opened",
    "attempt.planned",
    "incident.opened",
    "incident.diagnosed",
    "incident.decided",
    "run.succeeded",
]


def test_a_run_is_told_in_order_and_the_cursor_follows_what_the_server_kept(prefect_server: str, own: Ledger) -> None:
    run = f"r-{uuid4().hex[:8]}"
    an_incident_happens(own, run)
    box = outbox(own)
    assert box.send() == len(NAMES)
    assert own.cursor(CURSOR) is None, "taken is not kept yet"
    assert box.send() == 0
    until(lambda: len(told(own, run)) == len(NAMES), box)
    events = told(own, run)
    assert [
        item["event"].removeprefix("primus.") for item in sorted(events, key=lambda item: item["payload"]["seq"])
    ] == NAMES
    decided = next(item for item in events if item["event"] == "primus.incident.decided")
    assert decided["payload"]["class"] == "node_lost"
    assert decided["resource"]["primus.cluster"] == "local"
    assert {item["prefect.resource.id"] for item in decided["related"]} >= {
        "primus.node.local.node-1",
        "primus.cluster.local",
    }
    assert decided["id"] == str(event_id(own.identity(), decided["payload"]["seq"]))
    later = Outbox(own, box.tell, approval_sheet, now=lambda: time.time() + 60)
    until(lambda: own.cursor(CURSOR) is not None, later)
    known = own.cursor(CURSOR)
    assert known is not None
    assert known.position == own.history_end()
    box.close()
    later.close()


def test_a_second_sender_tells_nothing_twice(prefect_server: str, own: Ledger) -> None:
    run = f"r-{uuid4().hex[:8]}"
    an_incident_happens(own, run)
    first, second = outbox(own), outbox(own)
    assert (first.send(), second.send()) == (len(NAMES), len(NAMES))
    until(lambda: len(told(own, run)) >= len(NAMES), first)
    until(lambda: not any(item.event for item in first._sent.values()), first)  # pyright: ignore[reportPrivateUsage]
    assert len(told(own, run)) == len(NAMES)
    first.close()
    second.close()


def test_a_server_that_is_away_loses_nothing(prefect_server: str, own: Ledger) -> None:
    run, clock = f"r-{uuid4().hex[:8]}", Clock(time.time())
    box = Outbox(own, outbox(own).tell, approval_sheet, now=clock)
    with temporary_settings({PREFECT_API_URL: NOBODY}):
        an_incident_happens(own, run)
        assert box.send() == 0
    assert box.send() == 0, "it is not asked again at once"
    clock.now += 5
    assert box.send() == len(NAMES)
    until(lambda: len(told(own, run)) == len(NAMES), box)
    box.close()


def test_without_a_server_nothing_is_started_and_nothing_raised(own: Ledger) -> None:
    own.open_run(a_run())
    with temporary_settings({PREFECT_API_URL: None}):
        event_hook(own)()


class Forgetful(ConsoleServer):
    """A server that takes events, dies and has forgotten them; the first `times` times."""

    def __init__(self, times: int) -> None:
        self.times, self.kept, self.asked = times, list[str](), 0

    def close(self) -> None:
        pass

    def send(self, events: Any) -> None:
        self.asked += 1
        if self.asked > self.times:
            self.kept += [item["id"] for item in events]

    def has(self, ids: Any) -> set[str]:
        return set(ids) & set(self.kept)

    def flow_runs_of(self, runs: Any) -> dict[str, str]:
        return {}


def test_what_was_taken_and_lost_goes_out_again(own: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    server, clock = Forgetful(1), Clock(time.time())
    monkeypatch.setattr("tasks.prefect.events.open_console", lambda: server)
    own.open_run(a_run())
    box = Outbox(own, outbox(own).tell, approval_sheet, now=clock)
    assert box.send() == 1
    clock.now += 10
    assert box.send() == 0
    assert server.kept == [], "it may still be on its way"
    clock.now += 30
    box.send()
    assert len(server.kept) == 1
    clock.now += 30
    box.send()
    assert own.cursor(CURSOR) is not None
    assert own.history_after(box._cursor, 10) == []  # pyright: ignore[reportPrivateUsage]


def test_a_line_that_appears_at_a_lower_place_is_told_too(own: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on PostgreSQL, where a slow transaction's line becomes visible after a quicker one's higher place."""
    server, clock = Forgetful(0), Clock(time.time())
    monkeypatch.setattr("tasks.prefect.events.open_console", lambda: server)
    own.open_run(a_run("slow"))
    own.open_run(a_run("quick"))
    box = Outbox(own, outbox(own).tell, approval_sheet, now=clock)
    read = own.history_after
    monkeypatch.setattr(own, "history_after", lambda seq, limit: [row for row in read(seq, limit) if row.run != "slow"])
    assert box.send() == 1
    clock.now += 2
    box.send()
    monkeypatch.setattr(own, "history_after", read)
    clock.now += 2
    assert box.send() == 1
    assert len(server.kept) == 2


def test_a_console_opened_on_an_old_ledger_begins_with_the_last_hour(ledger: Ledger, clock: Clock) -> None:
    for number in range(20):
        ledger.open_run(a_run(f"r{number}"))
        clock.now += BEGIN_SECONDS / 10
    first = place_before(ledger, clock.now - BEGIN_SECONDS)
    left = ledger.history_after(first, 100)
    assert [row.run for row in left] == [f"r{number}" for number in range(10, 20)]
    assert place_before(ledger, 0.0) == ledger.history_after(0, 1)[0].seq - 1 or place_before(ledger, 0.0) == 0
    assert place_before(ledger, clock.now + 1) == ledger.history_end()


def test_a_question_about_nodes_has_a_page_that_follows_its_answer(prefect_server: str, own: Ledger) -> None:
    pool = f"p{uuid4().hex[:8]}"
    asked = ApprovalRecord(f"monitor/{pool}-1", "monitor/local", "i", "take 3 out?", "waiting", 1.0, time.time() + 600)
    own.ask(None, asked)
    box = outbox(own)
    assert box.send() == 1
    own.answer(asked.id, False, a_person("ann@here"), "not now", time.time())
    assert box.send() == 1
    box.close()
    with get_client(sync_client=True) as client:
        wanted = ArtifactFilter(key=ArtifactFilterKey(any_=[f"approval-monitor-{pool}-1"]))
        [page] = client.read_artifacts(artifact_filter=wanted)
    assert "**Denied** by ann@here" in str(page.data)


def test_a_fall_is_told_once(ledger: Ledger) -> None:
    driven(ledger)
    fall = Fall(40, 1040.0, 0.1, 0.15)
    assert ledger.note_fall("demo", 1, fall, ("node-0",))
    assert not ledger.note_fall("demo", 1, fall, ("node-0",))
    [row] = [row for row in ledger.history_after(0, 100) if row.kind == "throughput"]
    assert row.why == "steps take 0.15 s instead of 0.1 s (1.50 times as long) since step 40 of attempt 1"
    assert [mark.kind for mark in ledger.marks("demo")] == ["throughput-fell"]


def test_every_call_says_that_nobody_answers(prefect_server: str) -> None:
    from tasks.prefect.events import console_server

    with temporary_settings({PREFECT_API_URL: NOBODY}), console_server() as server, pytest.raises(Unavailable):
        server.has([str(uuid4())])
