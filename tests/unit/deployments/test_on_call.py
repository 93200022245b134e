"""What a person types at night: what is printed, what is written, with which exit code it ends."""

from __future__ import annotations

import json
import os
import pwd
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deployments.cli.app import app
from deployments.exit_codes import FAILED, GOOD, UNKNOWN, WRONG_USAGE
from profiles.loading.load import load_cluster
from profiles.request import TrainRequest
from profiles.vocabulary import Action, FaultClass, NodeAction, RunState, VerdictWord
from tasks.clusters import embedded_cluster
from tasks.ledger.ledger import Ledger
from tasks.processes import process_start
from tasks.runs.open import open_run
from tasks.settings import Settings, localised
from tests.support.cases.rows import rows
from workflows.model.records import (
    ActionRecord,
    ApprovalRecord,
    AttemptRecord,
    Driver,
    IncidentRecord,
    NodeRecord,
    VerdictRecord,
)

ME = f"{pwd.getpwuid(os.getuid()).pw_name}@{socket.gethostname()}"
WHO = f"{ME} (os-user)"
WHY = "the cluster says that its pods were lost with it, and a spare is there to take its place at once"
Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ledger(settings: Settings) -> Iterator[Ledger]:
    opened = Ledger(settings.ledger_url)
    yield opened
    opened.close()


@pytest.fixture
def cluster(settings: Settings) -> Iterator[Any]:
    made = embedded_cluster(localised(load_cluster("local"), settings.home), settings.home)
    yield made
    made.stop()


@pytest.fixture
def asked(settings: Settings, ledger: Ledger) -> str:
    """A run that lost a node and waits for an answer; nobody drives it. The id of the question."""
    now = time.time()
    open_run(TrainRequest(profile="demo", name="night"), settings, ledger, now - 600.0)
    lease = ledger.acquire("night", Driver("elsewhere", 1, 1.0), now - 600.0, lambda _: None)
    ledger.plan_attempt(lease.fencing, AttemptRecord("night", 1, now - 590.0, "first", nodes=("node-0", "node-1")))
    incident = IncidentRecord("night-a1-i1", "night", 1, now - 300.0, now - 299.5, "node-not-ready", why="")
    ledger.open_incident(lease.fencing, incident)
    ledger.update_incident(
        lease.fencing,
        "night",
        incident.id,
        fault_class=FaultClass.NODE_LOST,
        confidence=0.97,
        culprits=(("node-1", 1),),
        evidence=("not ready, and nothing on it answers: node-1",),
        action=Action.ASK,
        why=WHY,
    )
    for kind, target in ((NodeAction.QUARANTINE, "node-1"), (Action.NEW_ATTEMPT, "")):
        record = ActionRecord(f"night-a1-i1-{kind}", "night", incident.id, kind, target, "planned", WHY, now)
        ledger.plan_action(lease.fencing, record)
    question = ApprovalRecord("q-1", "night", incident.id, "quarantine node-1?", "waiting", now - 200.0, now + 900.0)
    ledger.ask(lease.fencing, question)
    ledger.set_run_state("night", lease.fencing, RunState.WAITING_FOR_APPROVAL, question.question)
    ledger.release(lease)
    return question.id


def test_incidents_of_all_runs(say: Say, asked: str) -> None:
    code, out, _ = say("incidents")
    assert code == GOOD
    head, row, *_ = out.splitlines()
    assert head.split() == ["when", "run", "class", "culprit", "action", "took", "why"]
    assert row.split()[2:7] == ["night/1", "node_lost", "(0.97)", "node-1", "ask"]
    assert WHY in row, "nothing is cut where no terminal looks on"
    assert out.endswith("1 incident; 1 not over\n")
    code, out, _ = say("incidents", "--json", "--class", "node_lost", "--since", "10m", "--open")
    [document] = json.loads(out)
    assert (document["run"], document["class"], document["open"]) == ("night", "node_lost", True)
    assert json.loads(say("incidents", "--json", "--class", "data")[1]) == []
    assert json.loads(say("incidents", "--json", "--since", "1m")[1]) == []


