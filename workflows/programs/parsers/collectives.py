"""Reads nccl-tests and rccl-tests: bus bandwidth by message size, at the largest size, on average, and wrong values.

Tables of all versions end each row with twice `time algbw busbw wrong` (out-of-place, in-place), so rows are read from
their right end; older ones have no column `root`, some operations none for `redop`. Times are microseconds, GB 10**9.
"""

from __future__ import annotations

import re
from typing import List, Optional, Tuple

from workflows.programs.parsers.text import ParsedOutput, ToolReadings, amount, close_readings, whole_lines

_PREFIX = re.compile(r"(?:\[[0-9]{1,3},[0-9]{1,6}\]<std(?:out|err)>: ?)?")
_TYPE = re.compile(r"[a-z][a-z0-9_]{2,20}")
_NAME = re.compile(r"\b([a-z]{2,12}(?:_[a-z]{2,12}){0,2})_perf\b")
_VERSION = re.compile(r"[nr]ccl-tests(?:: Version| version) {1,4}(\S{1,60})")
PLACES = ("out-of-place", "in-place")
Row = Tuple[float, List[Tuple[float, Optional[float]]]]
"""Bytes, and for each place the bus bandwidth and the wrong values, None where they were not counted."""


class _Table:
    """What is known while the lines go by."""

    def __init__(self) -> None:
        self.results = ToolReadings()
        self.largest: Optional[Tuple[Row, str]] = None
        self.checked = False
        self.ended = True

    def line(self, stripped: str, line: str) -> None:
        """One line."""
        row = _row(stripped)
        if row is not None:
            self.ended = False
            self.checked = self.checked or any(wrong is not None for _, wrong in row[1])
            self.largest = (row, line) if self.largest is None or row[0] >= self.largest[0][0] else self.largest
            _told_row(self.results, row, line)
        elif "Out of bounds values" in stripped[:40]:
            self._out_of_bounds(stripped, line)
        elif "Avg bus bandwidth" in stripped[:40]:
            self._average(stripped, line)
        else:
            _heading(self.results, stripped, line)

    def _out_of_bounds(self, stripped: str, line: str) -> None:
        """The tool's own verdict; it says `0 OK` also where it checked nothing, and that is none."""
        cells = stripped.partition(":")[2].split(None, 3)
        wrong = amount(cells[0]) if len(cells) >= 2 else None
        if wrong == 0 and not self.checked:
            self.results.note("the values were not checked")
        elif wrong is not None:
            said = {"OK": "pass", "FAILED": "fail"}.get(cells[1], "")
            self.results.figure("collective_wrong_values", wrong, "count", "", line, said)

    def _average(self, stripped: str, line: str) -> None:
        cells = stripped.partition(":")[2].split(None, 2)
        self.ended = bool(cells) and self.results.figure("bus_bandwidth_average", amount(cells[0]), "GB/s", "", line)
        if self.ended and self.largest is not None:
            for place, (bus, _) in zip(PLACES, self.largest[0][1]):  # noqa: B905 - 3.10
                self.results.figure("bus_bandwidth", bus, "GB/s", place, self.largest[1])
        self.largest, self.checked = None, False


def parse(text: str) -> ParsedOutput:
    """Readings, all in GB/s or count.

    `bus_bandwidth_by_size` with the subject `<bytes> bytes <place>`; at the table's end `bus_bandwidth` of the largest
    message by place, `bus_bandwidth_average` as the tool prints it, `collective_wrong_values` (what the tool says of
    it: pass or fail). Without the table's end there is no `bus_bandwidth`: the largest message is not known.
    """
    lines, cut = whole_lines(text)
    table = _Table()
    for line in lines:
        table.line(line[_prefix(line) :].strip(), line)
    return close_readings(
        table.results, "nccl-tests", text, cut, "" if table.ended else "the average below the table is missing"
    )


def _prefix(line: str) -> int:
    """Length of what mpirun puts before each line."""
    hit = _PREFIX.match(line)
    return hit.end() if hit else 0


def _row(stripped: str) -> Optional[Row]:
    cells = stripped.split(None, 20)
    if not 11 <= len(cells) <= 13 or _TYPE.fullmatch(cells[2]) is None:
        return None
    size = amount(cells[0])
    count = amount(cells[1])
    places: List[Tuple[float, Optional[float]]] = []
    for at in (-8, -4):
        time, algorithm, bus = (amount(cell) for cell in cells[at : at + 3])
        if time is None or algorithm is None or bus is None:
            return None
        places.append((bus, amount((cells[at + 3 :] or [""])[0])))
    return (size, places) if size is not None and count is not None and size == int(size) else None


def _told_row(results: ToolReadings, row: Row, line: str) -> None:
    for place, (bus, wrong) in zip(PLACES, row[1]):  # noqa: B905 - 3.10
        results.figure("bus_bandwidth_by_size", bus, "GB/s", f"{int(row[0])} bytes {place}", line)
        if wrong is not None and wrong > 0:
            results.figure("collective_wrong_values", wrong, "count", f"{int(row[0])} bytes {place}", line)


def _heading(results: ToolReadings, stripped: str, line: str) -> None:
    version = _VERSION.search(stripped[:200])
    if version:
        results.version = version.group(1)
    name = _NAME.search(stripped[:200]) if "Collective test starting" in stripped[:60] else None
    if name:
        results.word("collective", name.group(1), "", line)
