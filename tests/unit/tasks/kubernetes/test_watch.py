from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from kubernetes.client.configuration import Configuration

from profiles.errors import NotFound, Unavailable
from tasks.cluster import Seen
from tasks.kubernetes.api_server import ApiServer
from tasks.kubernetes.resources import RESOURCES, selector
from tasks.kubernetes.watch import Collection, list_all, watch
from tests.support.fakes.fake_api_server import FakeApiServer, Fault, status

LONG = 20.0
"""Seconds that no test waits for: it stops reading when it has seen what it expects."""


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def pods(api: FakeApiServer, slept: list[float]) -> Iterator[Collection]:
    server = ApiServer(lambda: Configuration(host=api.url), sleep=slept.append)
    yield Collection(server, RESOURCES["Pod"], "train", {})
    server.close()


def pod(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}}


def brief(event: Seen) -> tuple[str, str]:
    return event.type, event.object.get("metadata", {}).get("name", "")


def take(events: Iterator[Seen], count: int) -> list[tuple[str, str]]:
    return [brief(next(events)) for _ in range(count)]


def test_a_watch_begins_with_what_exists_and_goes_on_with_changes(pods: Collection, api: FakeApiServer) -> None:
    api.put("pods", pod("a"))
    api.put("pods", pod("b"))
    events = watch(pods, None, LONG)
    assert take(events, 2) == [("ADDED", "a"), ("ADDED", "b")]
    api.put("pods", pod("b"))
    api.remove("pods", "a")
    assert take(events, 2) == [("MODIFIED", "b"), ("DELETED", "a")]
    assert api.requests("GET")[-1].query["allowWatchBookmarks"] == "true"


def test_it_goes_on_after_any_event_without_repeating_or_missing_one(pods: Collection, api: FakeApiServer) -> None:
    api.put("pods", pod("a"))
    first = next(watch(pods, None, LONG))
    for name in ("b", "c", "d"):
        api.put("pods", pod(name))
    second = next(watch(pods, first.resource_version, LONG))
    rest = watch(pods, second.resource_version, LONG)
    assert [brief(second), *take(rest, 2)] == [("ADDED", "b"), ("ADDED", "c"), ("ADDED", "d")]
    assert len([seen for seen in api.seen if "watch" not in seen.query]) == 1


def test_whoever_stopped_within_a_list_is_told_to_begin_anew(pods: Collection, api: FakeApiServer) -> None:
    api.put("pods", pod("a"))
    api.put("pods", pod("b"))
    first = next(watch(pods, None, LONG))
    assert first.resource_version == ""
    api.remove("pods", "a")
    assert take(watch(pods, first.resource_version, LONG), 2) == [("SYNC", ""), ("ADDED", "b")]


def test_it_ends_when_the_time_is_up(pods: Collection, api: FakeApiServer) -> None:
    api.put("pods", pod("a"))
    assert [brief(event) for event in watch(pods, None, 0.2)] == [("ADDED", "a")]
    assert list(watch(pods, str(api.version), 0.0)) == []


def test_a_dropped_connection_is_continued_where_it_broke(pods: Collection, api: FakeApiServer) -> None:
    events = watch(pods, "100", LONG)
    for name in ("a", "b", "c"):
        api.put("pods", pod(name))
        assert take(events, 1) == [("ADDED", name)]
        api.wait_for_watches()
        api.drop_streams()
    assert [seen.query["resourceVersion"] for seen in api.seen] == ["100", "101", "102"]


def test_a_version_that_was_forgotten_leads_to_one_sync_and_everything_that_exists(
    pods: Collection, api: FakeApiServer
) -> None:
    events = watch(pods, "100", LONG)
    api.put("pods", pod("a"))
    assert take(events, 1) == [("ADDED", "a")]
    api.put("pods", pod("b"))
    api.remove("pods", "a")
    api.wait_for_watches()
    api.forget()
    api.drop_streams()
    rest = take(events, 2)
    # What was sent before the connection broke may come first; then the list, and nothing twice after it.
    while rest[0][0] != "SYNC":
        rest = [*rest[1:], *take(events, 1)]
    assert rest == [("SYNC", ""), ("ADDED", "b")]
    api.put("pods", pod("c"))
    assert take(events, 1) == [("ADDED", "c")]