def test_incidents_of_one_run_tell_everything(say: Say, asked: str) -> None:
    code, out, _ = say("incidents", "--run", "night")
    assert code == GOOD
    assert "saw: not ready, and nothing on it answers: node-1" in out
    assert "still open: no step was completed since" in out


@rows("deployments/on_call")
def test_wrong_usage_says_what_to_do_and_touches_nothing(
    say: Say, asked: str, ledger: Ledger, cluster: Any, words: tuple[str, ...], said: str
) -> None:
    before = list(ledger.history())
    code, out, err = say(*words)
    assert (code, out) == (WRONG_USAGE, "")
    assert said in err
    assert list(ledger.history()) == before


def test_approvals_tell_what_each_answer_does(say: Say, asked: str) -> None:
    code, out, _ = say("approvals")
    assert code == GOOD
    assert "night (waiting-for-approval): quarantine node-1?" in out
    assert "yes: quarantine node-1, then new-attempt" in out
    assert 'primus approve q-1 --why "..."' in out
    [document] = json.loads(say("approvals", "--json")[1])
    assert document["if_no"].startswith("nothing is done and night ends as stopped")
    assert 600.0 < document["seconds_left"] < 900.0


def test_an_answer_stands_with_who_gave_it(say: Say, asked: str, ledger: Ledger) -> None:
    code, _, err = say("approve", "q-1", "--why", "the rack is back")
    assert code == GOOD
    assert f"q-1: approved by {WHO} at " in err
    assert "nobody drives night now" in err
    given = ledger.approval("q-1")
    assert given is not None
    assert (given.state, given.answered_by, given.why) == ("approved", ME, "the rack is back")
    assert say("approve", "q-1", "--why", "again")[0] == GOOD
    code, _, err = say("deny", "q-1", "--why", "no")
    assert code == WRONG_USAGE
    assert f"approved by {WHO} already" in err
    assert say("approvals")[1] == "nothing waits for a person\n"
    status = say("status", "night")[1]
    assert f"approved by {WHO} at " in status


def test_a_pause_says_who_and_why_wherever_it_matters(say: Say, asked: str) -> None:
    say("pause", "night", "--why", "hands off")
    document = json.loads(say("status", "night", "--json")[1])
    assert (document["automation"], document["paused_why"]) == ("paused", f"{WHO}: hands off")
    assert f"automation paused ({WHO}: hands off)" in say("status", "night")[1]
    assert "waiting-for-approval (paused)" in say("runs")[1]
    say("pause", "--all", "--why", "fabric")
    for command in ("runs", "approvals"):
        assert f"everything is paused: {WHO}: fabric; go on: primus unpause --all" in say(command)[1]
    assert "everything is paused as well" in say("unpause", "night")[2]
    say("unpause", "--all")
    assert json.loads(say("status", "night", "--json")[1])["paused_why"] is None


def test_runs_as_a_table_and_as_json(say: Say, asked: str, settings: Settings, ledger: Ledger) -> None:
    assert say("runs")[1].splitlines()[-1] == "1 run, 1 not ended"
    open_run(TrainRequest(profile="demo", name="later"), settings, ledger, time.time())
    assert [row["run"] for row in json.loads(say("runs", "--json")[1])] == ["night", "later"]
    assert [row["run"] for row in json.loads(say("runs", "--json", "--limit", "1")[1])] == ["later"]
    assert [row["run"] for row in json.loads(say("runs", "--json", "--state", "waiting-for-approval")[1])] == ["night"]
    assert "older ones are left out" in say("runs", "--limit", "1")[1]
    assert say("runs", "--state", "failed")[1] == "no such run\n"


