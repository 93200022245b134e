"""The store: no change is lost, torn or told twice, whoever is killed between which two system calls."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.errors import Refused, Unavailable
from tasks.embedded.store import store as store_store
from tasks.embedded.store.changes import ChangeReader, last_version
from tasks.embedded.store.store import Store
from tasks.embedded.watch import watch


def made(root: Path) -> Store:
    store = Store(str(root))
    store.prepare()
    return store


def thing(name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **fields}


def put(store: Store, manifest: dict[str, Any]) -> dict[str, Any]:
    with store.transaction() as change:
        return change.put(manifest)


def remove(store: Store, name: str) -> None:
    with store.transaction() as change:
        change.remove("ConfigMap", name)


def test_versions_count_up_and_objects_come_back(tmp_path: Path) -> None:
    store = made(tmp_path)
    assert store.get("ConfigMap", "a") is None
    assert [put(store, thing(name))["metadata"]["resourceVersion"] for name in ("a", "b", "a")] == ["1", "2", "3"]
    assert [item["metadata"]["name"] for item in store.list("ConfigMap")] == ["a", "b"]
    remove(store, "a")
    remove(store, "nobody")
    assert store.names("ConfigMap") == ["b"]


@pytest.mark.parametrize("name", ["", "../x", ".hidden", "a/b", "a\nb", "x" * 300])
def test_a_name_that_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Refused):
        made(tmp_path).path("Pod", name)


def test_nobody_else_may_read_what_is_stored(tmp_path: Path) -> None:
    put(made(tmp_path), thing("a"))
    assert (tmp_path / "objects" / "ConfigMap" / "a").stat().st_mode & 0o077 == 0


def test_a_torn_object_is_unavailable_not_a_crash(tmp_path: Path) -> None:
    store = made(tmp_path)
    put(store, thing("a"))
    (tmp_path / "objects" / "ConfigMap" / "a").write_text('{"half":')
    with pytest.raises(Unavailable, match="remove the file"):
        store.get("ConfigMap", "a")


def test_a_writer_that_hangs_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    made(tmp_path)
    impatient = Store(str(tmp_path), lock_timeout_seconds=0.0)
    with open(tmp_path / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Unavailable), impatient.transaction():
            raise AssertionError("the lock is held")


CALLS = ("pwrite", "write", "rename", "unlink", "open", "ftruncate")
SCENARIOS: dict[str, tuple[Callable[[Store], object], str]] = {
    "create": (lambda store: put(store, thing("a", data={"v": "new"})), "ADDED"),
    "change": (lambda store: put(store, thing("old", data={"v": "new"})), "MODIFIED"),
    "delete": (lambda store: remove(store, "old"), "DELETED"),
}


def die_at(call: int, work: Callable[[], object]) -> bool:
    """Do the work in a child that is killed before its n-th system call; whether it got that far."""
    pid = os.fork()
    if pid == 0:
        left = [call]

        def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
            def counted(*args: Any, **kwargs: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*args, **kwargs)

            return counted

        for name in CALLS:
            setattr(store_store.os, name, wrap(getattr(store_store.os, name)))
        work()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_writer_killed_between_any_two_system_calls(tmp_path: Path, scenario: str) -> None:
    work, event = SCENARIOS[scenario]
    for call in range(100):
        store = made(tmp_path / str(call))
        put(store, thing("old", data={"v": "old"}))
        reader = ChangeReader(store.log_path)
        killed = die_at(call, lambda store=store: work(store))
        put(store, thing("after"))
        changes = reader.read()
        assert changes is not None, "a gap in the versions"
        reader.close()
        versions = [change.version for change in changes]
        assert versions == list(range(2, 2 + len(changes)))
        assert changes[-1].name == "after"
        told = [(change.type, change.name) for change in changes[:-1]]
        name = "a" if scenario == "create" else "old"
        assert told in ([], [(event, name)])
        current = store.get("ConfigMap", name)
        if event == "DELETED":
            assert (current is None) == bool(told)
        elif told:
            assert current is None or current["data"]["v"] in ("new", "old")
        else:
            assert (current or {}).get("data", {}).get("v") != "new"
        if not killed:
            assert told == [(event, name)]
            assert call > 3, "too few system calls were counted"
            return
    raise AssertionError("the work never came to its end")


def test_a_line_that_was_cut_off_is_written_again(tmp_path: Path) -> None:
    store = made(tmp_path)
    put(store, thing("a"))
    put(store, thing("b"))
    log = Path(store.log_path)
    log.write_bytes(log.read_bytes()[:-4])
    put(store, thing("c"))
    assert [line.split("\t")[:4] for line in log.read_text().splitlines()] == [
        ["1", "ADDED", "ConfigMap", "a"],
        ["2", "ADDED", "ConfigMap", "b"],
        ["3", "ADDED", "ConfigMap", "c"],
    ]


@pytest.mark.parametrize("written", range(1, 30))
def test_a_reader_that_comes_in_the_middle_of_a_line_reads_it_whole(tmp_path: Path, written: int) -> None:
    store = made(tmp_path)
    put(store, thing("a"))
    put(store, thing("b"))
    log = Path(store.log_path)
    whole = log.read_bytes()
    first = whole.index(b"\n") + 1
    written = min(written, len(whole) - first - 1)
    log.write_bytes(whole[: first + written])
    reader = ChangeReader(store.log_path)
    assert reader.version == 1
    assert reader.read() == []
    with log.open("ab") as writer:
        writer.write(whole[first + written :])
    changes = reader.read()
    assert changes is not None
    assert [(change.version, change.name) for change in changes] == [(2, "b")]
    reader.close()


def test_a_log_is_started_anew_and_readers_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = made(tmp_path)
    put(store, thing("a"))
    near, behind = ChangeReader(store.log_path), ChangeReader(store.log_path, since=1)
    monkeypatch.setattr(store_store, "ROTATE_BYTES", 200)
    seen: list[int] = []
    for turn in range(40):
        put(store, thing("a", data={"turn": str(turn)}))
        changes = near.read()
        assert changes is not None
        seen += [change.version for change in changes]
    assert seen == list(range(2, 42))
    assert behind.read() is None
    assert Path(store.log_path).stat().st_size < 1000
    near.close()
    behind.close()


def test_a_version_of_another_life_means_listing_again(tmp_path: Path) -> None:
    store = made(tmp_path)
    put(store, thing("a"))
    reader = ChangeReader(store.log_path, since=1000)
    assert reader.read() is None
    reader.close()
    events = list(watch(store, "ConfigMap", None, "1000", 0.0))
    assert [kind for kind, _, _ in events] == ["SYNC", "ADDED"]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (None, [("ADDED", "a"), ("ADDED", "b")]),
        ({"k": "v"}, [("ADDED", "a")]),
        ({"k": "v", "no": "no"}, []),
    ],
)
def test_a_watch_begins_with_what_is_there(
    tmp_path: Path, labels: dict[str, str] | None, expected: list[tuple[str, str]]
) -> None:
    store = made(tmp_path)
    put(store, {**thing("a"), "metadata": {"name": "a", "labels": {"k": "v"}}})
    put(store, thing("b"))
    found = [(kind, item["metadata"]["name"]) for kind, item, _ in watch(store, "ConfigMap", labels, None, 0.0)]
    assert found == expected


def test_a_watch_goes_on_where_it_was(tmp_path: Path) -> None:
    store = made(tmp_path)
    version = put(store, thing("a"))["metadata"]["resourceVersion"]
    put(store, thing("b"))
    put(store, thing("a", data={"x": "y"}))
    put(store, {**thing("other"), "kind": "Secret"})
    remove(store, "b")
    events = list(watch(store, "ConfigMap", None, version, 0.0))
    assert [(kind, item["metadata"]["name"]) for kind, item, _ in events] == [("MODIFIED", "a"), ("DELETED", "b")]
    assert events[-1][1]["metadata"]["name"] == "b"
    assert list(watch(store, "ConfigMap", None, events[-1][2], 0.0)) == []


def test_an_object_that_leaves_the_selection_is_deleted_from_it(tmp_path: Path) -> None:
    store = made(tmp_path)
    put(store, {**thing("a"), "metadata": {"name": "a", "labels": {"k": "v"}}})
    events = watch(store, "ConfigMap", {"k": "v"}, None, 0.5)
    assert next(events)[0] == "ADDED"
    put(store, thing("a"))
    assert next(events)[0] == "DELETED"
    events.close()


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["put", "remove", "read"]), st.sampled_from("abc"), st.integers(0, 3)), max_size=30
)


@settings(max_examples=60, deadline=None)
@given(OPERATIONS)
def test_a_reader_s_picture_equals_the_store(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, str, int]]
) -> None:
    store = made(tmp_path_factory.mktemp("store"))
    reader = ChangeReader(store.log_path)
    picture: dict[str, int] = {}

    def look() -> None:
        for change in reader.read() or []:
            current = store.get("ConfigMap", change.name)
            if current is None:
                picture.pop(change.name, None)
            else:
                picture[change.name] = current["data"]["value"]

    for operation, name, value in operations:
        if operation == "put":
            put(store, thing(name, data={"value": value}))
        elif operation == "remove":
            remove(store, name)
        else:
            look()
    look()
    reader.close()
    assert picture == {item["metadata"]["name"]: item["data"]["value"] for item in store.list("ConfigMap")}


def test_the_last_version_is_found_behind_a_long_line(tmp_path: Path) -> None:
    store = made(tmp_path)
    put(store, thing("a", data={"x": "y" * 50_000}))
    remove(store, "a")
    descriptor = os.open(store.log_path, os.O_RDONLY)
    assert last_version(descriptor, os.fstat(descriptor).st_size) == 2
    os.close(descriptor)
    assert json.loads(Path(store.log_path).read_text().splitlines()[-1].split("\t")[4])["data"]["x"][0] == "y"
