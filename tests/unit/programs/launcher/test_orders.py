"""Orders of the coordinator: read as they are meant, refused aloud where they mean nothing, stacks beside the work.

What a launcher says: refused aloud, tried again until its bound at the end, nothing kept where nobody listens.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases.rows import rows
from tests.support.fakes.scripted_coordinator import ScriptedCoordinator
from tests.support.harness.launcher_harness import MAIN, PORT, GangOnLoopback, Program, alive, terminate, until
from workflows.programs.launcher.coordinator_link import CoordinatorLink
from workflows.programs.launcher.options import parse, parse_place
from workflows.programs.launcher.rendezvous import (
    GangComplete,
    LinkEvent,
    LogNote,
    NumberedOrder,
    RestartOrder,
    StacksOrder,
    StopOrder,
    parse_orders,
)
from workflows.programs.runtime.http_server import Response
from workflows.programs.stacks.collect import LIMIT_SECONDS
from workflows.programs.stacks.values import from_json

NOTHING = "an order of the coordinator is not understood, and nothing is done about it"
STOP = {"number": 9, "order": "stop", "why": "enough", "save": False}


def test_orders_are_read() -> None:
    said = [
        {"number": 1, "order": "restart", "why": "w", "incarnation": 2, "resume_from": "/c/5", "resume_step": 5},
        {"number": 2, "order": "restart", "why": "w", "incarnation": 3, "resume_from": None, "resume_step": None},
        {"number": 3, "order": "stacks", "why": "no progress", "id": "s3"},
        {"number": 4, "order": "stop", "why": "enough", "save": True, "later": "fields are ignored"},
    ]
    assert parse_orders({"orders": said}) == [
        (1, RestartOrder(2, "/c/5", 5, "w")),
        (2, RestartOrder(3, "", None, "w")),
        (3, StacksOrder("s3", "no progress")),
        (4, StopOrder("enough", True)),
    ]
    assert parse_orders({}) == []


@pytest.mark.parametrize("order", ["dance", "", None, "STOP", ["stop"], {}])
def test_an_unknown_order_is_no_stop(order: Any) -> None:
    ((number, news),) = parse_orders({"orders": [{"number": 7, "order": order, "why": "w", "save": True}]})
    assert number == 7
    assert isinstance(news, LogNote)
    assert NOTHING in news.text


@rows("programs/launcher/orders")
def test_half_an_order_is_none(said: dict[str, Any]) -> None:
    ((number, news),) = parse_orders({"orders": [said]})
    assert (number, type(news)) == (1, LogNote)


@pytest.mark.parametrize("number", [None, 0, -1, True, "1", 1.5])
def test_an_order_without_a_number_is_not_carried_out(number: Any) -> None:
    ((known, news),) = parse_orders({"orders": [{"number": number, "order": "stop"}]})
    assert (known, type(news)) == (0, LogNote)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = ("number", "order", "why", "incarnation", "resume_from", "resume_step", "id", "save")


@given(JSON | st.lists(JSON | st.dictionaries(st.sampled_from(KEYS), JSON)))
def test_whatever_is_said_nothing_but_a_stop_stops(said: Any) -> None:
    found = parse_orders({"orders": said})
    assert all(isinstance(one, NumberedOrder) and one.number >= 0 for one in found)
    assert "'stop'" in str(said) or not any(isinstance(one.order, StopOrder) for one in found)


@pytest.fixture
def coordinator(gang: GangOnLoopback) -> Iterator[Callable[..., ScriptedCoordinator]]:
    made: list[ScriptedCoordinator] = []

    def start(*statuses: int) -> ScriptedCoordinator:
        made.append(ScriptedCoordinator(gang, *statuses))
        return made[-1]

    yield start
    gang.close()
    for one in made:
        if one.open:
            one.close()


def demo(gang: GangOnLoopback, ranks: int = 2) -> Program:
    """The demo's ranks in one pod, far from their end."""
    (gang.folder / "corpus.txt").write_text("the quick brown fox jumps over the lazy dog, again and again; " * 200)
    corpus = f"--corpus={gang.folder / 'corpus.txt'}"
    command = [sys.executable, str(MAIN), "demo-train", "--steps=100000", "--step-seconds=0.02", corpus]
    return gang.launch(0, processes=ranks, command=command)


@pytest.mark.story
def test_ranks_say_where_they_stand_and_go_on(
    gang: GangOnLoopback, coordinator: Callable[..., ScriptedCoordinator]
) -> None:
    asked = coordinator()
    pod = demo(gang)
    pod.says("step 3/")
    asked.order({"number": 1, "order": "stacks", "why": "no progress", "id": "s1"})
    answer = from_json(asked.posted(1)[0])
    assert (answer.pod, answer.id, answer.dump.node) == ("pod-0", "s1", "node-0")
    tops = {one.rank: one for one in answer.dump.processes if one.top}
    assert set(tops) == {0, 1}
    assert {one.how for one in tops.values()} <= {"faulthandler", "py-spy"}
    assert 0 < answer.dump.seconds < LIMIT_SECONDS
    assert all("main" in {frame.function for frame in one.main.frames} for one in tops.values() if one.main)
    pod.says("stacks s1 (no progress): 2 of 2 ranks seen in")
    last = gang.steps()[-1]
    until(lambda: gang.steps()[-1] > last + 5, "the training goes on")
    asked.order(STOP)
    assert pod.end() == 143