def test_a_version_from_before_the_cluster_was_restored_leads_to_a_sync(pods: Collection, api: FakeApiServer) -> None:
    api.put("pods", pod("a"))
    too_large = status(504, "Timeout", "Too large resource version", causes=[{"reason": "ResourceVersionTooLarge"}])
    api.faults.append(Fault("watch=true", 504, too_large))
    assert take(watch(pods, "999", LONG), 2) == [("SYNC", ""), ("ADDED", "a")]


def test_a_sync_of_nothing_can_be_gone_on_from(pods: Collection, api: FakeApiServer) -> None:
    api.forget()
    sync = next(watch(pods, "100", LONG))
    assert (sync.type, sync.resource_version) == ("SYNC", str(api.version))


def test_a_bookmark_moves_the_version_and_is_not_shown(pods: Collection, api: FakeApiServer) -> None:
    events = watch(pods, "100", LONG)
    api.put("pods", pod("a"))
    assert take(events, 1) == [("ADDED", "a")]
    bookmark = {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "777"}}}
    api.wait_for_watches()
    api.inject(json.dumps(bookmark).encode() + b"\n")
    api.version = 777
    api.inject(
        json.dumps(
            {"type": "ADDED", "object": pod("x") | {"metadata": {"name": "x", "resourceVersion": "778"}}}
        ).encode()
        + b"\n"
    )
    assert take(events, 1) == [("ADDED", "x")]
    api.version = 778
    api.drop_streams()
    api.put("pods", pod("b"))
    assert take(events, 1) == [("ADDED", "b")]
    assert api.seen[-1].query["resourceVersion"] == "778"


NONSENSE = [
    b"\x00\xff garbage\n",
    b'{"type": "ADDED"}\n',
    b"[]\n",
    b'{"type": "WHAT", "object": {"metadata": {"resourceVersion": "1"}}}\n',
]


@pytest.mark.parametrize("line", [*NONSENSE, b'{"type": "ERROR", "object": {"code": 500, "message": "etcd"}}\n'])
def test_nonsense_on_the_line_is_a_broken_connection(
    pods: Collection, api: FakeApiServer, slept: list[float], line: bytes
) -> None:
    events = watch(pods, "100", LONG)
    api.put("pods", pod("a"))
    assert take(events, 1) == [("ADDED", "a")]
    api.wait_for_watches()
    api.inject(line)
    api.put("pods", pod("b"))
    assert take(events, 1) == [("ADDED", "b")]
    assert len([seen for seen in api.seen if "watch" in seen.query]) <= 2


