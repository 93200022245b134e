"""Reads TransferBench: tests of a configuration file (text and CSV) and the presets `a2a` and `p2p`.

Formats: versions 1.4x to 1.69. Bandwidths are GB/s as printed.
"""

from __future__ import annotations

import re
from typing import List, Mapping, Optional, Tuple

from workflows.programs.readings import Parsed
from workflows.programs.tool_text import Told, amount, close, whole_lines

_TEST = re.compile(r"Test ([0-9]{1,6}):")
_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) {1,4}GB/s")
_TRANSFER = re.compile(r"Transfer ([0-9]{1,6})")
_ROUTE = re.compile(r"([A-Z0-9]{1,40}) -> .{1,40} -> ([A-Z0-9]{1,40})")
_HEADER = re.compile(r"SRC(?:\+EXE)?\\{1,2}DST\s.{1,600}")
_DEVICE = re.compile(r"(CPU|GPU) ([0-9]{2,3})")
_ROW = re.compile(r"(CPU|GPU) ([0-9]{2,3})\s{1,8}(->|<->|<-|)\s{0,12}(?=[0-9N])(.{1,600})")
_SUMMARY = re.compile(r"(Average|Aggregate)\s{1,8}bandwidth \((GPU|CPU) Timed\):\s{1,12}([0-9.]{1,20}) GB/s")
_KINDS = re.compile(r"(?:[CG]PU->[CG]PU\s{0,12}){1,8}")
QUANTITIES: Mapping[Tuple[str, str], str] = {
    ("CPU", "CPU"): "host_to_host_bandwidth",
    ("CPU", "GPU"): "host_to_gpu_bandwidth",
    ("GPU", "CPU"): "gpu_to_host_bandwidth",
    ("GPU", "GPU"): "gpu_to_gpu_bandwidth",
}


class _State:
    """Where in the output we are."""

    def __init__(self) -> None:
        self.told = Told()
        self.test = ""
        self.columns: List[Tuple[str, str]] = []
        self.kinds: List[str] = []
        self.both = ""
        self.open = ""

    def line(self, stripped: str, line: str) -> None:
        """One line."""
        test = _TEST.fullmatch(stripped)
        if test:
            self.test, self.open = (
                f"test {int(test.group(1))}",
                f"the aggregate of test {int(test.group(1))} is missing",
            )
        elif "copy peak bandwidth GB/s" in stripped[:60]:
            self.both = "_bidirectional" if stripped.startswith("Bi") else ""
        elif _HEADER.fullmatch(stripped):
            self.columns = _DEVICE.findall(stripped)
            self.open = "the summary below the matrix is missing"
        elif stripped.startswith("TransferBench v"):
            self.told.version = stripped[15:55].split(maxsplit=1)[0] if stripped[15:].strip() else ""
        elif self.columns and _ROW.match(stripped):
            self._row(stripped, line)
        else:
            self._figures(stripped, line)

    def _row(self, stripped: str, line: str) -> None:
        row = _ROW.match(stripped)
        if row is None:
            return
        kind, index, arrow, rest = row.groups()
        for (other, number), cell in zip(self.columns, rest.split(None, 300)):  # noqa: B905 - 3.10
            here, there = f"{kind.lower()} {int(index)}", f"{other.lower()} {int(number)}"
            both = arrow == "<->"
            subject = f"{there} -> {here}" if arrow == "<-" else f"{here} {'<->' if both else '->'} {there}"
            quantity = QUANTITIES[(other, kind) if arrow == "<-" else (kind, other)]
            part = "" if both or not self.both else " of both"
            self.told.figure(quantity + (self.both if both else ""), amount(cell), "GB/s", subject + part, line)

    def _figures(self, stripped: str, line: str) -> None:
        summary = _SUMMARY.match(stripped)
        if summary:
            name = "gpu_to_gpu_bandwidth_average" if summary.group(1) == "Average" else "aggregate_bandwidth"
            self.told.figure(name, amount(summary.group(3)), "GB/s", f"{summary.group(2).lower()} timed", line)
            self.open = "" if summary.group(2) == "CPU" else self.open
        elif _KINDS.fullmatch(stripped):
            self.kinds = stripped.split()
        elif stripped.startswith("Averages (During"):
            self._averages(stripped, line)
        elif self.test and stripped.startswith(("Transfer ", "Aggregate (CPU)")):
            self._transfer(stripped, line)

    def _averages(self, stripped: str, line: str) -> None:
        way = stripped.partition(":")[0].lower()
        cells = stripped.partition(":")[2].split(None, 16)
        for kind, cell in zip(self.kinds, cells):  # noqa: B905 - 3.10
            quantity = QUANTITIES[(kind[:3], kind[-3:])] + "_average"
            self.told.figure(quantity, amount(cell), "GB/s", "both ways" if "bidir" in way else "one way", line)
        self.open = ""

    def _transfer(self, stripped: str, line: str) -> None:
        rate = _RATE.search(stripped[:120])
        transfer = _TRANSFER.match(stripped)
        value: Optional[float] = amount(rate.group(1)) if rate else None
        if transfer:
            route = _ROUTE.search(stripped[:400])
            way = f" {route.group(1)} -> {route.group(2)}" if route else ""
            self.told.figure(
                "transfer_bandwidth", value, "GB/s", f"{self.test} transfer {transfer.group(1)}{way}", line
            )
        elif self.told.figure("aggregate_bandwidth", value, "GB/s", self.test, line):
            self.open = ""


def parse(text: str) -> Parsed:
    """Readings: `transfer_bandwidth` and `aggregate_bandwidth` by test, and matrices between hosts and GPUs by pair.

    In the bidirectional matrix the two ways of a pair carry `of both` in the subject; the sum of both is
    `…_bandwidth_bidirectional`.
    """
    lines, cut = whole_lines(text)
    state = _State()
    for line in lines:
        state.line(line.strip(), line)
    if "[ERROR]" in text:
        state.told.note("it ended in an error")
    return close(state.told, "TransferBench", text, cut, state.open)
