"""The nodes of a cluster as they are now, kept by a watch in the background; slim, so that many fit.

Whoever uses it asks for the nodes that changed since it last asked. A cluster that does not answer changes nothing:
what was known stays known, and `away` says since when nothing was heard.

The JobSets of our runs as they are now, kept by a watch in the background: a round of reconciling costs no list.

A list of a thousand is megabytes of text, and parsing it holds up every other thread. What the table says is whole or
it says nothing: before the first list was read to its end, and while the cluster does not answer, nothing is known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from itertools import islice
from types import TracebackType

from profiles.cluster import ClusterProfile
from profiles.errors import PrimusError, Transient
from tasks.cluster import Cluster, Manifest
from tasks.observe.nodes import pool_node
from tasks.observe.reconcile import jobset_seen
from workflows import labels
from workflows.attempt.gang_pods import PIPELINE
from workflows.model.nodes import Node
from workflows.model.runs import ObjectSeen

NODE_WATCH_SECONDS = 3600.0
"""One call of the seam; it is begun anew where it stood."""
DOUBTED_WATCH_SECONDS = 10.0
"""The same while the cluster was not heard: a quiet one has nothing to tell, and only the end of a call says that it
answers. Longer than the seam itself bears failures."""


class NodeWatch:
    """The table of nodes. Thread-safe; use it in a `with` block, which reads in a thread of its own.

    Args:
        cluster: where the nodes are.
        profile: whose pools count.
        now: Unix seconds.
        wake: called after every change, from the reading thread.
    """

    def __init__(
        self, cluster: Cluster, profile: ClusterProfile, now: Callable[[], float], wake: Callable[[], None]
    ) -> None:
        self._cluster, self._profile, self._now, self._wake = cluster, profile, now, wake
        self._lock = threading.Lock()
        self._nodes: dict[str, Node] = {}
        self._changed: dict[str, None] = {}
        self._turned: dict[str, dict[str, float]] = {}
        self._away: tuple[float, str] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, name="node watch", daemon=True)

    def __enter__(self) -> NodeWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The thread may sit in a read of the watch for as long as the cluster is quiet: it is not waited for.
        self._ended.set()

    def changed(self, limit: int) -> list[Node]:
        """Nodes that changed since they were last given out, at most `limit` of them, first come first served."""
        with self._lock:
            names = list(islice(self._changed, limit))
            for name in names:
                del self._changed[name]
            return [self._nodes[name] for name in names if name in self._nodes]

    @property
    def has_changed(self) -> bool:
        """Whether there is anything to give out."""
        with self._lock:
            return bool(self._changed)

    def look_again(self, names: list[str]) -> None:
        """Give these out again with the next changes."""
        with self._lock:
            self._changed.update(dict.fromkeys(names))

    def names(self) -> list[str]:
        """Of all nodes."""
        with self._lock:
            return list(self._nodes)

    def all(self) -> list[Node]:
        """All nodes as they are now."""
        with self._lock:
            return list(self._nodes.values())

    def node(self, name: str) -> Node | None:
        """One node as it is now; None where there is none of the name."""
        with self._lock:
            return self._nodes.get(name)

    def turned(self, name: str) -> Mapping[str, float]:
        """Conditions of the node that we saw changing, with when."""
        with self._lock:
            return dict(self._turned.get(name, {}))

    @property
    def away(self) -> tuple[float, str] | None:
        """Since when the cluster has not answered, and what was said; None while it answers."""
        with self._lock:
            return self._away

    def note(self, change: str, manifest: Manifest) -> None:
        """Take one line of the watch in; `SYNC` begins a new list."""
        if change == "SYNC":
            with self._lock:
                self._nodes.clear()
                self._changed.clear()
            return
        name, seen = str(manifest["metadata"]["name"]), pool_node(manifest, self._profile)
        with self._lock:
            self._away = None
            if change == "DELETED" or seen is None:
                self._nodes.pop(name, None)
                self._turned.pop(name, None)
                return
            before = self._nodes.get(name)
            if before is not None:
                self._note_turns(before, seen)
            self._nodes[name] = seen
            self._changed[name] = None
        self._wake()

    def _note_turns(self, before: Node, after: Node) -> None:
        statuses = {item.type: item.status for item in before.conditions}
        for item in after.conditions:
            if item.type not in statuses or statuses[item.type] != item.status:
                self._turned.setdefault(after.name, {})[item.type] = self._now()

    def _read(self) -> None:
        since: str | None = None
        while not self._ended.is_set():
            seconds = DOUBTED_WATCH_SECONDS if self.away else NODE_WATCH_SECONDS
            try:
                for event in self._cluster.watch("Node", None, since=since, timeout_seconds=seconds):
                    since = event.resource_version
                    if self._ended.is_set():
                        return
                    self.note(event.type, event.object)
                self._heard()
            except Transient as error:
                self._silent(str(error))
                self._ended.wait(error.retry_after_seconds)
            except Exception as error:  # a mistake of ours too: a dead thread would leave an old table for the present
                since = None  # the list is read anew
                self.note("SYNC", {})
                self._silent(str(error) if isinstance(error, PrimusError) else f"{type(error).__name__}: {error}")
                self._ended.wait(1.0)

    def _heard(self) -> None:
        with self._lock:
            was_away, self._away = self._away, None
        if was_away:
            self._wake()

    def _silent(self, why: str) -> None:
        with self._lock:
            self._away = (self._away[0] if self._away else self._now(), why)
        self._wake()


class Bell:
    """Wakes whoever waits, as soon as anything is worth a look."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def ring(self) -> None:
        """From any thread, and from a signal's handler."""
        self._event.set()

    def wait(self, seconds: float) -> None:
        """Until it rang since the last wait, or the time is up."""
        self._event.wait(max(0.0, seconds))
        self._event.clear()


