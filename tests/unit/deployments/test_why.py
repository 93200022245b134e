"""`primus why` and `primus queue`: what people and programs get, and the exit codes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from deployments.cli.why import doctor_text, queue_document, queue_text, show_queue, show_why, why_document, why_text
from deployments.exit_codes import GOOD, UNKNOWN, WRONG_USAGE
from flows.decisions.explain.doctor import Check
from flows.decisions.explain.queue import entries
from flows.decisions.explain.why import explain
from flows.decisions.text import age
from profiles.request import TrainRequest
from profiles.vocabulary import VerdictWord
from tasks.ledger.ledger import Ledger
from tasks.processes import process_start
from tasks.runs.open import open_run
from tasks.settings import Settings
from tests.support.builders.why_sights import ADMITTED, GPU, LOCAL, NOW, RESEARCH, queued, refused, sight
from tests.support.harness.commands import primus_here
from workflows.model.records import AttemptRecord, Driver
from workflows.model.why import QueueSight

SHORT = f"couldn't assign flavors to pod set trainer: insufficient unused quota for {GPU} in flavor h200, 8 more needed"
HELD = refused(SHORT)
BIG = replace(ADMITTED, name="w-big", owner="big-a1", gpus=24)


def test_one_line_first_then_who_says_so_then_what_to_do() -> None:
    seen = sight(queued(HELD, others=(BIG,)))
    lines = why_text(seen, explain(seen)).splitlines()
    assert lines[0] == (
        f"demo-1: waiting: waits for quota in ClusterQueue research: 8 more {GPU} of flavor h200 (24 of 32 used), "
        "place 1 of 1 (for 100 s)"
    )
    assert lines[1].startswith(
        f"  Workload {HELD.name}  QuotaReserved=False  Pending: couldn't assign flavors to pod set"
    )
    assert any(line.startswith("  ClusterQueue research  flavor h200") for line in lines)
    assert lines[-1].startswith("  do: wait for big-a1 (24 GPUs) to end, raise the run's priority")


def test_the_document_says_the_same_to_programs() -> None:
    seen = sight(queued(HELD, others=(BIG,)))
    found = json.loads(json.dumps(why_document(seen, explain(seen))))
    assert (found["run"], found["state"], found["reason"], found["queue"]) == ("demo-1", "waiting", "quota", "team")
    assert found["why"] == found["reasons"][0]["sentence"]
    assert found["since_seconds"] == 100.0
    first = found["reasons"][0]["evidence"][0]
    assert set(first) == {"kind", "name", "condition", "reason", "message", "at"}
    assert (first["kind"], first["condition"], first["message"]) == ("Workload", "QuotaReserved=False", SHORT)


def test_the_queue_shows_places_blocks_and_quotas() -> None:
    seen = QueueSight(workloads=(HELD, BIG), local_queues=(LOCAL,), cluster_queues=(RESEARCH,))
    rows = entries(seen, NOW)
    shown = queue_text(seen, rows, NOW)
    assert shown.splitlines()[0] == "1 wait for 16 GPUs, 1 hold 24"
    assert "demo-1-a1: waits for quota in ClusterQueue research" in shown
    assert any(line.split() == ["research", "h200", GPU, "24", "32", "0"] for line in shown.splitlines()), shown
    found = json.loads(json.dumps(queue_document("here", seen, rows, NOW)))
    assert (found["source"], found["waiting"]) == ("Workload", 1)
    assert [(item["name"], item["position"], item["reason"]) for item in found["items"]] == [
        ("demo-1-a1", 1, "quota"),
        ("big-a1", None, None),
    ]
    assert found["cluster_queues"][0]["quotas"][0]["nominal"] == "32"
    assert found["queues"] == [
        {"queue": "team", "cluster_queue": "research", "pending": 0, "admitted": 0, "active": True}
    ]


def test_an_empty_cluster_has_an_empty_queue(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert show_queue("local", as_json=False) == GOOD
    assert capsys.readouterr().out == "nothing waits and nothing runs\n"
    assert show_queue("", as_json=True) == GOOD
    assert json.loads(capsys.readouterr().out)["items"] == []


def test_a_cluster_that_is_away_gives_no_answer_and_says_so(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, now, pid = Ledger(settings.ledger_url), time.time(), os.getpid()
    run = open_run(TrainRequest(profile="demo", name="far", cluster="local"), settings, ledger, now)
    (settings.home / "clusters").write_text("no folder\n")
    assert show_why(run.name, as_json=True) == GOOD, "the ledger alone knows that nobody plans the first attempt"
    assert json.loads(capsys.readouterr().out)["reason"] == "no-driver"
    here = Driver(socket.gethostname(), pid, process_start(pid) or 0.0)
    fencing = ledger.acquire(run.name, here, now, lambda _: True).fencing
    ledger.plan_attempt(fencing, AttemptRecord(run.name, 1, now, "first"))
    ledger.update_attempt(fencing, run.name, 1, submitted_at=now)
    ledger.close()
    assert show_why(run.name, as_json=False) == UNKNOWN
    assert capsys.readouterr().out.startswith("far: unknown: the cluster or a service does not answer")


def test_wrong_names_are_wrong_usage(settings: Settings) -> None:
    for words in (("why", "nobody"), ("queue", "--cluster", "nowhere")):
        found = primus_here(*words)
        assert found.returncode == WRONG_USAGE, found.stderr
        assert found.stdout == ""
        assert len(found.stderr.splitlines()) == 1, found.stderr


def test_neither_needs_prefect(settings: Settings) -> None:
    code = "import sys, deployments.cli.why, deployments.cli.why; print('prefect' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-1, "0 s"), (59, "59 s"), (119, "119 s"), (252, "4.2 min"), (7200, "2.0 h"), (259200, "3.0 d")],
)
def test_ages_are_for_people(seconds: float, words: str) -> None:
    assert age(seconds) == words


def test_a_doctor_names_what_is_wrong_and_counts_what_is_well() -> None:
    well = tuple(Check(f"check-{number}", VerdictWord.PASS, "as it should be") for number in range(9))
    ill = Check("clock", VerdictWord.FAIL, "9 s late", "set it")
    assert doctor_text("local", well) == "local: pass: 9 of 9 checks passed; --all shows each"
    told = doctor_text("local", (*well, ill))
    assert "check-" not in told
    assert told.endswith("clock: 9 s late\n  do: set it")
    assert "check-8" in doctor_text("local", well, every=True)
    assert "check-7" in doctor_text("local", well[:8])
