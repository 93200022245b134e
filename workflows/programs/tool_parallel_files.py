"""Reads IOR (bandwidth of one shared file system) and mdtest (operations on files and folders a second)."""

from __future__ import annotations

import re
from typing import List

from workflows.programs.readings import Parsed
from workflows.programs.tool_text import Told, amount, close, scaled, whole_lines

_MAX = re.compile(r"Max (Write|Read):\s{1,12}(\S{1,30}) MiB/sec(?: \((\S{1,30}) MB/sec\))?")
_OPERATION = re.compile(
    r"((?:File|Directory|Tree) (?:creation|stat|read|removal|rename))\s{0,40}:?\s{1,40}(\S.{0,300})"
)
MIB = 2.0**20 / 1e9
"""GB in a MiB."""


def parse_ior(text: str) -> Parsed:
    """Readings `storage_write_bandwidth` and `storage_read_bandwidth` in GB/s: the best of all repetitions."""
    lines, cut = whole_lines(text)
    told = Told()
    ended = False
    for line in lines:
        stripped = line.strip()
        best = _MAX.fullmatch(stripped)
        if best:
            value = amount(best.group(2))
            # A way that was not run is printed as 0.00.
            if value:
                told.figure(f"storage_{best.group(1).lower()}_bandwidth", scaled(value, MIB), "GB/s", "", line)
        elif stripped.startswith("IOR-"):
            told.version = stripped[4:44].partition(":")[0]
        elif stripped.startswith(("ERROR", "ior ERROR")):
            told.note(f"it ended in an error: {stripped[:120]}")
        ended = ended or stripped.startswith("Finished")
    return close(told, "IOR", text, cut, "" if ended else "the line `Finished` is missing")


def parse_mdtest(text: str) -> Parsed:
    """Readings such as `file_creation_rate` in operations a second: the mean of all iterations.

    An operation that was not run is printed as 0.000 and tells nothing.
    """
    lines, cut = whole_lines(text)
    told = Told()
    rates = ended = False
    for line in lines:
        stripped = line.strip()
        if stripped.startswith("SUMMARY"):
            rates = "time" not in stripped[:20]
        operation = _OPERATION.fullmatch(stripped) if rates else None
        if operation:
            mean = _mean(operation.group(2).split(None, 16))
            name = operation.group(1).lower().replace(" ", "_")
            told.figure(f"{name}_rate", amount(mean) or None, "1/s", "", line)
        elif stripped.startswith("mdtest-"):
            told.version = stripped[7:47].partition(" ")[0]
        ended = ended or "finished at" in stripped[:40]
    return close(told, "mdtest", text, cut, "" if ended else "the line `finished at` is missing")


def _mean(cells: List[str]) -> str:
    """Of `max min mean deviation`, or of version 4's three columns by rank before those four."""
    return cells[2] if 3 <= len(cells) <= 4 else cells[5] if len(cells) == 7 else ""