@pytest.mark.story
def test_a_rank_that_is_stopped_holds_up_nobody(
    gang: GangOnLoopback, coordinator: Callable[..., ScriptedCoordinator]
) -> None:
    asked = coordinator(503)  # and the coordinator is busy the first time
    pod = gang.launch(0, processes=2, command=[sys.executable, str(gang.trainer)], HOLD="2")
    pod.says("step 2/")
    (report,) = [one for one in asked.seen if one.path == "/v1/report" and one.body["state"] == "running"]
    pids = {int(rank): int(pid) for rank, pid in report.body["pids"].items()}
    os.kill(pids[1], signal.SIGSTOP)
    asked.order({"number": 1, "order": "stacks", "why": "no progress", "id": "s1"})
    first, second = asked.posted(2)
    assert first == second
    seen = {one.rank: one for one in from_json(second).dump.processes}
    states = {rank: (one.state, bool(one.threads)) for rank, one in seen.items()}
    assert states == {0: ("sleeping", True), 1: ("stopped", True)}
    assert seen[0].how in ("faulthandler", "py-spy"), "a script that knows nothing of us tells its stack"
    asked.order(STOP)
    assert pod.end() == 143
    assert not any(map(alive, pids.values()))


@pytest.mark.story
def test_what_is_no_order_is_said_aloud_and_the_next_one_is_heard(
    gang: GangOnLoopback, coordinator: Callable[..., ScriptedCoordinator]
) -> None:
    asked = coordinator(404)
    pod = gang.launch(0, HOLD="2")
    pod.says("step 2/")
    asked.order({"number": 1, "order": "dance", "save": True}, {"number": 2, "order": "restart"})
    pod.says(f"{NOTHING}: {{'number': 1, 'order': 'dance'")
    pod.says(f"{NOTHING}: {{'number': 2, 'order': 'restart'")
    asked.order({"number": 3, "order": "stacks", "why": "w", "id": "s2"})
    pod.says("but the coordinator refused them with status 404")
    assert pod.process.poll() is None
    asked.order("no order at all")
    pod.says(f"{NOTHING}: no order at all")
    terminate(pod)
    assert pod.end() == 143


OPTIONS = ["--role=trainer", "--pods=1", "--processes-per-node=1", "--world-size=1", "--", "train"]


def link(gang: GangOnLoopback, url: str = f"http://coordinator:{PORT}") -> CoordinatorLink:
    place = parse_place({**gang.environment, "PRIMUS_COORDINATOR_URL": url, "PRIMUS_POD_IP": f"{gang.net}.10"})
    return CoordinatorLink(parse(OPTIONS), place)


def test_what_the_coordinator_refuses_is_said_once(
    gang: GangOnLoopback, coordinator: Callable[[], ScriptedCoordinator]
) -> None:
    asked = coordinator()
    asked.on_report = Response(400, {"error": "step: must be a whole number"})
    pod = gang.launch(0, STEPS="30", HOLD="20")
    pod.says("refuses what is reported, and it is dropped: 400 step: must be a whole number")
    until(lambda: len([one for one in asked.seen if one.path == "/v1/report"]) > 4, "further reports")
    asked.on_report = Response(403, {})
    pod.says("and it is dropped: 403")
    terminate(pod)
    assert pod.end() == 143
    assert len([line for line in pod.lines if "and it is dropped" in line]) == 2


def test_at_the_end_a_coordinator_that_is_away_is_tried_until_the_bound(
    gang: GangOnLoopback, coordinator: Callable[[], ScriptedCoordinator]
) -> None:
    first = coordinator()
    one = link(gang)
    one.start()
    heard: list[LinkEvent] = []
    until(
        lambda: heard.extend(one.take_events()) or any(isinstance(news, GangComplete) for news in heard),
        "the gang has met",
    )
    first.close()
    one.report({"report": "StepSeen", "step": 7})
    assert not one.flush(0.05), "the bound is kept"
    flushed: list[bool] = []
    waiting = threading.Thread(target=lambda: flushed.append(one.flush(30.0)))
    waiting.start()
    second = coordinator()
    waiting.join()
    assert flushed == [True]
    told = [report for request in second.seen if request.path == "/v1/report" for report in request.body["reports"]]
    assert [report["step"] for report in told] == [7]
    one.close()


def test_where_there_is_no_coordinator_nothing_is_kept_and_nothing_waited_for(gang: GangOnLoopback) -> None:
    one = link(gang, url="")
    one.start()
    for number in range(30_000):
        one.report({"report": "StepSeen", "step": number})
    one.report_state("ended")
    assert not one.flush(3600.0)
    assert not any(isinstance(news, LogNote) for news in one.take_events())
