"""The coordinator's answers, without a socket: who may ask, what is refused, what is remembered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases.rows import rows
from workflows.programs.coordinator import service
from workflows.programs.coordinator.main import Options, parse
from workflows.programs.coordinator.service import Coordinator
from workflows.programs.coordinator.store import ExpectedGang
from workflows.programs.runtime.flags import UsageError
from workflows.programs.runtime.http_server import DeferredResponse, Request, Response


def ask(coordinator: Coordinator, method: str, path: str, body: Any = None, token: str = "t", **query: str) -> Response:
    answer = coordinator.handle(Request(method, path, query, token, body or {}))
    if isinstance(answer, DeferredResponse):
        answer = answer.poll() or answer.timeout_response
    json.dumps(answer.body, allow_nan=False)
    return answer


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator(
        ExpectedGang("trainer", 1, 2, 300), {"PRIMUS_TOKEN": "t", "PRIMUS_RUN": "r", "PRIMUS_ATTEMPT": "3"}
    )


@pytest.mark.parametrize("token", ["", "x", "tt", "grüße"])
def test_without_the_token_there_is_only_health(coordinator: Coordinator, token: str) -> None:
    assert ask(coordinator, "GET", "/healthz", token=token).status == 200
    for method, path in (("GET", "/status"), ("POST", "/v1/stop"), ("GET", "/nothing")):
        assert ask(coordinator, method, path, token=token).status == 401


def test_an_empty_token_opens_nothing() -> None:
    assert ask(Coordinator(ExpectedGang("trainer"), {}), "GET", "/status", token="").status == 401


@rows("programs/coordinator/http")
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


def test_a_checkpoint_that_nobody_has_read_is_written_and_in_no_list(coordinator: Coordinator, tmp_path: Path) -> None:
    coordinator.open_journal(str(tmp_path / "journal"))
    ask(coordinator, "POST", "/v1/join", {"role": "trainer", "pod_index": 0})
    seen = {"report": "CheckpointSeen", "step": 20, "path": "/c/20", "at": 9.0, "written_at": 8.0, "verdict": "unknown"}
    ask(coordinator, "POST", "/v1/report", report(seen))
    coordinator.close()
    again = Coordinator(ExpectedGang("trainer", 1, 2, 300), {"PRIMUS_TOKEN": "t"})
    again.open_journal(str(tmp_path / "journal"))
    again.close()
    for one in (coordinator, again):
        # The flow writes what is listed into the ledger, and what is not bad there it may go on from.
        status = ask(one, "GET", "/status").body
        assert (status["checkpoints"], status["last_checkpoint_step"]) == ([], None)
        assert (status["saves"]["written"], status["saves"]["durable"]) == (20, None)
    ask(coordinator, "POST", "/v1/report", report({**seen, "verdict": "pass", "at": 30.0}, sequence=2))
    status = ask(coordinator, "GET", "/status").body
    assert [one["verdict"] for one in status["checkpoints"]] == ["pass"]
    assert (status["saves"]["written"], status["saves"]["durable"]) == (20, 20)


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
        one = Coordinator(ExpectedGang("trainer", 1, 1), {"PRIMUS_TOKEN": "t"})
        one.open_journal(path)
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


def test_metrics_tell_what_is_known_and_only_that(coordinator: Coordinator) -> None:
    before = ask(coordinator, "GET", "/metrics").body
    assert "primus_gang_step " not in before
    assert "primus_gang_heartbeat_age_seconds{" not in before
    ask(coordinator, "POST", "/v1/join", {"role": "trainer", "pod_index": 0, "pod": "p", "node": 'n"1'})
    step = {"report": "StepSeen", "step": 7, "at": 5.0, "loss": 2.0}
    ask(coordinator, "POST", "/v1/report", report(step, state="running", pids={"0": 42, "1": 43}))
    text = ask(coordinator, "GET", "/metrics").body
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    known = {"primus_gang_step": "7", "primus_gang_planned_steps": "300", "primus_gang_ranks_up": "2",
             "primus_gang_incarnation": "1", 'primus_gang_restarts_total{kind="hang"}': "0",
             "primus_gang_restarts_left": "0", "primus_gang_hang": "0", "primus_gang_launchers": "1",
             "primus_gang_hang_budget_seconds": "1800"}  # fmt: skip
    assert {name: lines[name] for name in known} == known
    assert 0 <= float(lines['primus_gang_heartbeat_age_seconds{pod_index="0",node="n\\"1"}']) < 60
    families = {line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert families == {line.partition("{")[0].split(" ")[0] for line in lines}
    documented = (Path(__file__).parents[4] / "docs" / "coordinator.md").read_text()
    assert [name for name in families if f"`{name}`" not in documented] == []


def test_stacks_are_taken_only_where_they_were_asked_for(coordinator: Coordinator) -> None:
    ask(coordinator, "POST", "/v1/join", {"role": "trainer", "pod_index": 0, "pod": "p"})
    body: dict[str, Any] = {"pod": "p", "node": "n", "id": "s1", "at": 1.0, "seconds": 0.1, "left_out": 0, "stacks": []}
    assert ask(coordinator, "POST", "/v1/stacks", body).status == 409
    assert ask(coordinator, "POST", "/v1/stacks", {**body, "stacks": "x"}).status == 400
    assert ask(coordinator, "POST", "/v1/stacks", body, token="x").status == 401


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


def test_limits_come_from_flags_and_0_means_that_none_is_known() -> None:
    told = parse(["--hang-init-seconds=5", "--hang-step-floor-seconds=2", "--hang-announces=true"]).gang
    assert (told.hang.init_seconds, told.hang.step_floor_seconds, told.hang.announces) == (5.0, 2.0, True)
    assert parse([]).gang.hang.init_seconds == float("inf")


@rows("programs/coordinator/http")
def test_wrong_options_are_named(flag: str) -> None:
    with pytest.raises(UsageError, match=flag.partition("=")[0]):
        parse([flag])


def test_checkpoints_may_go_while_all_train_and_the_flow_says_so(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "RELEASE_EACH_SECONDS", 0.0)
    sequence = 0

    def tell(*items: dict[str, Any], **more: Any) -> object:
        nonlocal sequence
        sequence += 1
        return ask(coordinator, "POST", "/v1/report", report(*items, sequence=sequence, **more)).body.get("surplus")

    ask(coordinator, "POST", "/v1/join", {"role": "trainer", "pod_index": 0, "pods": 1, "processes": 2})
    step = {"report": "StepSeen", "step": 9, "at": 5.0, "rank": 0, "loss": 2.0}
    assert tell(step, state="running", pids={"0": 7, "1": 8}) is None, "the flow has said nothing"
    assert ask(coordinator, "GET", "/status", surplus="5f1c").body["removed"] == []
    assert tell() == "5f1c"
    assert tell({"report": "PhaseSeen", "phase": "restore", "at": 6.0, "rank": 0}) is None, "somebody reads one"
    assert tell({**step, "step": 10}) == "5f1c"
    seen = {"report": "CheckpointSeen", "step": 8, "path": "/c/8", "at": 7.0, "verdict": "pass", "resume_from": "/c/8"}
    tell(seen, {**seen, "step": 9, "path": "/c/9"}, {**seen, "verdict": "unknown", "format": "removed"})
    told = ask(coordinator, "GET", "/status").body
    assert [one["path"] for one in told["checkpoints"]] == ["/c/9"], "nothing begins again from what is gone"
    assert [one["path"] for one in told["removed"]] == ["/c/8"]
    assert tell({**step, "step": 11, "loss": "nan"}) is None, "a roll-back may come"


def test_a_word_of_the_flow_holds_for_seconds_and_is_passed_on_once_a_second() -> None:
    release = service.SurplusRelease()
    assert release.take(100.0) == ""
    release.note("5f1c", 100.0)
    assert [release.take(100.0 + after) for after in (0.0, 0.9, 1.0, 4.9, 5.0, 7.0)] == [
        "5f1c",
        "",
        "5f1c",
        "5f1c",
        "",
        "",
    ]


@pytest.mark.parametrize("why", ["ended", "stopped", "leaving"])
def test_nothing_goes_once_a_rank_has_ended_or_the_gang_stops(
    coordinator: Coordinator, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "RELEASE_EACH_SECONDS", 0.0)
    ask(coordinator, "POST", "/v1/join", {"role": "trainer", "pod_index": 0, "pods": 1, "processes": 2})
    step = {"report": "StepSeen", "step": 9, "at": 5.0, "rank": 0, "loss": 2.0}
    ask(coordinator, "POST", "/v1/report", report(step, state="running", pids={"0": 7, "1": 8}))
    ask(coordinator, "GET", "/status", surplus="5f1c")
    assert ask(coordinator, "POST", "/v1/report", report(sequence=2)).body == {"surplus": "5f1c"}
    if why == "stopped":
        ask(coordinator, "POST", "/v1/stop", {"why": "asked"})
    end = {"report": "RankEnd", "rank": 1, "local_rank": 1, "at": 6.0, "exit_code": 1}
    told = report(*([end] if why == "ended" else []), sequence=3, state="leaving" if why == "leaving" else "")
    assert "surplus" not in ask(coordinator, "POST", "/v1/report", told).body