RELIST_SECONDS = 600.0
"""Everything is listed anew so often: a watch may lose an event."""
RECONCILE_WATCH_SECONDS = 60.0
EMPTY_SECONDS = 5.0
"""Between two lists while there is nothing that a watch could go on from."""
SELECTOR = {labels.PIPELINE: PIPELINE}


class JobSetWatch:
    """The table. Thread-safe; use it in a `with` block, which reads in a thread of its own.

    Args:
        cluster: where the JobSets are.
        now: Unix seconds.
    """

    def __init__(self, cluster: Cluster, now: Callable[[], float]) -> None:
        self._cluster, self._now = cluster, now
        self._lock = threading.Lock()
        self._known: dict[str, ObjectSeen] = {}
        self._away = "they are being listed"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, name="jobset watch", daemon=True)

    def __enter__(self) -> JobSetWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The thread may sit in a read of the watch for as long as the cluster is quiet: it is not waited for.
        self._ended.set()

    def all(self) -> list[ObjectSeen] | str:
        """Every JobSet; or why that is not known."""
        with self._lock:
            return self._away or list(self._known.values())

    def _read(self) -> None:
        since: str | None = None
        listed_at = -RELIST_SECONDS
        while not self._ended.is_set():
            try:
                if since is None or self._now() - listed_at >= RELIST_SECONDS:
                    since, listed_at = self.listed(), self._now()
                if since is None:
                    self._ended.wait(EMPTY_SECONDS)
                else:
                    since = self.followed(since)
            except PrimusError as error:
                self._tell_away(str(error))
                self._ended.wait(getattr(error, "retry_after_seconds", 1.0))
            except (
                Exception
            ) as error:  # a mistake of ours must not leave an old table that is taken for the present one
                self._tell_away(f"{type(error).__name__}: {error}")
                since = None
                self._ended.wait(EMPTY_SECONDS)

    def listed(self) -> str | None:
        """Read everything; where a watch can go on from, None where there is nothing.

        Raises:
            PrimusError: the list was not read to its end; the table stays as it was.
        """
        found: dict[str, ObjectSeen] = {}
        since: str | None = None
        for event in self._cluster.watch("JobSet", SELECTOR, timeout_seconds=0.0):
            if event.type == "SYNC":
                found.clear()
            elif event.type != "DELETED" and (seen := jobset_seen(event.object)) is not None:
                found[seen.name] = seen
            since = event.resource_version or since
        with self._lock:
            self._known, self._away = found, ""
        return since

    def followed(self, since: str) -> str | None:
        """Take changes in for a while; where to go on, None where everything must be listed anew.

        Raises:
            PrimusError: the cluster does not answer.
        """
        for event in self._cluster.watch("JobSet", SELECTOR, since=since, timeout_seconds=RECONCILE_WATCH_SECONDS):
            if event.type == "SYNC":
                self._tell_away("they are being listed anew")
                return None
            since = event.resource_version or since
            seen = jobset_seen(event.object)
            with self._lock:
                self._away = ""
                if event.type == "DELETED":
                    self._known.pop(str(event.object["metadata"]["name"]), None)
                elif seen is not None:
                    self._known[seen.name] = seen
            if self._ended.is_set():
                return since
        self._tell_away("")
        return since

    def _tell_away(self, why: str) -> None:
        with self._lock:
            self._away = why
