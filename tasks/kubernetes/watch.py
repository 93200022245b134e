"""Lists and watches that survive broken connections, expired versions and a server that is away."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from profiles.errors import Unavailable
from tasks.cluster import Manifest, Seen
from tasks.kubernetes.api_server import ApiServer, Request
from tasks.kubernetes.errors import Expired, failure
from tasks.kubernetes.resources import Resource

PAGE = 500
"""Objects in one answer: what kubectl asks for."""
CONNECTION_SECONDS = 45.0
"""One connection of a watch: a dead one that nobody closed is noticed after this time."""
PATIENCE_SECONDS = 5.0
"""Failures in a row for so long are reported to the caller instead of being tried again."""
_LISTINGS = 3
"""How often a list is begun anew because its pages expired while they were read."""


@dataclass(frozen=True)
class Collection:
    """Objects of one kind that are asked for."""

    server: ApiServer
    resource: Resource
    namespace: str
    query: Mapping[str, str]

    def request(self, more: Mapping[str, str]) -> Request:
        """A request for the collection with `more` query parameters."""
        what = f"{'watch' if 'watch' in more else 'list'} {self.resource.plural}"
        return Request("GET", self.resource.path(self.namespace), what, {**self.query, **more})


@dataclass(frozen=True)
class Page:
    """A part of a list."""

    items: list[Manifest]
    version: str
    """Version of the whole list; the same on each page."""
    last: bool


def pages(collection: Collection) -> Iterator[Page]:
    """The list in parts of `PAGE`, all of one moment.

    Raises:
        Expired: the server forgot that moment between two pages.
        Unavailable, NotFound, Refused.
    """
    more: dict[str, str] = {"limit": str(PAGE)}
    while True:
        answer = collection.server.json(collection.request(more))
        metadata: dict[str, Any] = answer.get("metadata") or {}
        items: list[Manifest] = answer.get("items") or []
        resource = collection.resource
        # Items of a list carry neither, objects of a watch and of a get do.
        whole = [{"apiVersion": resource.api_version, "kind": resource.kind, **item} for item in items]
        proceed = str(metadata.get("continue") or "")
        yield Page(whole, str(metadata.get("resourceVersion") or ""), not proceed)
        if not proceed:
            return
        more["continue"] = proceed


def list_all(collection: Collection) -> list[Manifest]:
    """All objects, ordered by name.

    Raises:
        Unavailable, NotFound, Refused.
    """
    for trial in range(_LISTINGS):
        try:
            found = [item for page in pages(collection) for item in page.items]
            return sorted(found, key=lambda item: str(item["metadata"]["name"]))
        except Expired:
            if trial == _LISTINGS - 1:
                raise
    raise AssertionError("unreachable")


@dataclass
class _Position:
    """How far a watch has come."""

    version: str | None
    """None: nothing was read yet; "": the list must be read anew."""
    failing_since: float | None = None
    heard: bool = False
    """Whether the server told anything in this call, and be it by a connection that stood and was quiet."""

    def bear(self, error: Unavailable, now: float, deadline: float) -> None:
        """Raise a failure that is not to be tried again: they last too long, or the time is up and nothing is known."""
        if self.failing_since is None:
            self.failing_since = now
        too_late = now + error.retry_after_seconds >= deadline and not self.is_known
        if too_late or now - self.failing_since >= PATIENCE_SECONDS:
            raise error

    def is_over(self, left: float, what: str) -> bool:
        """Whether the time is up.

        Raises:
            Unavailable: it is, after failures only.
        """
        if left <= 0 and self.failing_since is not None and not self.is_known:
            raise Unavailable(f"{what}: no answer in time", 0.2)
        return left <= 0

    def proceed(self, version: str) -> None:
        self.version, self.failing_since, self.heard = version, None, True

    @property
    def is_known(self) -> bool:
        """Whether the caller got all there was: not so after a list that broke off, or in silence."""
        return self.heard and bool(self.version)


def watch(collection: Collection, since: str | None, timeout_seconds: float) -> Iterator[Seen]:
    """See `tasks.cluster.Cluster.watch`.

    While a list is read its events carry no version but the last, so whoever stops within it and goes on
    with `since=""` gets a SYNC and the whole list. Ends at most half a second late.

    Raises:
        Unavailable: nothing but failures for `PATIENCE_SECONDS`; or the time is up, and the server was not heard once,
            or not to the end of its list: an end without an error means that nothing else is there.
        NotFound, Refused: the server does not serve the kind, or not to us.
    """
    server, position = collection.server, _Position(since)
    deadline = server.clock() + timeout_seconds
    while True:
        try:
            if not position.version:
                yield from _listed(collection, position)
            left = deadline - server.clock()
            if position.is_over(left, f"watch {collection.resource.plural}"):
                return
            yield from _changes(collection, position, min(left, CONNECTION_SECONDS), deadline)
        except Expired:
            position.version = ""
        except Unavailable as error:
            now = server.clock()
            position.bear(error, now, deadline)
            server.sleep(max(0.0, min(error.retry_after_seconds, deadline - now)))
        if server.clock() >= deadline and position.is_known:
            return


def _listed(collection: Collection, position: _Position) -> Iterator[Seen]:
    anew, position.version = position.version is not None, ""
    for page in pages(collection):
        if anew:
            anew = False
            yield Seen("SYNC", {}, page.version if page.last and not page.items else "")
        for number, item in enumerate(page.items, start=1):
            complete = page.last and number == len(page.items)
            yield Seen("ADDED", item, page.version if complete else "")
        if page.last:
            position.proceed(page.version)


def _changes(collection: Collection, position: _Position, seconds: float, deadline: float) -> Iterator[Seen]:
    server = collection.server
    more = {
        "watch": "true",
        "resourceVersion": position.version or "",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(max(1, math.ceil(seconds))),
    }
    began, fruitless = server.clock(), True
    with server.lines(collection.request(more), seconds + 0.5) as lines:
        for line in lines:
            event = _parse(line, collection.resource)
            position.proceed(event.resource_version)
            fruitless = False
            if event.type != "SYNC":
                yield event
            if server.clock() >= deadline:
                return
    if fruitless and server.clock() - began < seconds / 2:
        raise Unavailable(f"watch {collection.resource.plural}: the connection ended at once", 0.2)
    position.failing_since, position.heard = None, True


def _parse(line: bytes, resource: Resource) -> Seen:
    """One line of a watch; a bookmark comes out as a SYNC, which `_changes` swallows."""
    try:
        change: dict[str, Any] = json.loads(line)
        kind, changed = change["type"], change["object"]
        if kind == "ERROR":
            raise failure(int(changed.get("code") or 500), {}, json.dumps(changed).encode(), f"watch {resource.plural}")
        version = str(changed["metadata"]["resourceVersion"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unavailable(f"watch {resource.plural}: a line that is no event", 0.2) from error
    if kind == "BOOKMARK":
        return Seen("SYNC", {}, version)
    if kind not in ("ADDED", "MODIFIED", "DELETED"):
        raise Unavailable(f"watch {resource.plural}: an event of unknown type {kind!r}", 0.2)
    return Seen(kind, changed, version)
