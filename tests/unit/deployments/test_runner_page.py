"""What a runner tells of itself."""

from __future__ import annotations

import time
import urllib.error
import urllib.request

from deployments.processes.runner import STUCK_SECONDS, Tally, serve_page
from profiles.vocabulary import RunState
from workflows.model.runs import FlowRunSeen, OpenRun, Phase


def asked(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_it_is_ready_when_it_serves_and_healthy_while_it_moves() -> None:
    tally = Tally()
    with serve_page(tally, 0) as port:
        assert asked(port, "/healthz")[0] == 200
        assert asked(port, "/readyz")[0] == 503
        tally.ready = True
        tally.waits("the server is away")
        assert asked(port, "/readyz")[0] == 200
        assert asked(port, "/healthz")[0] == 200, "a neighbour's silence is no fault of the runner"
        tally.beat = time.monotonic() - STUCK_SECONDS
        assert asked(port, "/healthz")[0] == 503
        assert asked(port, "/secrets")[0] == 404


def test_figures() -> None:
    tally = Tally(started=3, taken_over=1)
    runs = [OpenRun(f"r{number}", RunState.RUNNING, "big", 0.0) for number in range(2)]
    tally.saw([*runs, OpenRun("p", RunState.PENDING, "big", 0.0)], [FlowRunSeen("f", Phase.RUNNING, 0.0)], 1, 9.5)
    lines = tally.text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        "primus_runner_drivers 1",
        "primus_runner_drivers_started_total 3",
        "primus_runner_runs_taken_over_total 1",
        'primus_runner_open_runs{state="running"} 2',
        'primus_runner_open_runs{state="pending"} 1',
        'primus_runner_open_flow_runs{phase="running"} 1',
        "primus_runner_waiting 0",
        "primus_runner_look_timestamp_seconds 9.5",
    ]
    assert sum(line.startswith("# TYPE ") for line in lines) == 7


def test_without_a_port_nothing_is_opened() -> None:
    with serve_page(Tally(), None) as port:
        assert port == 0
