"""A fleet of real node daemons in processes of their own: two nodes, a hundred with dead ones among them, a crowd."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.harness.health_daemons import Toolbox, at_once, get
from tests.support.harness.health_fleet import asking, fleet
from tests.support.running.waiting import patience
from workflows.programs.health.fleet_status import ALIVE_SECONDS
from workflows.programs.health.peers import peers_from

pytestmark = pytest.mark.story
LIVING, REFUSING, SILENT, STOPPED = 94, 2, 2, 1
GENEROUS_SECONDS = patience(60.0)
"""Seconds that no working daemon needs, on a machine with other work to do."""


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolbox:
    toolbox = Toolbox(tmp_path / "bin").healthy(8)
    monkeypatch.setenv("PATH", toolbox.path)
    return toolbox


def timed(port: int, target: str) -> tuple[float, str]:
    began = time.monotonic()
    status, text, _ = get(port, target, Accept="application/json")
    assert status == 200
    return time.monotonic() - began, text


def test_two_nodes(box: Toolbox) -> None:
    with fleet(1, 1) as (other, _), asking(other) as port:
        seconds, text = min(timed(port, "/status") for _ in range(3))
    told = json.loads(text)
    print(f"status of 2 nodes: {seconds:.3f} s")
    assert [(one["node"], one["verdict"]) for one in told["nodes"]] == [("node-001", "pass"), ("node-000", "pass")]
    assert seconds < GENEROUS_SECONDS


def test_a_hundred_nodes_with_five_dead_ones_and_two_hundred_callers(box: Toolbox) -> None:
    with ExitStack() as stack:
        share = LIVING // 2
        parts = [stack.enter_context(fleet(first, share))[0] for first in (1, 1 + share)]
        stopped, process = stack.enter_context(fleet(200, STOPPED))
        os.kill(process.pid, signal.SIGSTOP)
        silent = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(SILENT)]
        dead = [f"silent-{index}=127.0.0.1:{one.getsockname()[1]}" for index, one in enumerate(silent)]
        dead += [f"refusing-{index}=127.0.0.1:1" for index in range(REFUSING)]
        peers = ",".join([*parts, stopped, *dead])
        port = stack.enter_context(asking(peers))
        seconds, text = min(timed(port, "/status") for _ in range(3))
        crowd_began = time.monotonic()
        crowd = at_once(200, lambda: get(port, "/status?host=node-000,node-001,node-050")[:2])
        crowd_seconds = time.monotonic() - crowd_began
    told = json.loads(text)
    print(f"status of 100 nodes, 5 dead: {seconds:.3f} s; 200 callers at once: {crowd_seconds:.3f} s")
    verdicts = {one["node"]: one["verdict"] for one in told["nodes"]}
    names = [one.node for one in peers_from(peers)]
    assert sorted(verdicts) == sorted([*names, "node-000"]), "nobody is left out"
    assert len(verdicts) == 100
    away = {node for node, verdict in verdicts.items() if verdict == "unknown"}
    assert away == {"node-200", *(one.partition("=")[0] for one in dead)}
    assert {verdict for node, verdict in verdicts.items() if node not in away} == {"pass"}
    assert told["verdict"] == "unknown"
    assert all(node in told["text"] for node in away)
    assert ALIVE_SECONDS <= seconds < GENEROUS_SECONDS, "the silent ones cost their time once, side by side"
    assert all(one[0] == 200 and "'node-050': ['OK']" in one[1] for one in crowd)


def test_a_daemon_that_is_killed_is_named_the_next_time(box: Toolbox) -> None:
    with fleet(1, 2) as (others, process), asking(others) as port:
        before = json.loads(timed(port, "/status")[1])
        process.kill()
        process.wait(30)
        after = json.loads(timed(port, "/status")[1])
    assert before["verdict"] == "pass"
    assert [(one["node"], one["verdict"]) for one in after["nodes"]] == [
        ("node-001", "unknown"),
        ("node-002", "unknown"),
        ("node-000", "pass"),
    ]
