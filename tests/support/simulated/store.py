"""Objects in a dictionary, every change of them in a list, and a clock that moves only where somebody waits."""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tasks.cluster import Manifest, Seen
from tasks.embedded.objects import matches, section, timestamp
from tasks.embedded.store.cache import Cache
from tasks.embedded.store.store import Store, Transaction

NOON = 1_790_000_000.0
"""When every simulation begins: Unix seconds."""


LIMIT_SECONDS = 600.0
"""Of simulated time: a run that has not ended by then waits for what never comes."""


class Clock:
    """Simulated time, and what is due at which moment of it."""

    def __init__(self) -> None:
        self._now = NOON
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def now(self) -> float:
        """Unix seconds."""
        return self._now

    def stamp(self) -> str:
        """Now as RFC 3339."""
        return timestamp(self._now)

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Let `act` happen so much later."""
        heapq.heappush(self._due, (self._now + max(0.0, seconds), next(self._numbers), act))

    def step(self, until: float) -> None:
        """Go on to the next thing that is due, at most to `until`."""
        assert self._now < NOON + LIMIT_SECONDS, "what is waited for does not come"
        if self._due and self._due[0][0] <= until:
            at, _, act = heapq.heappop(self._due)
            self._now = max(self._now, at)
            act()
        else:
            self._now = max(self._now, until)

    def sleep(self, seconds: float) -> None:
        """Let so much time pass, with all that is due in it."""
        until = self._now + max(0.0, seconds)
        while self._now < until or (self._due and self._due[0][0] <= until):
            self.step(until)


@dataclass(frozen=True)
class Change:
    """One change of one object: how it was and how it is, as JSON; "" where it did not exist."""

    version: int
    kind: str
    before: str
    after: str

    def told(self, labels: Mapping[str, str] | None) -> Seen | None:
        """What a watch of objects with these labels says of it."""
        before, after = _matching(self.before, labels), _matching(self.after, labels)
        version = str(self.version)
        if after is not None:
            return Seen("ADDED" if before is None else "MODIFIED", after, version)
        if before is None:
            return None
        return Seen("DELETED", json.loads(self.after) if self.after else before, version)


def _matching(text: str, labels: Mapping[str, str] | None) -> Manifest | None:
    found: Manifest | None = json.loads(text) if text else None
    return found if found is not None and matches(found, labels) else None


class MemoryStore(Store):
    """What the embedded cluster keeps in files, kept in memory; its rules of writing work on both.

    Args:
        clock: stamps what is created and deleted.
        on_change: called after every change.
    """

    def __init__(self, clock: Clock, on_change: Callable[[], None]) -> None:
        super().__init__("/simulated")
        self._clock, self._on_change = clock, on_change
        self._texts: dict[str, dict[str, str]] = {}
        self._changes: list[Change] = []
        self.version = 0
        self.forgotten = 0
        """Changes up to this version are not told any more."""

    def get(self, kind: str, name: str) -> Manifest | None:
        """See `Store.get`."""
        text = self._texts.get(kind, {}).get(name)
        return None if text is None else json.loads(text)

    def names(self, kind: str) -> list[str]:
        """See `Store.names`."""
        return sorted(self._texts.get(kind, {}))

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        """See `Store.transaction`; nobody else writes anyway."""
        yield MemoryTransaction(self)

    def changes_after(self, version: int) -> list[Change]:
        """All later ones that are remembered; their versions have no gaps."""
        return self._changes[max(0, version - self.forgotten) :]

    def forget(self) -> None:
        """Remember no change that was made until now."""
        self._changes.clear()
        self.forgotten = self.version

    def put(self, manifest: Manifest) -> Manifest:
        """Write the object; returns it with its new version."""
        kind, metadata = manifest["kind"], manifest["metadata"]
        self.path(kind, metadata["name"])  # refuses what is no name
        table = self._texts.setdefault(kind, {})
        before = table.get(metadata["name"], "")
        if not before:
            metadata["creationTimestamp"] = self._clock.stamp()
        if "deletionTimestamp" in metadata and "deletionTimestamp" not in before:
            metadata["deletionTimestamp"] = self._clock.stamp()
        self.version += 1
        metadata["resourceVersion"] = str(self.version)
        text = table[metadata["name"]] = json.dumps(manifest)
        self._note(Change(self.version, kind, before, text))
        return manifest

    def remove(self, kind: str, name: str) -> None:
        """Delete the object; absent is fine."""
        before = self._texts.get(kind, {}).pop(name, "")
        if before:
            self.version += 1
            self._note(Change(self.version, kind, before, ""))

    def _note(self, change: Change) -> None:
        self._changes.append(change)
        self._on_change()


class MemoryTransaction(Transaction):
    """What may be done in one step."""

    def __init__(self, store: MemoryStore) -> None:  # pyright: ignore[reportMissingSuperCall] - it has no files
        self.store = self._memory = store

    def put(self, manifest: Manifest) -> Manifest:
        """See `Transaction.put`."""
        return self._memory.put(manifest)

    def remove(self, kind: str, name: str) -> None:
        """See `Transaction.remove`."""
        self._memory.remove(kind, name)


class MemoryCache(Cache):
    """The picture that the embedded cluster's scheduler works with: here always the store itself."""

    def __init__(self, store: MemoryStore) -> None:  # pyright: ignore[reportMissingSuperCall] - it reads no log
        self.store = store
        self.changed: set[tuple[str, str]] = set()

    def __getitem__(self, kind: str) -> dict[str, Manifest]:
        return {item["metadata"]["name"]: item for item in self.store.list(kind)}

    def pods(self, label: str, value: str) -> list[Manifest]:
        """See `Cache.pods`."""
        return [pod for pod in self.store.list("Pod") if section(pod["metadata"], "labels").get(label) == value]

    def wrote(self, manifest: Any) -> None:
        """Nothing is kept that could be old."""
