"""Reads nvbandwidth, as text and as JSON (from version 0.5 on): bandwidths between hosts and GPUs, and latencies."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Tuple

from workflows.programs.readings import Parsed
from workflows.programs.tool_json import document, listing, looks_like_json, mapping, no_document, number, string
from workflows.programs.tool_text import Told, amount, close, whole_lines

TOOL = "nvbandwidth"
_RUNNING = re.compile(r"Running ([a-z][a-z0-9_]{3,60})\.")
_MATRIX = re.compile(r".{0,60}?(CPU|GPU)\(row\) (->|<-|<->) (CPU|GPU)\(column\).{0,40}?\((GB/s|ns|us)\)")
_SINGLE = re.compile(r".{0,80}\((GB/s|ns|us)\)")
_NUMBERS = re.compile(r"[0-9]{1,4}(?:\s+[0-9]{1,4}){0,255}")
NOTE = "NOTE: The reported results"
"""The last lines of every version that was seen begin so."""


class Case:
    """What the heading of a test says."""

    def __init__(self, name: str) -> None:
        self.name = name
        base = re.split(r"_memcpy|_latency|_bidirectional", name)[0].replace("device", "gpu")
        both_ways = "_bidirectional" if "bidirectional" in name else ""
        self.quantity = base + both_ways + ("_latency" if "latency" in name else "_bandwidth")
        self.how = " ".join(word for word in name.split("_") if word in ("ce", "sm", "read", "write"))
        self.unit = ""
        self.pair: Tuple[str, str, str] = ("", "", "")

    def describe(self, line: str) -> bool:
        """Take the line above the matrix; False where it is none."""
        matrix = _MATRIX.fullmatch(line)
        single = _SINGLE.fullmatch(line)
        if matrix:
            self.pair = (matrix.group(1).lower(), matrix.group(2), matrix.group(3).lower())
            self.unit = matrix.group(4)
        elif single:
            self.unit = single.group(1)
        return matrix is not None or single is not None

    def subject(self, row: str, column: str) -> str:
        """`cpu 0 -> gpu 1 ce`: where the data goes, and by which engine."""
        left, arrow, right = self.pair
        if not arrow:
            return f"gpu {column} {self.how}".strip()
        if arrow == "<-":
            return f"{right} {column} -> {left} {row} {self.how}".strip()
        return f"{left} {row} {arrow} {right} {column} {self.how}".strip()

    def figure(self, text: str) -> Tuple[float, str]:
        """(value, unit) of a cell; a negative value where it is no figure."""
        value = amount(text)
        if value is None:
            return -1.0, ""
        return (value / 1e3, "us") if self.unit == "ns" else (value, self.unit)


def parse(text: str) -> Parsed:
    """Readings such as `host_to_gpu_bandwidth` (GB/s) by `cpu 0 -> gpu 1 ce`, sums, and latencies in us."""
    if looks_like_json(text):
        return _parse_json(text)
    lines, cut = whole_lines(text)
    told = Told()
    test = Case("")
    columns: List[str] = []
    ended, open_test = False, ""
    for line in lines:
        stripped = line.strip()
        running = _RUNNING.fullmatch(stripped)
        if running:
            test, columns, open_test = Case(running.group(1)), [], running.group(1)
        elif stripped.startswith(("SUM ", "COEFFICIENT", "MIN ", "MAX ", "AVG ")):
            open_test = _sum(told, test, stripped, line) or open_test
        elif _NUMBERS.fullmatch(stripped) and not columns:
            columns = stripped.split()
        elif columns and test.unit:
            _cells(told, test, columns, stripped, line)
        else:
            _other(told, test, stripped, line)
        ended = ended or stripped.startswith(NOTE)
    missing = f"{open_test} has no sum" if open_test.strip() else "" if ended else "the closing note is missing"
    return close(told, TOOL, text, cut, missing)


def _other(told: Told, test: Case, stripped: str, line: str) -> None:
    if stripped.startswith("nvbandwidth Version:"):
        told.version = stripped.partition(":")[2].strip()[:40]
    elif stripped.startswith("Driver Version:"):
        told.word("driver_version", stripped.partition(":")[2], "", line)
    elif stripped.startswith("Waived"):
        told.note("some tests were waived: this node cannot run them")
    elif test.name:
        test.describe(stripped)


def _cells(told: Told, test: Case, columns: List[str], stripped: str, line: str) -> None:
    cells = stripped.split(None, 300)
    if len(cells) != len(columns) + 1 or not cells[0].isdigit() or len(cells[0]) > 4:
        return
    for column, cell in zip(columns, cells[1:]):  # noqa: B905 - 3.10
        value, unit = test.figure(cell)
        if value >= 0:
            told.figure(test.quantity, value, unit, test.subject(cells[0], column), line)


def _sum(told: Told, test: Case, stripped: str, line: str) -> str:
    """A blank where the test's sum was read."""
    cells = stripped.split(None, 4)
    if cells[0] != "SUM" or len(cells) != 3 or cells[1] != test.name:
        return ""
    value, unit = test.figure(cells[2])
    return " " if value >= 0 and told.figure(f"{test.quantity}_sum", value, unit, test.how, line) else ""


def _parse_json(text: str) -> Parsed:
    root = mapping(mapping(document(text)).get("nvbandwidth"))
    if not root:
        return no_document(TOOL, text)
    told = Told()
    told.version = string(root.get("git_version"))
    told.word("driver_version", string(root.get("Driver Version")), "", "Driver Version")
    for case in listing(root.get("testcases")):
        _json_case(told, mapping(case))
    if "error" in root:
        told.note(f"it ended in an error: {str(root['error'])[:120]}")
    return told.parsed()


def _json_case(told: Told, case: Dict[str, Any]) -> None:
    test = Case(string(case.get("name")))
    status = string(case.get("status"))
    if status != "Passed":
        told.note(f"{test.name or 'a test'} was not run: {status or 'it says nothing'}")
        return
    test.describe(string(case.get("bandwidth_description")))
    for row, cells in enumerate(listing(case.get("bandwidth_matrix"))):
        for column, cell in enumerate(listing(cells)):
            value, unit = test.figure(str(cell))
            if value >= 0:
                subject = test.subject(str(row), str(column))
                told.figure(test.quantity, value, unit, subject, f"{test.name}: {subject}: {cell}")
    total = number(case.get("sum"))
    if total is not None:
        value, unit = test.figure(str(total))
        told.figure(f"{test.quantity}_sum", value if value >= 0 else None, unit, test.how, f"{test.name}: sum {total}")
