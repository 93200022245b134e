"""The table of JobSets: whole or silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from profiles.errors import Unavailable
from tasks.cluster import Seen
from tasks.observe.reflector import RELIST_SECONDS, JobSetWatch
from tests.support.harness.embedded_stage import cluster, jobset, role
from tests.support.running.waiting import until
from workflows import labels


def one(run: str, pipeline: str = "train") -> dict[str, Any]:
    made: dict[str, Any] = jobset(f"{run}-a1", role("trainer", 1, "sleep", "600"))
    made["metadata"]["labels"] = labels.labels(run, 1, pipeline)
    return made


def names(watch: JobSetWatch) -> set[str] | str:
    found = watch.all()
    return found if isinstance(found, str) else {item.name for item in found}


def test_it_follows_what_comes_and_goes(tmp_path: Path) -> None:
    with cluster(tmp_path) as real:
        real.apply(one("first"))
        real.apply(one("other", pipeline="anothers"))
        with JobSetWatch(real, time.time) as watch:
            assert isinstance(names(watch), str) or names(watch) == {"first-a1"}
            until("the list is read", lambda: names(watch) == {"first-a1"})
            real.apply(one("second"))
            until("the second is seen", lambda: names(watch) == {"first-a1", "second-a1"})
            real.delete("JobSet", "first-a1", grace_seconds=0)
            until("the first is gone", lambda: names(watch) == {"second-a1"})


class Told:
    """A cluster that tells what it is told to."""

    def __init__(self, *calls: Any) -> None:
        self.calls = list(calls)
        self.since: list[str | None] = []

    def watch(
        self, kind: str, selector: Any = None, *, since: str | None = None, timeout_seconds: float
    ) -> Iterator[Any]:
        assert (kind, selector) == ("JobSet", {labels.PIPELINE: "train"})
        self.since.append(since)
        if not self.calls:
            threading.Event().wait(timeout_seconds)  # quiet
            return
        call = self.calls.pop(0)
        if isinstance(call, Exception):
            raise call
        for item in call:
            if isinstance(item, Exception):
                raise item
            yield item


def seen(run: str, change: Any = "ADDED", version: str = "7") -> Seen:
    return Seen(change, one(run), version)


SYNC = Seen("SYNC", {}, "")
AWAY = Unavailable("no answer")
NOTHING: list[Seen] = []


@pytest.mark.parametrize(
    ("calls", "says", "since"),
    [
        ([AWAY], "they are being listed", None),
        ([[seen("a"), AWAY]], "they are being listed", None),
        ([[seen("a", version=""), seen("b")]], {"a-a1", "b-a1"}, "7"),
        ([[seen("a"), SYNC, seen("b", version="8")]], {"b-a1"}, "8"),
        ([NOTHING], set[str](), None),
    ],
)
def test_a_list_counts_only_when_it_was_read_to_its_end(calls: list[Any], says: Any, since: str | None) -> None:
    told: Any = Told(*calls, NOTHING)
    watch = JobSetWatch(told, time.time)
    with suppress(Unavailable):
        watch.reflector.turn()
    assert names(watch) == says
    watch.reflector.turn()
    assert told.since == [None, since], "where the next call goes on"


@pytest.mark.parametrize(
    ("call", "says", "since"),
    [
        ([seen("b", version="8")], {"a-a1", "b-a1"}, "8"),
        ([seen("a", "DELETED", "9")], set[str](), "9"),
        (NOTHING, {"a-a1"}, "7"),
        ([seen("b", version="8"), SYNC, seen("c")], "they are being listed anew", None),
    ],
)
def test_changes_are_taken_in_until_everything_is_listed_anew(call: Any, says: Any, since: str | None) -> None:
    told: Any = Told([seen("a")], call)
    watch = JobSetWatch(told, time.time)
    watch.reflector.turn()
    assert watch.reflector.since == "7"
    watch.reflector.turn()
    assert watch.reflector.since == since
    assert names(watch) == says
    assert told.since == [None, "7"]


def test_after_a_while_everything_is_listed_anew_and_the_old_table_stands_until_it_is_whole() -> None:
    now = [0.0]
    told: Any = Told([seen("a")], [seen("b", version="8")], [seen("c", version="9"), AWAY], [seen("d", version="9")])
    watch = JobSetWatch(told, lambda: now[0])
    for _ in range(2):
        watch.reflector.turn()
    now[0] = RELIST_SECONDS
    with pytest.raises(Unavailable):
        watch.reflector.turn()
    assert names(watch) == {"a-a1", "b-a1"}
    watch.reflector.turn()
    assert (names(watch), told.since) == ({"d-a1"}, [None, "7", None, None])


def test_while_the_cluster_is_away_nothing_is_known() -> None:
    told: Any = Told([seen("a")], AWAY, [seen("b", version="8")])
    with JobSetWatch(told, time.time) as watch:
        until("what it tells then is known", lambda: names(watch) == {"a-a1", "b-a1"})
    assert told.since[:3] == [None, "7", "7"], "it goes on where it was"


def test_a_mistake_of_ours_is_told_and_everything_listed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.observe.reflector.AGAIN_SECONDS", 0.01)
    told: Any = Told([seen("a")], KeyError("metadata"), [seen("c")])
    with JobSetWatch(told, time.time) as watch:
        until("it is listed anew", lambda: names(watch) == {"c-a1"})
    assert told.since[:3] == [None, "7", None]
