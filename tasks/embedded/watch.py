"""Watching one kind (the log of changes turned into events with whole objects) and following a container's log."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import BinaryIO, Literal

from profiles.errors import Unavailable
from tasks.embedded.layout import PodFolder
from tasks.embedded.linux import drain, inotify
from tasks.embedded.objects import BROKEN_ANNOTATION, Object, entries, is_finished, matches, section
from tasks.embedded.start_keeper import ask_for_keeper, keeper_lock, revive_keeper
from tasks.embedded.store import locks
from tasks.embedded.store.changes import Change, ChangeReader
from tasks.embedded.store.store import Store

EventType = Literal["ADDED", "MODIFIED", "DELETED", "SYNC"]
Line = tuple[EventType, Object, str]
REVIVAL_CHECK_SECONDS = 5.0
"""How often a watch that found no keeper to wait for looks for one."""


def watch(
    store: Store, kind: str, labels: Mapping[str, str] | None, since: str | None, timeout_seconds: float
) -> Iterator[Line]:
    """Type, object and version of each change, until the time is up.

    Raises:
        Unavailable: nothing changes any more, because keepers end at every start; or this process can read nothing
            now, as where its descriptors ran out.
    """
    try:
        reader = ChangeReader(store.log_path, None if since is None else int(since))
        try:
            yield from _follow(reader, _Selection(store, kind, labels), store.root, since, timeout_seconds)
        finally:
            reader.close()
    except OSError as error:
        raise Unavailable(f"{store.log_path}: {error}") from error


def _follow(
    reader: ChangeReader, selection: _Selection, root: str, since: str | None, timeout_seconds: float
) -> Iterator[Line]:
    deadline = time.monotonic() + timeout_seconds
    if since is None:
        yield from selection.everything(reader.version)
    while True:
        yield from _read(reader, selection)
        rest = deadline - time.monotonic()
        if rest <= 0:
            return
        ask_for_keeper(root)
        wait_with_keeper(reader, root, rest)


def wait_with_keeper(reader: ChangeReader, root: str, timeout_seconds: float, *others: int) -> None:
    """Sleep until something changed or the time is up; a keeper that is killed meanwhile is replaced at once."""
    wait = revive_keeper(root)
    descriptor = locks.holder_descriptor(keeper_lock(root))
    if descriptor is None:
        reader.wait(min(timeout_seconds, wait or REVIVAL_CHECK_SECONDS), *others)
        return
    try:
        reader.wait(timeout_seconds, descriptor, *others)
    finally:
        os.close(descriptor)


def _read(reader: ChangeReader, selection: _Selection) -> Iterator[Line]:
    changes = reader.read()
    if changes is None:
        yield "SYNC", {}, str(reader.version)
        selection.known.clear()
        yield from selection.everything(reader.version)
        return
    for change in changes:
        yield from selection.event(change)


class _Selection:
    """The objects that a watch is about, and the version of each that was reported last."""

    def __init__(self, store: Store, kind: str, labels: Mapping[str, str] | None) -> None:
        self._store = store
        self._kind = kind
        self._labels = labels
        self.known: dict[str, int] = {}

    def everything(self, version: int) -> Iterator[Line]:
        for manifest in self._store.list(self._kind):
            if matches(manifest, self._labels):
                self.known[manifest["metadata"]["name"]] = int(manifest["metadata"]["resourceVersion"])
                yield "ADDED", manifest, str(version)

    def event(self, change: Change) -> Iterator[Line]:
        if change.kind != self._kind or change.version <= self.known.get(change.name, 0):
            return
        if change.type == "DELETED":
            manifest: Object = json.loads(change.payload)
            was_known = self.known.pop(change.name, None) is not None
            # What is left of a broken object may lack its labels: whoever knew it by its name must hear of its end.
            broken = BROKEN_ANNOTATION in section(manifest, "metadata", "annotations")
            if was_known or broken or matches(manifest, self._labels):
                yield "DELETED", manifest, str(change.version)
            return
        current = self._store.get(change.kind, change.name)
        if current is None:
            return  # its deletion follows in the log
        yield from self._changed(change, current)

    def _changed(self, change: Change, current: Object) -> Iterator[Line]:
        was_known = change.name in self.known
        if not matches(current, self._labels):
            if was_known:
                del self.known[change.name]
                yield "DELETED", current, str(change.version)
            return
        self.known[change.name] = int(current["metadata"]["resourceVersion"])
        kind: EventType = "ADDED" if change.type == "ADDED" and not was_known else "MODIFIED"
        yield kind, current, str(change.version)


def follow(store: Store, pod: Object, container: str, path: str, timeout_seconds: float) -> Iterator[str]:
    """Lines without their newline, until the container ended for good, the pod is gone, or the time is up."""
    deadline = time.monotonic() + timeout_seconds
    uid = pod["metadata"]["uid"]
    folder = PodFolder(store.root, uid).path
    os.makedirs(folder, mode=0o700, exist_ok=True)
    notifier = inotify(folder)
    reader = ChangeReader(store.log_path)
    file, rest = _GrowingLog(path), b""
    try:
        while True:
            drain(notifier)
            reader.read()
            # Asked before the file is read: what was written before the end is then read for certain.
            over = _over(store, pod["metadata"]["name"], uid, container)
            *lines, rest = (rest + file.read()).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
            remaining = deadline - time.monotonic()
            if over or remaining <= 0:
                break
            wait_with_keeper(reader, store.root, remaining, notifier)
        if rest and over:
            yield rest.decode(errors="replace")
    finally:
        file.close()
        reader.close()
        os.close(notifier)


class _GrowingLog:
    """A file that may not be there yet, and may be removed with its pod: once it was opened, all of it is read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def read(self) -> bytes:
        """What came since."""
        if self._file is None:
            try:
                self._file = open(self._path, "rb")  # noqa: SIM115 - closed by `close`
            except FileNotFoundError:
                return b""
        return self._file.read()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _over(store: Store, name: str, uid: str, container: str) -> bool:
    pod = store.get("Pod", name)
    if pod is None or pod["metadata"]["uid"] != uid or is_finished(pod):
        return True
    status = section(pod, "status")
    for entry in [*entries(status, "initContainerStatuses"), *entries(status, "containerStatuses")]:
        if entry["name"] == container:
            # A container that will be restarted waits or runs; only an end that stays is `terminated`.
            return "terminated" in entry["state"]
    return False
