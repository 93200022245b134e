"""A watch of one kind: the log of changes turned into events with whole objects."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import Literal

from profiles.errors import Unavailable
from tasks.embedded import locks
from tasks.embedded.changes import Change
from tasks.embedded.launch import ask_for_keeper, keeper_lock, revive_keeper
from tasks.embedded.objects import BROKEN_ANNOTATION, Object, matches, section
from tasks.embedded.store import Store
from tasks.embedded.watch import ChangeReader

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
        reader = ChangeReader(store, None if since is None else int(since))
        try:
            yield from _followed(reader, _Selection(store, kind, labels), store.root, since, timeout_seconds)
        finally:
            reader.close()
    except OSError as error:
        raise Unavailable(f"{store.log_path}: {error}") from error


def _followed(
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
    """The objects that a watch is about, and the version of each that was told last."""

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