def test_the_history_is_one_document_however_long(say: Say, asked: str) -> None:
    lines = json.loads(say("ledger", "--json")[1])
    assert [line["kind"] for line in lines][:2] == ["run", "lease"]
    assert json.loads(say("ledger", "--json", "--limit", "2")[1]) == lines[-2:]
    assert len(say("ledger", "--limit", "3")[1].splitlines()) == 3


def test_the_fleet_from_cluster_and_ledger(say: Say, ledger: Ledger, cluster: Any) -> None:
    now = time.time()
    ledger.add_verdict(VerdictRecord("local", "node-0", VerdictWord.PASS, "gate", now))
    ledger.set_node(NodeRecord("local", "node-1", "quarantined", "gpu_hardware: Xid 79", now, "", "cpu"))
    cluster.patch("Node", "node-4", {"spec": {"unschedulable": True}})
    code, out, err = say("fleet")
    assert (code, err) == (GOOD, "")
    assert out.splitlines()[0] == (
        "local: 6 nodes, 0 GPUs: 4 schedulable, 1 quarantined, 1 cordoned; verdicts: 1 pass, 5 unknown"
    )
    assert "cpu-rack-0 .Q-  cpu-rack-1 -C-" in out
    assert "node-1  cpu   cpu-rack-0  quarantined  unknown  gpu_hardware: Xid 79" in out
    rows = {row["node"]: row for row in json.loads(say("fleet", "--json")[1])}
    assert (rows["node-1"]["state"], rows["node-1"]["why"]) == ("quarantined", ["gpu_hardware: Xid 79"])
    assert (rows["node-0"]["verdict"], rows["node-0"]["depth"], rows["node-2"]["verdict"]) == (
        "pass",
        "gate",
        "unknown",
    )
    assert rows == {row["node"]: row for row in json.loads(say("nodes", "--json")[1])}
    chosen = json.loads(say("fleet", "--json", "--only", "state=quarantined,cordoned", "--only", "rack=*-0")[1])
    assert [row["node"] for row in chosen] == ["node-1"]
    assert "quarantined Q" in say("fleet", "--by", "state")[1]


def test_a_cluster_that_is_away_leaves_the_ledger_and_exit_code_3(say: Say, ledger: Ledger, tmp_path: Path) -> None:
    text = Path("profiles/clusters/kubernetes-example.yaml").read_text(encoding="utf-8")
    (tmp_path / "away.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "config").write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [
                    {"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("c", _context(text))
                ],
                "current-context": "c",
            }
        ),
        encoding="utf-8",
    )
    name = load_cluster(str(tmp_path / "away.yaml")).name
    pool = load_cluster(str(tmp_path / "away.yaml")).pools[0].name
    ledger.set_node(NodeRecord(name, "gpu-7", "quarantined", "Xid 79", 5.0, "", pool))
    ledger.add_verdict(VerdictRecord(name, "gpu-8", VerdictWord.PASS, "gate", time.time()))
    os.environ["KUBECONFIG"] = str(tmp_path / "config")
    try:
        code, out, err = say("fleet", "--json", "--cluster", str(tmp_path / "away.yaml"))
    finally:
        del os.environ["KUBECONFIG"]
    assert code == UNKNOWN
    assert f"{name} does not answer, this is what the ledger knows" in err
    rows = {row["node"]: (row["state"], row["verdict"]) for row in json.loads(out)}
    assert rows == {"gpu-7": ("quarantined", "unknown"), "gpu-8": ("unknown", "pass")}


def _context(text: str) -> str:
    return next((line.split(":")[1].strip() for line in text.splitlines() if line.startswith("context:")), "c")


