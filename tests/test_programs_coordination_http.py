"""The coordinator's answers, without a socket: who may ask, what is refused, what is remembered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.programs.coordinate import Options, parse
from workflows.programs.coordinator import Coordinator, Gang
from workflows.programs.flags import UsageError
from workflows.programs.serve import Later, Request, Response


def ask(coordinator: Coordinator, method: str, path: str, body: Any = None, token: str = "t", **query: str) -> Response:
    answer = coordinator.handle(Request(method, path, query, token, body or {}))
    if isinstance(answer, Later):
        answer = answer.look() or answer.otherwise
    json.dumps(answer.body, allow_nan=False)
    return answer


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator(Gang("trainer", 1, 2, 300), {"PRIMUS_TOKEN": "t", "PRIMUS_RUN": "r", "PRIMUS_ATTEMPT": "3"})


@pytest.mark.parametrize("token", ["", "x", "tt", "grüße"])
def test_without_the_token_there_is_only_health(coordinator: Coordinator, token: str) -> None:
    assert ask(coordinator, "GET", "/healthz", token=token).status == 200
    for method, path in (("GET", "/status"), ("POST", "/v1/stop"), ("GET", "/nothing")):
        assert ask(coordinator, method, path, token=token).status == 401


def test_an_empty_token_opens_nothing() -> None:
    assert ask(Coordinator(Gang("trainer"), {}), "GET", "/status", token="").status == 401


@pytest.mark.parametrize(
    ("method", "path", "body", "query", "status"),
    [
        ("GET", "/v1/join", {}, {}, 404),
        ("POST", "/v1/join", {"role": "trainer"}, {}, 400),
        ("POST", "/v1/join", {"role": "trainer", "pod_index": "x"}, {}, 400),
        ("POST", "/v1/join", {"role": "trainer", "pod_index": 4}, {}, 409),
        ("POST", "/v1/report", {"role": "trainer", "pod_index": 0}, {}, 404),
        ("GET", "/v1/rendezvous", {}, {}, 400),
        ("GET", "/v1/steps", {}, {"since": "x"}, 400),
        ("POST", "/v1/publish", {"incarnation": 1}, {}, 400),
    ],
)
def test_a_request_that_is_wrong_is_answered_with_what_is_wrong(
    coordinator: Coordinator, method: str, path: str, body: Any, query: dict[str, str], status: int
) -> None:
    answer = ask(coordinator, method, path, body, **query)
    assert answer.status == status
    assert answer.body["error"]


def report(*items: dict[str, Any], sequence: int = 1, **more: Any) -> dict[str, Any]:
    return {"role": "trainer", "pod_index": 0, "sequence": sequence, "reports": list(items), **more}


def test_status_and_steps_tell_what_was_reported(coordinator: Coordinator) -> None:
    ask(coordinator, "POST", "/v1/join", {"role": "trainer", "pod_index": 0, "pod": "p", "node": "n"})
    step = {"report": "StepSeen", "step": 7, "at": 5.0, "loss": "nan", "seconds": 0.1}
    unknown = {"report": "SomethingNewer", "x": 1}
    ask(coordinator, "POST", "/v1/report", report(step, unknown, {"step": 1}, state="running", pids={"0": 42}))
    status = ask(coordinator, "GET", "/status").body
    assert (status["run"], status["attempt"], status["step"], status["steps"]) == ("r", 3, 7, 300)
    assert status["loss"] == "nan"
    assert status["first_step"] == {"step": 7, "at": 5.0}
    assert status["first_nan_step"] == 7
    assert status["launched_at"] is not None
    (member,) = status["members"]
    assert (member["state"], member["ranks"], member["pids"]) == ("running", [0, 1], {"0": 42})
    assert ask(coordinator, "GET", "/v1/steps", since="0").body == {"next": 1, "steps": [[7, 5.0, 0.1, "nan"]]}
    assert ask(coordinator, "GET", "/v1/steps", since="1").body == {"next": 1, "steps": []}


def test_moments_are_told_to_those_who_ask_for_them(coordinator: Coordinator) -> None:
    ask(coordinator, "POST", "/v1/join", {"role": "trainer", "pod_index": 0})
    said = [
        {"report": "PhaseSeen", "phase": name, "at": at, "detail": "why"}
        for name, at in (("checkpoint", 7.5), ("step", 8.0), ("checkpoint", 9.0))
    ]
    ask(coordinator, "POST", "/v1/report", report(*said))
    told = ask(coordinator, "GET", "/v1/steps", since="0", moments_since="0").body
    assert (told["next"], told["steps"], told["next_moment"]) == (0, [], 3)
    assert json.loads(json.dumps(told["moments"])) == [
        ["checkpoint-begin", 7.5, "why"],
        ["checkpoint-end", 8.0, "why"],
        ["checkpoint-begin", 9.0, "why"],
    ]
    assert ask(coordinator, "GET", "/v1/steps", moments_since="3").body["moments"] == []


def test_steps_are_read_in_portions_without_a_gap(coordinator: Coordinator) -> None:
    ask(coordinator, "POST", "/v1/join", {"role": "trainer", "pod_index": 0})
    for batch in range(12):
        items = [{"report": "StepSeen", "step": batch * 1000 + n, "at": 1.0} for n in range(1000)]
        ask(coordinator, "POST", "/v1/report", report(*items, sequence=batch + 1))
    seen: list[int] = []
    since = 0
    while True:
        answer = ask(coordinator, "GET", "/v1/steps", since=str(since)).body
        if not answer["steps"]:
            break
        seen += [row[0] for row in answer["steps"]]
        since = answer["next"]
    assert seen == list(range(12_000))
    assert ask(coordinator, "GET", "/v1/steps", since="99999").body["steps"] == []


def test_a_coordinator_that_is_started_again_remembers(tmp_path: Path) -> None:
    path = str(tmp_path / "a1" / "coordinator" / "journal.jsonl")
    statuses: list[Any] = []
    for _ in range(2):
        one = Coordinator(Gang("trainer", 1, 1), {"PRIMUS_TOKEN": "t"})
        one.remember(path)
        if not statuses:
            ask(one, "POST", "/v1/join", {"role": "trainer", "pod_index": 0, "pod": "p"})
            ask(one, "POST", "/v1/publish", {"incarnation": 1, "master_addr": "127.0.0.5", "master_port": 5})
            ask(one, "POST", "/v1/report", report({"report": "StepSeen", "step": 7, "at": 5.0}, state="running"))
        one.close()
        rendezvous = ask(one, "GET", "/v1/rendezvous", role="trainer").body
        status = ask(one, "GET", "/status").body
        statuses.append([rendezvous, *(status[name] for name in ("step", "first_step", "members", "launched_at"))])
        for member in statuses[-1][3]:
            assert member.pop("last_heard_at") > 0
    assert statuses[0] == statuses[1]


def test_orders_reach_the_others_through_http(coordinator: Coordinator) -> None:
    ask(coordinator, "POST", "/v1/join", {"role": "trainer", "pod_index": 0})
    assert ask(coordinator, "GET", "/v1/orders", pod_index="0").body == {"orders": []}
    ask(coordinator, "POST", "/v1/stop", {"why": "drill"})
    (order,) = ask(coordinator, "GET", "/v1/orders", pod_index="0", since="0").body["orders"]
    assert order == {"number": 1, "order": "stop", "why": "drill", "save": True}
    assert ask(coordinator, "GET", "/v1/orders", pod_index="0", since="1").body == {"orders": []}


@given(st.builds(Options, st.sampled_from(["trainer", "a"]), st.integers(1, 9), st.integers(1, 9), st.integers(0, 9)))
def test_options_round_trip(options: Options) -> None:
    assert parse(options.argv()) == options


@pytest.mark.parametrize("flag", ["--pods=0", "--pods=many", "--colour=red", "--processes-per-node=-1"])
def test_wrong_options_are_named(flag: str) -> None:
    with pytest.raises(UsageError, match=flag.partition("=")[0]):
        parse([flag])
