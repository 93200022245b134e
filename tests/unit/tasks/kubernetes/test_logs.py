from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes.client.configuration import Configuration

from profiles.errors import NotFound, Refused, Unavailable
from tasks.kubernetes.api_server import ApiServer
from tasks.kubernetes.logs import LogSource, follow_log, read_log
from tests.support.fakes.fake_api_server import FakeApiServer, Fault, status


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    with FakeApiServer().running() as server:
        yield server


class Pauses:
    """What happens in the cluster while the reader waits; it waits no time at all."""

    def __init__(self) -> None:
        self.then: list[Callable[[], None]] = []

    def __call__(self, seconds: float) -> None:
        if self.then:
            self.then.pop(0)()


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
def container(api: FakeApiServer, pauses: Pauses) -> Iterator[LogSource]:
    server = ApiServer(lambda: Configuration(host=api.url), sleep=pauses)
    yield LogSource(server, "train", "p", "main")
    server.close()


def put_pod(api: FakeApiServer, state: str = "running", **metadata: Any) -> None:
    containers = [{"name": "main"}, {"name": "side"}]
    statuses = [{"name": "main", "state": {state: {}}}, {"name": "side", "state": {"running": {}}}]
    body = {"spec": {"containers": containers}, "status": {"phase": "Running", "containerStatuses": statuses}}
    api.put("pods", {"metadata": {"name": "p"} | metadata, **body})


def line(second: int, text: str, fraction: str = ".000000001") -> bytes:
    return f"2026-11-21T09:36:{second:02}{fraction}Z {text}\n".encode()


def test_a_log_is_what_was_printed_and_its_tail(container: LogSource, api: FakeApiServer) -> None:
    api.logs["p"] = [line(1, "one"), line(2, "zwei \u00fc"), line(3, "three")]
    assert read_log(container, None) == "one\nzwei \u00fc\nthree\n"
    assert read_log(container, 1) == "three\n"
    assert api.seen[-1].query == {"container": "main", "tailLines": "1"}


def test_of_a_log_that_does_not_fit_the_newest_part_is_kept(
    container: LogSource, api: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.kubernetes.logs.LOG_BYTES", 100)
    api.logs["p"] = [line(1, f"line {number:04}") for number in range(1000)]
    assert read_log(container, None).splitlines() == [f"line {number:04}" for number in range(990, 1000)]


def test_undecodable_output_is_shown_as_far_as_possible(container: LogSource, api: FakeApiServer) -> None:
    api.logs["p"] = [b"2026-11-21T09:36:01Z caf\xe9\n"]
    assert read_log(container, None) == "caf\ufffd\n"


def test_a_container_that_has_not_started_has_printed_nothing(container: LogSource, api: FakeApiServer) -> None:
    message = 'container "main" in pod "p" is waiting to start: ContainerCreating'
    api.faults.append(Fault("/log", 400, status(400, "BadRequest", message)))
    assert read_log(container, None) == ""


def test_a_pod_that_is_gone_is_not_found_and_a_container_it_has_not_is_refused(
    container: LogSource, api: FakeApiServer
) -> None:
    with pytest.raises(NotFound):
        read_log(container, None)
    api.faults.append(Fault("/log", 400, status(400, "BadRequest", 'container "x" is not valid for pod "p"')))
    with pytest.raises(Refused, match="not valid"):
        read_log(container, None)


@pytest.mark.parametrize(
    ("annotations", "chosen"), [({}, "main"), ({"kubectl.kubernetes.io/default-container": "side"}, "side")]
)
def test_without_a_name_the_pods_default_container_is_read(
    container: LogSource, api: FakeApiServer, annotations: dict[str, str], chosen: str
) -> None:
    put_pod(api, annotations=annotations)
    api.logs["p"] = [line(1, "one")]
    message = "a container name must be specified for pod p, choose one of: [main side]"
    api.faults.append(Fault("/log", 400, status(400, "BadRequest", message)))
    unnamed = LogSource(container.server, "train", "p", "")
    assert read_log(unnamed, None) == "one\n"
    assert api.seen[-1].query["container"] == chosen


def test_following_hands_on_each_line_once_until_the_container_ends(
    container: LogSource, api: FakeApiServer, pauses: Pauses
) -> None:
    put_pod(api)
    api.logs["p"] = [line(1, "one"), line(2, "same"), line(2, "same")]

    def prints_more() -> None:
        api.logs["p"] += [line(2, "same"), line(2, "late", ".5"), line(3, "three")]

    def ends() -> None:
        api.logs["p"].append(line(3, "last words"))
        put_pod(api, "terminated")

    pauses.then = [prints_more, ends]
    assert list(follow_log(container, 20.0)) == ["one", "same", "same", "same", "late", "three", "last words"]
    asked = [seen.query.get("sinceTime") for seen in api.requests("GET", "/log")]
    assert asked[:3] == [None, "2026-11-21T09:36:02Z", "2026-11-21T09:36:03Z"]


def test_following_waits_for_a_container_that_has_not_started(
    container: LogSource, api: FakeApiServer, pauses: Pauses
) -> None:
    put_pod(api, "waiting")
    api.logs["p"] = [line(1, "one")]
    api.faults.append(Fault("/log", 400, status(400, "BadRequest", "is waiting to start: PodInitializing"), times=2))
    pauses.then = [lambda: None, lambda: put_pod(api, "terminated")]
    assert list(follow_log(container, 20.0)) == ["one"]


def test_following_goes_on_through_a_broken_connection_and_ends_with_the_pod(
    container: LogSource, api: FakeApiServer, pauses: Pauses
) -> None:
    put_pod(api)
    api.logs["p"] = [line(1, "one")]
    lines = follow_log(container, 20.0)
    assert next(lines) == "one"
    api.faults.append(Fault("/log", 0, times=2))
    api.logs["p"].append(line(2, "two"))
    assert next(lines) == "two"
    pauses.then = [lambda: api.remove("pods", "p")]
    assert list(lines) == []


def test_time_stamps_of_another_time_zone_are_gone_on_from(
    container: LogSource, api: FakeApiServer, pauses: Pauses
) -> None:
    put_pod(api)
    api.logs["p"] = [b"2026-11-21T11:36:01.25+02:00 one\n"]
    pauses.then = [lambda: put_pod(api, "terminated")]
    assert list(follow_log(container, 20.0)) == ["one"]
    assert api.requests("GET", "/log")[-1].query["sinceTime"] == "2026-11-21T11:36:01+02:00"


def test_following_ends_when_the_time_is_up_and_says_so_when_nobody_ever_answered(
    container: LogSource, api: FakeApiServer
) -> None:
    put_pod(api)
    api.logs["p"] = [line(1, "one")]
    assert list(follow_log(container, 0.1)) == ["one"]
    api.faults.append(Fault("GET", 0, times=10**9))
    with pytest.raises(Unavailable, match="does not answer"):
        list(follow_log(container, 0.1))
