"""What a launcher says: refused aloud, tried again until its bound at the end, nothing kept where nobody listens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.fakes.scripted_coordinator import ScriptedCoordinator
from tests.support.harness.launcher_harness import PORT, GangOnLoopback, terminate, until
from workflows.programs.launcher.coordinator_link import CoordinatorLink
from workflows.programs.launcher.options import parse, parse_place
from workflows.programs.launcher.rendezvous import GangComplete, LinkEvent, LogNote
from workflows.programs.runtime.http_server import Response

OPTIONS = ["--role=trainer", "--pods=1", "--processes-per-node=1", "--world-size=1", "--", "train"]


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[GangOnLoopback]:
    one = GangOnLoopback(tmp_path)
    yield one
    one.close()


@pytest.fixture
def coordinator(gang: GangOnLoopback) -> Iterator[Callable[[], ScriptedCoordinator]]:
    made: list[ScriptedCoordinator] = []

    def start() -> ScriptedCoordinator:
        made.append(ScriptedCoordinator(gang))
        return made[-1]

    yield start
    gang.close()
    for one in made:
        if one.open:
            one.close()


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
