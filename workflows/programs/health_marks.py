"""The node's labels as the daemon keeps them: read before every change, written where that is asked for.

Standard library only, Python 3.9. Without `--label`, or without an API, they are kept in memory only, so that what the
daemon says of its node is the same in both cases.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, cast

from workflows.programs import health_labels
from workflows.programs.health_api import Api, ApiError, node_path
from workflows.programs.health_labels import HEALTH, changes, diagnosed, health
from workflows.programs.health_words import Result

Json = Dict[str, Any]
TESTING = "TESTING"


class Marks:
    """What is known of a node in labels and annotations.

    Args:
        node: which.
        api: where they are written; None: nowhere.
        fatal: words of failures that make a node unfit.
        wanted: checks that are made regularly.
        say: told what could not be written.
    """

    def __init__(
        self, node: str, api: Optional[Api], fatal: Sequence[str], wanted: Sequence[str], say: Callable[[str], None]
    ) -> None:
        self._node, self._api, self._fatal, self._wanted, self._say = node, api, fatal, wanted, say
        self._lock = threading.Lock()
        self._marks: Dict[str, str] = {}
        self._unwritten: Dict[str, str] = {}
        self._testing = False
        self._there = ""
        """`gpuhealth` as it stood when it was last read."""

    @property
    def health(self) -> str:
        """PASS, WARN, EVICT, TESTING or "" as it was last known."""
        return TESTING if self._testing and self._marks.get(HEALTH) != "EVICT" else self._marks.get(HEALTH, "")

    def learn(self, news: Sequence[Result], known: Sequence[Result]) -> None:
        """Take new results in.

        Args:
            news: since the last call.
            known: the newest result of each check.
        """
        with self._lock:
            before = self._read()
            after = before
            for one in news:
                after = diagnosed(after, one)
            after = {**after, HEALTH: health(after, known, self._fatal, self._wanted)}
            shown = {**after, HEALTH: TESTING} if self._testing and after[HEALTH] != "EVICT" else after
            self._write(before, shown)
            self._marks = after

    def testing(self, on: bool, known: Sequence[Result]) -> None:
        """A deep test begins or ends. A node that is to be left keeps its EVICT meanwhile."""
        with self._lock:
            before = self._read()
            self._testing = on
            current = before.get(HEALTH, "")
            kept = self._marks.get(HEALTH, "") if current == TESTING else current
            base = {**before, HEALTH: kept}
            after = {**base, HEALTH: health(base, known, self._fatal, self._wanted)}
            shown = {**after, HEALTH: TESTING} if on and after[HEALTH] != "EVICT" else after
            self._write(before, shown)
            self._marks = after

    def _read(self) -> Dict[str, str]:
        """As they stand: others, too, may write them."""
        if self._api is None:
            return dict(self._marks)
        self._there = "?"
        try:
            metadata = cast("Json", self._api.get(node_path(self._node)).get("metadata") or {})
        except ApiError as error:
            self._say(f"the node's labels cannot be read: {error}")
            return {**self._marks, **self._unwritten}
        told = {**cast("Json", metadata.get("annotations") or {}), **cast("Json", metadata.get("labels") or {})}
        found = {name: str(value) for name, value in told.items() if health_labels.is_ours(name)}
        self._there = found.get(HEALTH, "")
        if found.get(HEALTH) == TESTING and not self._testing:
            found[HEALTH] = self._marks.get(HEALTH, "")  # of a daemon that was killed meanwhile
        return {**found, **self._unwritten}

    def _write(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        if self._api is None:
            return
        news = {**self._unwritten, **changes(before, after)}
        # What stood there, not what was made of it: TESTING of a killed daemon was read as what stood before it.
        news.pop(HEALTH, None)
        if after[HEALTH] != self._there:
            news[HEALTH] = after[HEALTH]
        if not news:
            return
        labels = {name: value for name, value in news.items() if not name.endswith(".output")}
        notes = {name: value for name, value in news.items() if name.endswith(".output")}
        metadata: Json = {"labels": labels, **({"annotations": notes} if notes else {})}
        try:
            self._api.patch(node_path(self._node), {"metadata": metadata})
            self._unwritten = {}
        except ApiError as error:
            self._unwritten = {name: value for name, value in news.items() if name != HEALTH}
            self._say(f"the node's labels cannot be written, they will be with the next result: {error}")
