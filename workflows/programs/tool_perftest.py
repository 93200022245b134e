"""Reads perftest's `ib_write_bw` and `ib_write_lat` (and their `send` and `read` sisters).

A megabyte of perftest is 2**20 bytes, a gigabit 10**9 bits; both become Gb/s. A peak of 0.00 was not measured (it is
not with `-D`), so only averages are kept.
"""

from __future__ import annotations

import re
from typing import List, Mapping, Tuple

from workflows.programs.readings import Parsed
from workflows.programs.tool_text import Told, amount, close, scaled, whole_lines

_HEADER = re.compile(r"#bytes\s.{0,300}")
_UNIT = re.compile(r"BW average\[(\w{2,4})/sec\]")
_DEVICE = re.compile(r"Device\s{0,20}: {0,4}(\S{1,40})")
GBITS: Mapping[str, float] = {"Gb": 1.0, "MB": 8 * 2.0**20 / 1e9, "MiB": 8 * 2.0**20 / 1e9}
"""How much Gb/s one printed unit is."""
LATENCIES = ((4, "rdma_latency_typical_by_size"), (8, "rdma_latency_p999_by_size"))
"""Column -> quantity, in a table with all columns."""


class _Table:
    """One client's or server's table."""

    def __init__(self, told: Told) -> None:
        self.told = told
        self.header = ""
        self.device = ""
        self.bandwidths: List[Tuple[float, str]] = []
        self.latencies: List[Tuple[float, str]] = []
        self.ended = True

    def row(self, stripped: str, line: str) -> None:
        """One line below the header; anything else is left alone."""
        cells = stripped.split(None, 12)
        size = amount(cells[0]) if cells else None
        if size is None or len(cells) < 4 or any(amount(cell) is None for cell in cells[:4]):
            return
        subject = f"{self.device} {int(size)} bytes".strip()
        unit = _UNIT.search(self.header)
        if unit and unit.group(1) in GBITS and len(cells) >= 5 and "#sl" not in self.header:
            average = scaled(amount(cells[3]) or 0.0, GBITS[unit.group(1)])
            self.told.figure("rdma_bandwidth_by_size", average, "Gb/s", subject, line)
            self.bandwidths.append((average, line))
            self.ended = False
        elif "t_typical[usec]" in self.header and len(cells) == 9:
            self._latency(cells, subject, line)
        elif "t_avg[usec]" in self.header and "t_typical" not in self.header:
            self.told.figure("rdma_latency_average_by_size", amount(cells[2]), "us", subject, line)
            self.ended = False

    def _latency(self, cells: List[str], subject: str, line: str) -> None:
        for column, quantity in LATENCIES:
            self.told.figure(quantity, amount(cells[column]), "us", subject, line)
        typical = amount(cells[4])
        if typical is not None:
            self.latencies.append((typical, line))
        self.ended = False

    def close(self) -> None:
        """The line of dashes below the rows: now the best row is known."""
        if self.bandwidths:
            best = max(self.bandwidths)
            self.told.figure("rdma_bandwidth", best[0], "Gb/s", self.device, best[1])
        if self.latencies:
            first = self.latencies[0]
            self.told.figure("rdma_latency", first[0], "us", self.device, first[1])
        self.bandwidths, self.latencies, self.ended = [], [], True


def parse(text: str) -> Parsed:
    """Readings: by message size, and at the table's end `rdma_bandwidth` (Gb/s, the best size) or `rdma_latency`.

    `rdma_latency` is the typical one of the first, smallest message, in microseconds. The subject is the device.
    """
    lines, cut = whole_lines(text)
    told = Told()
    table = _Table(told)
    for line in lines:
        stripped = line.strip()
        device = _DEVICE.search(line[:200])
        if device:
            table.device = device.group(1)
        elif _HEADER.fullmatch(stripped):
            table.header = stripped
        elif stripped.startswith("-----"):
            table.close()
        elif table.header:
            table.row(stripped, line)
    return close(told, "perftest", text, cut, _missing(table))


def _missing(table: _Table) -> str:
    unended = "the line below the table is missing"
    return "" if table.ended else unended
