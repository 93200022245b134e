"""Whatever is sent to the coordinator: nothing dies, and nothing is believed that should not be."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.harness.coordinator_talk import TOKEN, Talk, gang
from tests.unit.programs.coordinator.test_http import ask
from workflows.programs.coordinator import service
from workflows.programs.runtime.http_server import DeferredResponse, Request

NAMES = [
    *("role", "pod_index", "pod", "node", "sequence", "reports", "state", "why", "pids", "incarnation", "id", "stacks"),
    *("step", "at", "rank", "loss", "seconds", "compute_seconds", "report", "phase", "heard_order", "pods", "left_out"),
    *("processes", "master_addr", "master_port", "resume_step", "resume_from", "save", "threads", "frames", "verdict"),
]
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
    st.sampled_from(["trainer", "running", "StepSeen", "RankEnd", "PhaseSeen", "nan", 10**400, -1, 1]),
)  # fmt: skip
junk = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=8),
    max_leaves=12,
)
reports = st.lists(st.dictionaries(st.sampled_from(NAMES), scalars, max_size=8), max_size=4)
bodies = st.dictionaries(st.sampled_from(NAMES), junk | reports, max_size=10)


def launchers_own(more: dict[str, Any], index: int) -> dict[str, Any]:
    return {"role": "trainer", "pod_index": index, **more}


likely = st.builds(launchers_own, bodies, st.integers(0, 1))
routes = st.sampled_from(sorted(service._ROUTES))  # pyright: ignore[reportPrivateUsage] - every one that there is


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(routes, likely | bodies, st.dictionaries(st.sampled_from(NAMES), st.text(max_size=5))), max_size=8
    )
)
def test_no_request_breaks_the_coordinator(requests: list[tuple[tuple[str, str], Any, dict[str, str]]]) -> None:
    one = gang()
    for (method, path), body, query in requests:
        answer = one.handle(Request(method, path, {**query, "wait": "0"}, TOKEN, body))
        answer = (answer.poll() or answer.timeout_response) if isinstance(answer, DeferredResponse) else answer
        assert answer.status in (200, 400, 403, 404, 409), (path, body, answer)
        one.tick()
    for path in ("/status", "/metrics", "/v1/steps"):
        answer = ask(one, "GET", path, token=TOKEN)
        assert answer.status == 200
        json.dumps(answer.body, allow_nan=False)
    # Nobody can make it lend more than it has, nor bring it to another incarnation by reports.
    assert len(one.state.restarts) <= 3


@given(routes, likely, st.text(max_size=8).filter(lambda text: text != TOKEN))
def test_with_a_wrong_token_nothing_happens(route: tuple[str, str], body: Any, token: str) -> None:
    one = gang()
    before = one.state
    answer = one.handle(Request(*route, {}, token, body))
    assert not isinstance(answer, DeferredResponse)
    assert answer.status == 401
    assert one.state is before


@pytest.mark.parametrize("incarnation", [-1, 0, 2, 99])
def test_reports_of_another_incarnation_are_no_progress(incarnation: int) -> None:
    one = gang()
    before = ask(one, "GET", "/status", token=TOKEN).body
    said: list[dict[str, Any]] = [
        {"report": "StepSeen", "step": 50, "loss": "nan"},
        {"report": "PhaseSeen", "phase": "checkpoint"},
        {"report": "RankEnd", "rank": 0, "local_rank": 0, "signal": 9},
    ]
    told = [{**one, "at": 5.0, "incarnation": incarnation} for one in said]
    body = {"role": "trainer", "pod_index": 0, "sequence": 9, "reports": told, "incarnation": incarnation}
    assert ask(one, "POST", "/v1/report", body, TOKEN).status == 200
    after = ask(one, "GET", "/status", token=TOKEN).body
    for name in ("step", "phase", "ended", "orders", "restarts", "incarnation", "first_nan_step", "numeric"):
        assert after[name] == before[name], name


@pytest.mark.parametrize(
    "wrong",
    [
        {"step": -1}, {"step": 10**400}, {"at": "nan"}, {"at": "inf"}, {"at": -1.0}, {"rank": -1}, {"at": 10**400},
        {"rank": 10**40}, {"step": 1.5}, {"step": True}, {"at": None},
    ],
)  # fmt: skip
def test_a_step_that_cannot_be_is_not_believed(wrong: dict[str, Any]) -> None:
    one = gang()
    step = {"report": "StepSeen", "step": 5, "at": 1.0, **wrong}
    body = {"role": "trainer", "pod_index": 0, "sequence": 9, "reports": [step]}
    assert ask(one, "POST", "/v1/report", body, TOKEN).status == 200
    assert one.state.progress.step is None


def test_figures_of_a_step_that_are_no_numbers_are_left_out() -> None:
    one = gang()
    step = {"report": "StepSeen", "step": 5, "at": 1.0, "seconds": "nan", "compute_seconds": "inf", "loss": "nan"}
    body = {"role": "trainer", "pod_index": 0, "sequence": 9, "reports": [step]}
    ask(one, "POST", "/v1/report", body, TOKEN)
    assert ask(one, "GET", "/v1/steps", token=TOKEN).body["steps"] == [[5, 1.0, None, "nan"]]


@pytest.mark.parametrize("written_at", ["nan", "inf", -1.0, 10**400])
def test_a_time_of_writing_that_cannot_be_is_left_out(written_at: Any) -> None:
    one = gang()
    seen = {"report": "CheckpointSeen", "step": 5, "path": "/c", "at": 9.0, "verdict": "pass", "written_at": written_at}
    body = {"role": "trainer", "pod_index": 0, "sequence": 9, "reports": [seen]}
    assert ask(one, "POST", "/v1/report", body, TOKEN).status == 200
    told = ask(one, "GET", "/status", token=TOKEN).body  # `ask` refuses what JSON has no word for
    assert [checkpoint["written_at"] for checkpoint in told["checkpoints"]] in ([None], [])


@pytest.fixture(scope="module")
def talk() -> Iterator[Talk]:
    one = Talk()
    yield one
    one.server.close()


pieces = st.sampled_from([
    b"GET /status HTTP/1.1\r\n", b"POST /v1/report HTTP/1.1\r\n", b"Content-Length: 5\r\n", b"Content-Length: -1\r\n",
    b"Content-Length: 99999999999\r\n", b"Content-Length: \xb2\r\n", b"Transfer-Encoding: chunked\r\n", b"\r\n\r\n",
    b"Authorization: Bearer secret\r\n", b"{}", b"[" * 100, b"\x00\xff", b"\r\n", b"GET / HTTP/9", b"\x16\x03\x01",
])  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(pieces | st.binary(max_size=40), max_size=12))
def test_no_bytes_break_the_server(talk: Talk, sent: list[bytes]) -> None:
    before = talk.coordinator.state.members
    talk.say(b"".join(sent))
    assert talk.healthy()
    assert talk.coordinator.state.members == before


@pytest.mark.parametrize(
    "data",
    [
        b"x" * 40_000,
        b"POST /v1/report HTTP/1.1\r\nAuthorization: Bearer secret\r\nContent-Length: 200000\r\n\r\n" + b"[" * 200_000,
        b"POST /v1/report HTTP/1.1\r\nAuthorization: Bearer secret\r\nContent-Length: 2\r\n\r\n[]",
        b"POST /v1/report HTTP/1.1\r\nContent-Length: \xb2\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_with_a_reason(talk: Talk, data: bytes) -> None:
    answer = talk.say(data)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.rpartition(b"\r\n\r\n")[2])["error"]
    assert talk.healthy()


def test_many_connections_that_say_nothing_disturb_nobody(talk: Talk) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    clients: list[socket.socket] = []
    try:
        for _ in range(min(2000, soft // 2 - 100)):
            clients.append(talk.connect())
            talk.turn()
        assert talk.healthy()
    finally:
        for client in clients:
            client.close()
    talk.turn()
    assert talk.healthy()


def test_when_descriptors_run_out_those_who_are_in_are_served_and_later_ones_wait() -> None:
    # In a process of its own: the limit would hold for all threads of this one.
    played = [sys.executable, "-W", "error", "-m", "tests.support.harness.out_of_descriptors"]
    done = subprocess.run(played, check=False, capture_output=True, text=True, timeout=60.0)
    assert (done.returncode, done.stdout) == (0, "served, then let in\n"), done.stderr
