"""The node's labels: PASS, WARN, EVICT, TESTING, and the last diagnostic of each level.

EVICT lasts until a diagnostic of the same or a deeper level passes, and so does the WARN of a failed diagnostic:
neither a shallower test nor time ends them. Labels are read before every change. Without `--label`, or without an API,
they are kept in memory only, so that the daemon's answers are the same in both cases.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, cast

from workflows.programs.health.diagnostic import is_fatal
from workflows.programs.health.kubernetes import node_path
from workflows.programs.health.query import LEVELS
from workflows.programs.health.results import Result
from workflows.programs.probes.verdicts import FAIL, PASS, UNKNOWN, worst
from workflows.programs.runtime.kubernetes_api import Api, ApiError

Json = Dict[str, Any]

PREFIX = "autopilot.ibm.com/"
HEALTH = f"{PREFIX}gpuhealth"
GPU_CHECKS = ("pciebw", "remapped", "gpupower", "gpumem", "dcgm")
"""What speaks of GPUs; the others never change the label."""
DEEP_LEVEL = 3
"""An EVICT whose diagnostic nobody recorded counts as one of this level."""
OUTPUT_CHARACTERS = 2000
"""Longest list of failed tests in an annotation."""
TESTING = "TESTING"


def level_label(level: int) -> str:
    """Label of a diagnostic's level."""
    return f"{PREFIX}dcgm.level.{level}"


def output_annotation(level: int) -> str:
    """Annotation with the failed tests of a level."""
    return f"{level_label(level)}.output"


def stamp(verdict: str, at: float) -> str:
    """`PASS_2026-01-31_12.00.00UTC` or `ERR_…`."""
    word = "PASS" if verdict == PASS else "ERR"
    return f"{word}_{time.strftime('%Y-%m-%d_%H.%M.%S', time.gmtime(at))}UTC"


def diagnosed(marks: Mapping[str, str], result: Result) -> Dict[str, str]:
    """Marks after a diagnostic; one that found nothing out changes none.

    A pass takes back what shallower levels failed with: a deeper level runs their tests, too.
    """
    after = dict(marks)
    if result.check != "dcgm" or result.verdict == UNKNOWN:
        return after
    after[level_label(result.level)] = stamp(result.verdict, result.at)
    after[output_annotation(result.level)] = ",".join(result.failing)[:OUTPUT_CHARACTERS]
    if result.verdict == PASS:
        for level in LEVELS:
            if level < result.level and after.get(level_label(level), "").startswith("ERR"):
                after[level_label(level)] = after[output_annotation(level)] = ""
        known = bool(failed_levels(marks))
        if after.get(HEALTH) == "EVICT" and not failed_levels(after) and (known or result.level >= DEEP_LEVEL):
            after[HEALTH] = ""
    return after


def failed_levels(marks: Mapping[str, str]) -> List[int]:
    """Levels whose last diagnostic failed."""
    return [level for level in LEVELS if marks.get(level_label(level), "").startswith("ERR")]


def health(
    marks: Mapping[str, str], results: Sequence[Result], fatal: Sequence[str], wanted: Sequence[str] = ()
) -> str:
    """Value of the label `gpuhealth`.

    `marks` are the present labels and annotations, after `diagnosed`; `results` the newest of each check; `fatal` words
    of failures that make a node unfit. While a result of the regular checks in `wanted` is missing, the label does not
    improve.
    """
    failed = failed_levels(marks)
    if any(is_fatal(marks.get(output_annotation(level), "").split(","), fatal) for level in failed):
        return "EVICT"
    if marks.get(HEALTH) == "EVICT" and not failed:
        return "EVICT"
    speaking = [one for one in results if one.check in GPU_CHECKS]
    # A deep test that found nothing out is not repeated for hours: it says nothing either way.
    verdicts = [one.verdict for one in speaking if one.verdict != UNKNOWN or one.level <= 1]
    if failed or FAIL in verdicts:
        return "WARN"
    missing = {one for one in wanted if one in GPU_CHECKS} - {one.check for one in speaking}
    if missing or not verdicts:
        return marks.get(HEALTH, "")
    return "PASS" if worst(verdicts) == PASS else "WARN"


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> Dict[str, str]:
    """Marks to be written."""
    return {name: value for name, value in after.items() if before.get(name, "") != value}


def is_ours(name: str) -> bool:
    """Whether a label or an annotation is one of these."""
    return name.startswith(PREFIX)


class NodeLabels:
    """The labels and annotations of one node.

    Without `api` nothing is written; `say` gets what could not be written.
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

    def update(self, news: Sequence[Result], known: Sequence[Result]) -> None:
        """Write the labels that follow from new results; `known` has the newest result of each check."""
        with self._lock:
            before = self._read()
            after = before
            for one in news:
                after = diagnosed(after, one)
            after = {**after, HEALTH: health(after, known, self._fatal, self._wanted)}
            written = {**after, HEALTH: TESTING} if self._testing and after[HEALTH] != "EVICT" else after
            self._write(before, written)
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
            written = {**after, HEALTH: TESTING} if on and after[HEALTH] != "EVICT" else after
            self._write(before, written)
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
        both = {**cast("Json", metadata.get("annotations") or {}), **cast("Json", metadata.get("labels") or {})}
        found = {name: str(value) for name, value in both.items() if is_ours(name)}
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
