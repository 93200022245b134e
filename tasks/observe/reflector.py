"""What a cluster has of a kind now: one loop for every watch, which lists, follows, lists anew and survives failures.

Nodes are kept slim, so that many fit; users of their table ask for those that changed since they last asked. A cluster
that does not answer changes nothing: what was known stays known, and `away` says since when nothing was heard.

JobSets of our runs are kept so that a round of reconciling costs no list: one of a thousand is megabytes of text, and
parsing it holds up every other thread. That table is complete or it says nothing: until the first list was read to its
end, and while the cluster does not answer, nothing is known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from profiles.cluster import ClusterProfile
from profiles.errors import PrimusError, Transient
from tasks.cluster import Cluster, Kind, Manifest
from tasks.observe.nodes import pool_node
from tasks.observe.reconcile import jobset_seen
from workflows import labels
from workflows.attempt.gang_pods import PIPELINE
from workflows.model.nodes import Node
from workflows.model.runs import ObjectSeen

AGAIN_SECONDS = 1.0
"""After a refusal, or a mistake of ours, everything is read anew."""

NODE_WATCH_SECONDS = 3600.0
"""One call of the seam; it is begun anew where it stood."""
DOUBTED_WATCH_SECONDS = 10.0
"""The same while the cluster was not heard: a quiet one has nothing to tell, and only the end of a call says that it
answers. Longer than the seam itself bears failures."""

RELIST_SECONDS = 600.0
"""Everything is listed anew so often: a watch may lose an event."""
RECONCILE_WATCH_SECONDS = 60.0
SELECTOR = {labels.PIPELINE: PIPELINE}


@dataclass
class Reflector:
    """Reads a kind in a thread of its own, call after call of the seam, for the table that keeps it.

    A version that the cluster forgot, a refusal and a mistake of ours lead to a new list; after a failure that may
    pass the watch goes on where it was.
    """

    cluster: Cluster
    kind: Kind
    selector: Mapping[str, str] | None
    pace: Callable[[], float]
    """Gives the seconds of the next call; 0: it tells everything that exists, and nothing more."""
    note: Callable[[str, Manifest], None]
    """Takes one line in; `SYNC` begins a new list."""
    heard: Callable[[], None]
    """A call came to its end: the cluster answers, and a list is whole."""
    failed: Callable[[Exception], None]
    """A call broke off."""
    ended: threading.Event = field(default_factory=threading.Event)
    """Ends the reading. A thread that sits in a read, for as long as the cluster is quiet, is not waited for."""
    since: str | None = None
    """Where the next call goes on; None: it begins with everything that exists."""

    def start(self) -> None:
        """Begin to read."""
        threading.Thread(target=self._read, name=f"{self.kind} watch", daemon=True).start()

    def turn(self) -> None:
        """Make one call and pass on all events that it gives."""
        seconds = self.pace()
        self.since = self.since if seconds else None
        for event in self.cluster.watch(self.kind, self.selector, since=self.since, timeout_seconds=seconds):
            self.since = event.resource_version
            self.note(event.type, event.object)
            if self.ended.is_set():
                return
            if event.type == "SYNC" and seconds:
                self.since = None
                return
        self.heard()

    def _read(self) -> None:
        while not self.ended.is_set():
            try:
                self.turn()
            except Exception as error:  # a mistake of ours too: a dead thread would leave an old table for the present
                self.since = self.since if isinstance(error, Transient) else None
                self.failed(error)
                self.ended.wait(error.retry_after_seconds if isinstance(error, Transient) else AGAIN_SECONDS)


def words_of(error: Exception) -> str:
    """What is said of a call that broke off; a mistake of ours is named with its type."""
    return str(error) if isinstance(error, PrimusError) else f"{type(error).__name__}: {error}"


class NodeWatch:
    """The table of nodes. Thread-safe; use it in a `with` block.

    `now` tells Unix seconds; `wake` is called after every change, from the reading thread.
    """

    def __init__(
        self, cluster: Cluster, profile: ClusterProfile, now: Callable[[], float], wake: Callable[[], None]
    ) -> None:
        self.reflector = Reflector(cluster, "Node", None, self._pace, self.note, self._heard, self._failed)
        self._profile, self._now, self._wake = profile, now, wake
        self._lock = threading.Lock()
        self._nodes: dict[str, Node] = {}
        self._changed: dict[str, None] = {}
        self._turned: dict[str, dict[str, float]] = {}
        self._away: tuple[float, str] | None = None

    def __enter__(self) -> NodeWatch:
        self.reflector.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.reflector.ended.set()

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

    def _pace(self) -> float:
        return DOUBTED_WATCH_SECONDS if self.away else NODE_WATCH_SECONDS

    def _heard(self) -> None:
        with self._lock:
            was_away, self._away = self._away, None
        if was_away:
            self._wake()

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, Transient):
            self.note("SYNC", {})
        with self._lock:
            self._away = (self._away[0] if self._away else self._now(), words_of(error))
        self._wake()


class Bell:
    """Wakes the waiting thread as soon as anything is worth a look."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def ring(self) -> None:
        """From any thread, and from a signal's handler."""
        self._event.set()

    def wait(self, seconds: float) -> None:
        """Until it rang since the last wait, or the time is up."""
        self._event.wait(max(0.0, seconds))
        self._event.clear()


class JobSetWatch:
    """The table of JobSets. Thread-safe; use it in a `with` block. `now` tells Unix seconds."""

    def __init__(self, cluster: Cluster, now: Callable[[], float]) -> None:
        self.reflector = Reflector(cluster, "JobSet", SELECTOR, self._pace, self._note, self._heard, self._failed)
        self._now = now
        self._lock = threading.Lock()
        self._known: dict[str, ObjectSeen] = {}
        self._listing: dict[str, ObjectSeen] | None = {}
        """What a list has told that was not read to its end; None: none is being read."""
        self._listed_at = 0.0
        self._away = "they are being listed"

    def __enter__(self) -> JobSetWatch:
        self.reflector.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.reflector.ended.set()

    def all(self) -> list[ObjectSeen] | str:
        """Every JobSet; or why that is not known."""
        with self._lock:
            return self._away or list(self._known.values())

    def _pace(self) -> float:
        with self._lock:
            if self._listing is None and self._now() - self._listed_at < RELIST_SECONDS:
                return RECONCILE_WATCH_SECONDS
            self._listing = {}
            return 0.0

    def _note(self, change: str, manifest: Manifest) -> None:
        seen = jobset_seen(manifest)
        with self._lock:
            if change == "SYNC":
                self._away = self._away if self._listing is not None else "they are being listed anew"
                self._listing = {}
                return
            table = self._known if self._listing is None else self._listing
            if change == "DELETED":
                table.pop(str(manifest["metadata"]["name"]), None)
            elif seen is not None:
                table[seen.name] = seen
            self._away = self._away if self._listing is not None else ""

    def _heard(self) -> None:
        with self._lock:
            self._away = ""
            if self._listing is not None:
                self._known, self._listing, self._listed_at = self._listing, None, self._now()

    def _failed(self, error: Exception) -> None:
        with self._lock:
            self._away = words_of(error)
            self._listing = self._listing if isinstance(error, Transient) else {}
