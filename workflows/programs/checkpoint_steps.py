"""The step of a file whose name says none: the last step that was reported before the file was written."""

from __future__ import annotations

import glob
import json
import os
from typing import Any, Dict, Iterator, List, Optional, Tuple, cast

from workflows.programs.checkpoint_formats import UNKNOWN_STEP
from workflows.reports import LINE_PREFIX

Row = Tuple[float, int]
"""Unix time in seconds, and the step that was seen then."""

TAIL_BYTES = 1 << 20
"""So much of the end of each record of steps is read: some 10,000 steps."""
LATE_SECONDS = 0.25
LATE_SHARE = 0.25
"""A line is read a little after it was printed, on a busy machine later than a small file is written: a step seen so
soon after the file belongs before it. At most this share of the shortest step nearby, or a slow save would pass for it.
"""
NEARBY = 3
"""Steps on either side that tell how long a step is."""


def reported_step(run_dir: str, mtime_ns: int) -> int:
    """The last step in any attempt's `steps.jsonl` that was over by `mtime_ns`; `UNKNOWN_STEP` where there is none."""
    latest: Optional[Row] = None
    for path in glob.glob(os.path.join(glob.escape(run_dir), "a[0-9]*", "*", "steps.jsonl")):
        found = _last_by(path, mtime_ns / 1e9)
        if found is not None and (latest is None or found > latest):
            latest = found
    return UNKNOWN_STEP if latest is None else latest[1]


def _last_by(path: str, moment: float) -> Optional[Row]:
    before: List[Row] = []
    after: List[Row] = []
    for line in reversed(_last_lines(path)):
        for row in _seen(line):
            (before if row[0] <= moment else after).append(row)
        if len(before) >= NEARBY:
            break
    times = sorted(at for at, _ in before[:NEARBY] + after[-NEARBY:])
    shortest = min((later - earlier for earlier, later in zip(times, times[1:])), default=0.0)  # noqa: B905, RUF007 - 3.10
    if after and after[-1][0] - moment <= min(LATE_SECONDS, shortest * LATE_SHARE):
        return after[-1]
    return before[0] if before else None


def _last_lines(path: str) -> List[bytes]:
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            return file.read().splitlines()
    except OSError:
        return []


def _seen(line: bytes) -> Iterator[Row]:
    text = line.decode("utf-8", "replace")
    try:
        data = json.loads(text[len(LINE_PREFIX) :] if text.startswith(LINE_PREFIX) else text)
    except (ValueError, RecursionError):
        return
    if isinstance(data, dict):
        seen = cast("Dict[str, Any]", data)
        at, step = seen.get("at"), seen.get("step")
        if isinstance(at, (int, float)) and isinstance(step, int):
            yield float(at), step
