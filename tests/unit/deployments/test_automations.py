"""Automations as code on a real Prefect server, each fired by an event that the outbox really sent."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId
from prefect.settings import PREFECT_API_URL, temporary_settings

from deployments.cli.automations import NOTIFIED_EVENTS, notification, settle, show_automations
from flows.publishing import outbox
from profiles.errors import NotFound, ProfileError, Unavailable
from profiles.vocabulary import Action, FaultClass, RunState
from tasks.ledger.ledger import Ledger
from tasks.prefect.automations import deployment_of
from tasks.prefect.deployments import Offer
from tasks.prefect.flow_runs import flow_runs
from tests.support.builders.ledgers import a_run, an_attempt, an_incident, driven
from tests.support.running.waiting import patience
from workflows.model.events import Fall
from workflows.model.records import ApprovalRecord
from workflows.model.runs import FindingRecord

DEADLINE_SECONDS = patience(60.0)
NODES = ("node-1", "node-3")
SCHEMA = {
    "title": "Parameters",
    "type": "object",
    "properties": {"nodes": {"title": "nodes", "type": "array", "items": {"type": "string"}}},
}


@pytest.fixture(scope="module", autouse=True)
def clean(prefect_server: str) -> Iterator[None]:
    """Other tests of the session must not set our automations off."""
    yield
    forget_ours()


def forget_ours() -> None:
    with get_client(sync_client=True) as client:
        for one in client.read_automations():
            if one.name.startswith("primus: "):
                client.delete_automation(one.id)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.sqlite")
    yield ledger
    ledger.close()


@contextmanager
def listening() -> Iterator[tuple[str, list[Any]]]:
    """An address on loopback, and the JSON that was posted there."""
    heard: list[Any] = []

    class Ear(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Ear)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", heard
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def until(holds: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := holds()):
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
    return found


def told_block(address: str) -> str:
    """A notification block with a secret; its slug."""
    name = f"b{uuid4().hex[:8]}"
    block: Any = CustomWebhookNotificationBlock(
        name="ops", url=address, json_data={"subject": "{{subject}}", "body": "{{body}}"}, secrets={"token": "s3cret"}
    )
    block.save(name)
    return f"custom-webhook/{name}"


def states(cluster: str, block: str, *, apply: bool = False) -> dict[str, str]:
    return {row.name.removeprefix("primus: "): row.state for row in settle(cluster, block, apply=apply)}


TELLING = {f"tell of {name}" for name, _, _ in NOTIFIED_EVENTS}


def everything_happens(ledger: Ledger, run: str) -> None:
    """One event for each automation that tells, on one run."""
    fencing = driven(ledger, run)
    ledger.plan_attempt(fencing, an_attempt(run=run))
    incident = an_incident(run=run, culprits=(("node-1", 1),), evidence=("<!channel> node-1 is not ready",))
    ledger.open_incident(fencing, incident)
    ledger.update_incident(fencing, run, incident.id, fault_class=FaultClass.NODE_LOST, confidence=0.98)
    ledger.update_incident(fencing, run, incident.id, action=Action.ASK, why="the brake trips <https://a.test|here>")
    now = time.time()
    ledger.ask(
        fencing, ApprovalRecord(f"{incident.id}-approval", run, incident.id, "take 3?", "waiting", now, now + 60)
    )
    ledger.set_run_state(run, fencing, RunState.FAILED, "the budget is spent", now)
    ledger.open_finding(
        FindingRecord(f"local/orphan/{run}@1", "local", "orphan", f"JobSet {run}", run, "old", "deleted", now, now)
    )


def test_people_are_told_of_everything_that_needs_them(prefect_server: str, own: Ledger) -> None:
    run = f"r-{uuid4().hex[:8]}"
    with listening() as (address, heard):
        slug = told_block(address)
        first = states("local", slug, apply=True)
        assert {name for name, state in first.items() if state in ("created", "changed")} >= TELLING
        everything_happens(own, run)
        box = outbox(own)
        assert box.send() > 0
        until(lambda: len([item for item in heard if run in item["subject"]]) >= len(NOTIFIED_EVENTS), f"{heard}")
        box.close()
    said = {item["subject"]: item["body"] for item in heard if run in item["subject"]}
    assert set(said) == {
        f"{run}: node_lost (0.98), blamed: node-1 (rank 1); ask: the brake trips \u2039https://a.test|here\u203a",
        f"{run}: waits for an answer: take 3?",
        f"{run}: failed: the budget is spent",
        f"{run}: JobSet {run}: old; deleted",
    }
    question = said[f"{run}: waits for an answer: take 3?"]
    assert f'primus approve {run}-a1-i1-approval --why "..."' in question
    assert "\u2039!channel\u203a node-1 is not ready" in question
    assert not set("<>") & set("".join((*said, *said.values()))), "no chat calls anybody by others' words"
    assert "s3cret" not in json.dumps(heard)


def test_a_webhook_block_gets_the_whole_event(prefect_server: str, own: Ledger) -> None:
    run = f"r-{uuid4().hex[:8]}"
    with listening() as (address, heard):
        name = f"w{uuid4().hex[:8]}"
        block: Any = Webhook(url=address, allow_private_urls=True)
        block.save(name)
        states("local", f"webhook/{name}", apply=True)
        fencing = driven(own, run)
        own.set_run_state(run, fencing, RunState.FAILED, 'a "quoted" why', time.time())
        box = outbox(own)
        box.send()
        [item] = until(lambda: [item for item in heard if item["event"]["run"] == run], f"{heard}")
        box.close()
    assert item["subject"] == f'{run}: failed: a "quoted" why'
    assert item["event"]["command"] == f'primus resume {run} --why "..."'


def test_applying_twice_changes_nothing_and_what_was_switched_off_stays_off(prefect_server: str) -> None:
    slug = told_block("http://127.0.0.1:9/")
    states("local", slug, apply=True)
    assert {name: state for name, state in states("local", slug).items() if name in TELLING} == dict.fromkeys(
        TELLING, "same"
    )
    assert set(states("local", slug, apply=True).values()) <= {"same", "skipped"}
    with get_client(sync_client=True) as client:
        [one] = client.read_automations_by_name("primus: tell of findings")
        client.pause_automation(one.id)
        assert states("local", slug)["tell of findings"] == "same"
        other = told_block("http://127.0.0.1:9/other")
        assert states("local", other)["tell of findings"] == "differs"
        assert states("local", other, apply=True)["tell of findings"] == "changed"
        [after] = client.read_automations_by_name("primus: tell of findings")
    assert (after.id, after.enabled) == (one.id, False)


def test_what_tells_people_already_is_told_as_it_stands_without_its_block_being_named(prefect_server: str) -> None:
    forget_ours()
    assert {name: state for name, state in states("local", "").items() if name in TELLING} == dict.fromkeys(
        TELLING, "skipped"
    )
    states("local", told_block("http://127.0.0.1:9/"), apply=True)
    for apply in (False, True):
        found = states("local", "", apply=apply)
        assert {name: found[name] for name in TELLING} == dict.fromkeys(TELLING, "same")
    with get_client(sync_client=True) as client:
        [one] = client.read_automations_by_name("primus: tell of findings")
        through: Any = one.actions[0]
        older = list(notification(through.block_document_id, ""))[-1].model_copy(update={"description": "older"})
        client.update_automation(one.id, older)
        assert states("local", "")["tell of findings"] == "differs"
        assert states("local", "", apply=True)["tell of findings"] == "changed"
        [after] = client.read_automations_by_name("primus: tell of findings")
    assert after.actions == one.actions, "through the block that it had"


def served(cluster: str) -> Any:
    with flow_runs() as server:
        server.serve([Offer("monitor", cluster, SCHEMA, "flows.monitor.monitor", "a test")])
    with get_client(sync_client=True) as client:
        return deployment_of(client, f"monitor/{cluster}")


def test_a_fall_of_throughput_has_the_runs_nodes_looked_at_once_in_a_while(prefect_server: str, own: Ledger) -> None:
    cluster, run, other = (f"{kind}{uuid4().hex[:8]}" for kind in ("c", "r", "r"))
    deployment = served(cluster)
    assert states(cluster, "", apply=True)[f"examine slower runs on {cluster}"] == "created"
    for name in (run, other):
        own.open_run(a_run(name, cluster=cluster))
    now, box = time.time(), outbox(own)
    own.note_fall(run, 1, Fall(40, now, 0.1, 0.15), NODES)
    own.note_fall(run, 1, Fall(90, now + 1, 0.15, 0.3), NODES)
    own.note_fall(other, 1, Fall(40, now, 0.1, 0.15), ("node-9",))
    assert box.send() >= 3

    def asked() -> Any:
        ours = DeploymentFilter(id=DeploymentFilterId(any_=[deployment]))
        with get_client(sync_client=True) as client:
            found = [item.parameters.get("nodes") for item in client.read_flow_runs(deployment_filter=ours)]
        return found if len(found) >= 2 else None

    assert sorted(until(asked, "the monitor was not asked")) == [list(NODES), ["node-9"]]
    box.close()


def test_what_cannot_be_made_is_named(prefect_server: str) -> None:
    forget_ours()
    rows = settle("nobody-serves-it", "", apply=False)
    assert {row.state for row in rows} == {"skipped"}
    assert any("monitor/nobody-serves-it" in row.does for row in rows)
    with pytest.raises(NotFound, match="no block slack-webhook/nothing"):
        settle("local", "slack-webhook/nothing", apply=False)
    with pytest.raises(ProfileError, match="TYPE/NAME"):
        settle("local", "ops", apply=False)


def test_the_command_reads_and_changes_nothing(
    prefect_server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PRIMUS_HOME", str(tmp_path))
    with pytest.raises(Unavailable, match="primus up"), temporary_settings({PREFECT_API_URL: None}):
        show_automations("local", "", apply=False, as_json=True)
    monkeypatch.setenv("PREFECT_API_URL", prefect_server)
    forget_ours()
    with get_client(sync_client=True) as client:
        before = len(client.read_automations())
        assert show_automations("local", "", apply=False, as_json=True) == 0
        assert len(client.read_automations()) == before
    documents = json.loads(capsys.readouterr().out)
    assert {"automation", "state", "does"} == set(documents[0])
    assert show_automations("local", "", apply=False, as_json=False) == 0
    assert "skipped" in capsys.readouterr().out