def test_everything_about_one_node_and_its_verdict(say: Say, ledger: Ledger, cluster: Any) -> None:
    assert say("verdict", "node-0")[:2] == (UNKNOWN, "node-0: unknown (it was never tested)\n")
    reasons = (
        {"check": "gpu-count", "verdict": "fail", "measured": 7, "limit": 8, "unit": "GPUs", "evidence": "lspci"},
    )
    ledger.add_verdict(VerdictRecord("local", "node-0", VerdictWord.FAIL, "gate", time.time(), reasons, "night-a1"))
    code, out, _ = say("verdict", "node-0")
    assert code == FAILED
    assert out.splitlines() == [
        "node-0: fail (failed test gate 0 s ago (gpu-count: lspci), and none cleared it)",
        "fail (gate, 0 s ago, by night-a1)",
        "  gpu-count  fail: 7 GPUs, limit 8 GPUs: lspci",
    ]
    ledger.add_verdict(VerdictRecord("local", "node-0", VerdictWord.PASS, "device", time.time()))
    assert say("verdict", "node-0")[0] == GOOD
    document = json.loads(say("nodes", "node-0", "--json")[1])
    assert [item["verdict"] for item in document["verdicts"]] == ["fail", "pass"]
    assert json.loads(say("verdict", "node-0", "--json")[1])["depth"] == "device"
    assert "lspci" in say("nodes", "node-0")[1]


def test_a_node_is_taken_out_and_given_back_by_hand(say: Say, ledger: Ledger, cluster: Any) -> None:
    code, _, err = say("nodes", "cordon", "node-3", "--why", "fan is loud")
    assert (code, err) == (GOOD, f"node-3 is out of service: {WHO}: fan is loud\n")
    assert cluster.get("Node", "node-3")["spec"]["unschedulable"] is True
    assert f"quarantined by {WHO}: fan is loud" in say("nodes", "node-3")[1]
    assert say("nodes", "release", "node-3", "--why", "mended")[0] == GOOD
    assert not cluster.get("Node", "node-3")["spec"].get("unschedulable")


def test_failover_by_hand_leaves_a_run_with_a_driver_alone(say: Say, asked: str, ledger: Ledger) -> None:
    pid = os.getpid()
    lease = ledger.acquire("night", Driver(socket.gethostname(), pid, process_start(pid) or 0.0), time.time(), _unsure)
    before = list(ledger.history())
    code, out, err = say("failover", "night")
    assert (code, out) == (WRONG_USAGE, "")
    assert f"night is driven by process {pid} on {socket.gethostname()}, which decides by itself" in err
    assert list(ledger.history()) == before
    ledger.release(lease)
    code, out, _ = say("failover", "night")
    assert (code, out.partition(";")[0]) == (GOOD, "night has no open incident")


def _unsure(_: Driver) -> bool | None:
    return None


def test_failover_by_hand_decides_what_nobody_decided(
    settings: Settings, ledger: Ledger, cluster: Any, prefect_server: str
) -> None:
    now = time.time()
    open_run(TrainRequest(profile="demo", name="left"), settings, ledger, now - 60.0)
    lease = ledger.acquire("left", Driver(socket.gethostname(), 1, -1.0), now - 60.0, _unsure)  # a process that died
    ledger.plan_attempt(lease.fencing, AttemptRecord("left", 1, now - 50.0, "first", nodes=("node-0", "node-1")))
    ledger.open_incident(
        lease.fencing, IncidentRecord("left-a1-i1", "left", 1, now - 9.0, now - 9.0, "pod-failed", evidence=("gone",))
    )
    words = [sys.executable, "-m", "deployments.cli.main", "failover", "left"]
    environment = {**os.environ, "PREFECT_API_URL": prefect_server}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == GOOD, done.stderr
    [decided] = ledger.incidents("left")
    assert decided.action is not None
    assert done.stdout == f"left-a1-i1: {decided.action}: {decided.why}\n"
    assert "a driver carries it out: primus resume left" in done.stderr
    assert [item.state for item in ledger.actions("left")] == ["planned"] * len(ledger.actions("left"))
    again = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert again.stdout.startswith("left has no open incident")


def test_one_json_document_from_the_shell(settings: Settings, asked: str) -> None:
    words = [sys.executable, "-m", "deployments.cli.main", "incidents", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert len(json.loads(done.stdout)) == 1
    assert done.stderr == ""
    assert app.info.name == "primus"
