"""The JobSets of our runs as they are now, kept by a watch in the background: a round of reconciling costs no list.

A list of a thousand is megabytes of text, and parsing it holds up every other thread. What the table says is whole or
it says nothing: before the first list was read to its end, and while the cluster does not answer, nothing is known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from profiles.errors import PrimusError
from tasks.cluster import Cluster
from tasks.reconcile_sights import jobset_seen
from workflows import labels
from workflows.gang_pods import PIPELINE
from workflows.reconcile_sight import ObjectSeen

RELIST_SECONDS = 600.0
"""Everything is listed anew so often: a watch may lose an event."""
WATCH_SECONDS = 60.0
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
        for event in self._cluster.watch("JobSet", SELECTOR, since=since, timeout_seconds=WATCH_SECONDS):
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