def test_a_line_without_an_end_does_not_fill_the_memory(
    pods: Collection, api: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.kubernetes.api_server._LINE_BYTES", 1000)
    events = watch(pods, "100", LONG)
    api.put("pods", pod("a"))
    assert take(events, 1) == [("ADDED", "a")]
    api.wait_for_watches()
    api.inject(b"x" * 5000)
    api.put("pods", pod("b"))
    assert take(events, 1) == [("ADDED", "b")]


def test_a_server_that_only_fails_is_reported_after_a_while(pods: Collection, api: FakeApiServer) -> None:
    seconds = iter(range(1000))
    server = ApiServer(lambda: Configuration(host=api.url), clock=lambda: float(next(seconds)), sleep=lambda _: None)
    api.faults.append(Fault("watch=true", 0, times=1000))
    with pytest.raises(Unavailable, match="does not answer"):
        list(watch(Collection(server, RESOURCES["Pod"], "train", {}), "100", 600.0))
    assert 2 <= len(api.seen) <= 10


@pytest.mark.parametrize("since", [None, "", "100"])
@pytest.mark.parametrize("seconds", [1.0, 3.0])
def test_a_server_that_is_not_heard_is_no_cluster_without_objects(
    api: FakeApiServer, since: str | None, seconds: float
) -> None:
    """An end without an error would say that there is nothing (else): of a server that is away nobody knows."""
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    server = ApiServer(lambda: Configuration(host=api.url), clock=lambda: clock[0], sleep=sleep)
    api.faults.append(Fault("/pods", 0, times=1000))
    with pytest.raises(Unavailable):
        list(watch(Collection(server, RESOURCES["Pod"], "train", {}), since, seconds))


def test_a_list_that_breaks_off_is_not_taken_for_the_whole(api: FakeApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.kubernetes.watch.PAGE", 2)
    for name in ("a", "b", "c"):
        api.put("pods", pod(name))
    server = ApiServer(lambda: Configuration(host=api.url), clock=count().__next__, sleep=lambda _: None)
    api.faults.append(Fault("continue=", 0, times=1000))
    events = watch(Collection(server, RESOURCES["Pod"], "train", {}), None, 0.0)
    assert take(events, 2) == [("ADDED", "a"), ("ADDED", "b")]
    with pytest.raises(Unavailable):
        list(events)


def test_a_server_that_ends_every_watch_at_once_is_not_asked_without_a_pause(
    pods: Collection, api: FakeApiServer, slept: list[float]
) -> None:
    api.faults.append(Fault("watch=true", 200, b"", times=3))
    api.put("pods", pod("a"))
    assert take(watch(pods, "100", LONG), 1) == [("ADDED", "a")]
    assert slept == [0.2] * 3


def test_a_busy_server_is_given_the_time_it_asks_for(pods: Collection, api: FakeApiServer, slept: list[float]) -> None:
    api.faults.append(Fault("watch=true", 429, status(429, "TooManyRequests"), {"Retry-After": "3"}))
    api.put("pods", pod("a"))
    assert take(watch(pods, "100", LONG), 1) == [("ADDED", "a")]
    assert slept == [3.0]


def test_a_kind_that_is_not_served_is_said_at_once(pods: Collection, api: FakeApiServer) -> None:
    api.faults.append(Fault("/pods", 404, b"404 page not found"))
    with pytest.raises(NotFound, match="does not serve"):
        next(watch(pods, None, LONG))


def test_only_objects_with_all_labels_are_asked_for(pods: Collection, api: FakeApiServer) -> None:
    api.put("pods", pod("a", run="x", attempt="1"))
    api.put("pods", pod("b", run="x", attempt="2"))
    chosen = Collection(pods.server, pods.resource, pods.namespace, selector({"run": "x", "attempt": "2"}))
    assert take(watch(chosen, None, LONG), 1) == [("ADDED", "b")]
    assert [item["metadata"]["name"] for item in list_all(chosen)] == ["b"]


def test_a_long_list_is_read_in_pages_and_is_whole(
    pods: Collection, api: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.kubernetes.watch.PAGE", 2)
    for number in range(5):
        api.put("pods", pod(f"p{number}"))
    found = list_all(pods)
    assert [item["metadata"]["name"] for item in found] == ["p0", "p1", "p2", "p3", "p4"]
    assert {(item["kind"], item["apiVersion"]) for item in found} == {("Pod", "v1")}
    assert len(api.seen) == 3
    versions = [event.resource_version for event in watch(pods, None, 0.1)]
    assert versions == ["", "", "", "", str(api.version)]


def test_a_list_whose_pages_expired_is_begun_anew(
    pods: Collection, api: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.kubernetes.watch.PAGE", 2)
    for number in range(3):
        api.put("pods", pod(f"p{number}"))
    expired = status(410, "Expired", "The provided continue parameter is too old")
    api.faults.append(Fault("continue=", 410, expired))
    assert len(list_all(pods)) == 3
    api.faults.append(Fault("continue=", 410, expired))
    events = take(watch(pods, None, LONG), 6)
    assert events[2:] == [("SYNC", ""), ("ADDED", "p0"), ("ADDED", "p1"), ("ADDED", "p2")]
    api.faults.append(Fault("continue=", 410, expired, times=9))
    with pytest.raises(Unavailable, match="continue parameter"):
        list_all(pods)
