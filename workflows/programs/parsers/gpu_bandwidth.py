"""Reads bandwidths of GPUs: nvbandwidth, TransferBench, rocblas-bench (with hipblaslt-bench) and BabelStream.

nvbandwidth: text, and JSON from version 0.5 on; bandwidths between hosts and GPUs, and latencies. TransferBench: tests
of a configuration file (text and CSV) and the presets `a2a` and `p2p`, versions 1.4x to 1.69, in GB/s as printed.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

from workflows.programs.parsers.text import (
    ParsedOutput,
    ToolReadings,
    amount,
    as_list,
    as_mapping,
    as_string,
    close_readings,
    document,
    looks_like_json,
    no_document,
    number,
    scale,
    whole_lines,
)

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


def parse_nvbandwidth(text: str) -> ParsedOutput:
    """Readings such as `host_to_gpu_bandwidth` (GB/s) by `cpu 0 -> gpu 1 ce`, sums, and latencies in us."""
    if looks_like_json(text):
        return _parse_json(text)
    lines, cut = whole_lines(text)
    results = ToolReadings()
    test = Case("")
    columns: List[str] = []
    ended, open_test = False, ""
    for line in lines:
        stripped = line.strip()
        running = _RUNNING.fullmatch(stripped)
        if running:
            test, columns, open_test = Case(running.group(1)), [], running.group(1)
        elif stripped.startswith(("SUM ", "COEFFICIENT", "MIN ", "MAX ", "AVG ")):
            open_test = _sum(results, test, stripped, line) or open_test
        elif _NUMBERS.fullmatch(stripped) and not columns:
            columns = stripped.split()
        elif columns and test.unit:
            _cells(results, test, columns, stripped, line)
        else:
            _other(results, test, stripped, line)
        ended = ended or stripped.startswith(NOTE)
    missing = f"{open_test} has no sum" if open_test.strip() else "" if ended else "the closing note is missing"
    return close_readings(results, TOOL, text, cut, missing)


def _other(results: ToolReadings, test: Case, stripped: str, line: str) -> None:
    if stripped.startswith("nvbandwidth Version:"):
        results.version = stripped.partition(":")[2].strip()[:40]
    elif stripped.startswith("Driver Version:"):
        results.word("driver_version", stripped.partition(":")[2], "", line)
    elif stripped.startswith("Waived"):
        results.note("some tests were waived: this node cannot run them")
    elif test.name:
        test.describe(stripped)


def _cells(results: ToolReadings, test: Case, columns: List[str], stripped: str, line: str) -> None:
    cells = stripped.split(None, 300)
    if len(cells) != len(columns) + 1 or not cells[0].isdigit() or len(cells[0]) > 4:
        return
    for column, cell in zip(columns, cells[1:]):  # noqa: B905 - 3.10
        value, unit = test.figure(cell)
        if value >= 0:
            results.figure(test.quantity, value, unit, test.subject(cells[0], column), line)


def _sum(results: ToolReadings, test: Case, stripped: str, line: str) -> str:
    """A blank where the test's sum was read."""
    cells = stripped.split(None, 4)
    if cells[0] != "SUM" or len(cells) != 3 or cells[1] != test.name:
        return ""
    value, unit = test.figure(cells[2])
    return " " if value >= 0 and results.figure(f"{test.quantity}_sum", value, unit, test.how, line) else ""


def _parse_json(text: str) -> ParsedOutput:
    root = as_mapping(as_mapping(document(text)).get("nvbandwidth"))
    if not root:
        return no_document(TOOL, text)
    results = ToolReadings()
    results.version = as_string(root.get("git_version"))
    results.word("driver_version", as_string(root.get("Driver Version")), "", "Driver Version")
    for case in as_list(root.get("testcases")):
        _json_case(results, as_mapping(case))
    if "error" in root:
        results.note(f"it ended in an error: {str(root['error'])[:120]}")
    return results.to_parsed()


def _json_case(results: ToolReadings, case: Dict[str, Any]) -> None:
    test = Case(as_string(case.get("name")))
    status = as_string(case.get("status"))
    if status != "Passed":
        results.note(f"{test.name or 'a test'} was not run: {status or 'it says nothing'}")
        return
    test.describe(as_string(case.get("bandwidth_description")))
    for row, cells in enumerate(as_list(case.get("bandwidth_matrix"))):
        for column, cell in enumerate(as_list(cells)):
            value, unit = test.figure(str(cell))
            if value >= 0:
                subject = test.subject(str(row), str(column))
                results.figure(test.quantity, value, unit, subject, f"{test.name}: {subject}: {cell}")
    total = number(case.get("sum"))
    if total is not None:
        value, unit = test.figure(str(total))
        results.figure(
            f"{test.quantity}_sum", value if value >= 0 else None, unit, test.how, f"{test.name}: sum {total}"
        )


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
        self.results = ToolReadings()
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
            self.results.version = stripped[15:55].split(maxsplit=1)[0] if stripped[15:].strip() else ""
        elif self.columns and _ROW.match(stripped):
            self._row(stripped, line)
        else:
            self._figures(stripped, line)

    def _row(self, stripped: str, line: str) -> None:
        row = _ROW.match(stripped)
        if row is None:
            return
        kind, index, arrow, rest = row.groups()
        for (other, place), cell in zip(self.columns, rest.split(None, 300)):  # noqa: B905 - 3.10
            here, there = f"{kind.lower()} {int(index)}", f"{other.lower()} {int(place)}"
            both = arrow == "<->"
            subject = f"{there} -> {here}" if arrow == "<-" else f"{here} {'<->' if both else '->'} {there}"
            quantity = QUANTITIES[(other, kind) if arrow == "<-" else (kind, other)]
            part = "" if both or not self.both else " of both"
            self.results.figure(quantity + (self.both if both else ""), amount(cell), "GB/s", subject + part, line)

    def _figures(self, stripped: str, line: str) -> None:
        summary = _SUMMARY.match(stripped)
        if summary:
            name = "gpu_to_gpu_bandwidth_average" if summary.group(1) == "Average" else "aggregate_bandwidth"
            self.results.figure(name, amount(summary.group(3)), "GB/s", f"{summary.group(2).lower()} timed", line)
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
            self.results.figure(quantity, amount(cell), "GB/s", "both ways" if "bidir" in way else "one way", line)
        self.open = ""

    def _transfer(self, stripped: str, line: str) -> None:
        rate = _RATE.search(stripped[:120])
        transfer = _TRANSFER.match(stripped)
        value: Optional[float] = amount(rate.group(1)) if rate else None
        if transfer:
            route = _ROUTE.search(stripped[:400])
            way = f" {route.group(1)} -> {route.group(2)}" if route else ""
            self.results.figure(
                "transfer_bandwidth", value, "GB/s", f"{self.test} transfer {transfer.group(1)}{way}", line
            )
        elif self.results.figure("aggregate_bandwidth", value, "GB/s", self.test, line):
            self.open = ""


def parse_transferbench(text: str) -> ParsedOutput:
    """Readings: `transfer_bandwidth` and `aggregate_bandwidth` by test, and matrices between hosts and GPUs by pair.

    In the bidirectional matrix the two ways of a pair carry `of both` in the subject; the sum of both is
    `…_bandwidth_bidirectional`.
    """
    lines, cut = whole_lines(text)
    state = _State()
    for line in lines:
        state.line(line.strip(), line)
    if "[ERROR]" in text:
        state.results.note("it ended in an error")
    return close_readings(state.results, "TransferBench", text, cut, state.open)


_GFLOPS = re.compile(r"(?:rocblas|hipblas|hipblaslt)-[Gg]flops")
_STREAM = re.compile(r"(Copy|Mul|Add|Triad|Dot|Nstream)\s{1,40}(\S{1,30})(?:\s{1,40}\S{1,30}){3}")
_FUNCTION = re.compile(r"Function\s{1,40}(MBytes|MiBytes|GBytes|GiBytes)/sec\s.{0,100}")
UNITS: Dict[str, float] = {"MBytes": 1e-3, "MiBytes": 1.048576e-3, "GBytes": 1.0, "GiBytes": 1.073741824}
"""GB/s in one printed unit."""
LAST = ("Dot", "Nstream")
"""The last row of a table."""


def parse_gemm(text: str) -> ParsedOutput:
    """Readings `gemm` (TFLOP/s) and `gemm_time` (us) of each line below a header with `rocblas-Gflops`.

    The type of the numbers is not printed. A line with another number of cells than its header is left out.
    """
    lines, cut = whole_lines(text)
    results = ToolReadings()
    columns: List[str] = []
    for line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        if any(_GFLOPS.fullmatch(cell.partition(":")[2] or cell) for cell in cells):
            columns = [cell.partition(":")[2] or cell for cell in cells]
        elif columns and len(cells) == len(columns):
            _gemm(results, columns, cells, line)
    if columns and not results.readings:
        results.note("the figures below the header are missing")
    return close_readings(results, "rocblas-bench", text, cut)


def _gemm(results: ToolReadings, columns: List[str], cells: List[str], line: str) -> None:
    by_name: Dict[str, str] = dict(zip(columns, cells))  # noqa: B905 - 3.10
    rate = next((amount(by_name[name]) for name in columns if _GFLOPS.fullmatch(name)), None)
    lowered = {name.lower(): cell for name, cell in by_name.items()}
    sizes = [lowered.get(name, "") for name in ("m", "n", "k")]
    subject = "x".join(sizes) if all(sizes) else ""
    if results.figure("gemm", None if rate is None else scale(rate, 1e-3), "TFLOP/s", subject, line):
        results.figure("gemm_time", amount(by_name.get("us", "")), "us", subject, line)


def parse_stream(text: str) -> ParsedOutput:
    """Readings `hbm_bandwidth` (GB/s) by kernel. Tables of several processes may follow each other, without a name."""
    lines, cut = whole_lines(text)
    results = ToolReadings()
    factor = 0.0
    last = ""
    for line in lines:
        stripped = line.strip()
        header = _FUNCTION.fullmatch(stripped)
        row = _STREAM.fullmatch(stripped)
        if header:
            factor = UNITS[header.group(1)]
        elif row and factor:
            last = _kernel(results, row.group(1), row.group(2), factor, line) or last
        elif stripped.startswith("Version:"):
            results.version = stripped[8:48].strip()
        elif stripped.startswith("Validation failed"):
            results.word("stream_validation", "failed", "", line, "fail")
    missing = "" if last in LAST else "the table's last row is missing"
    return close_readings(results, "BabelStream", text, cut, missing)


def _kernel(results: ToolReadings, name: str, text: str, factor: float, line: str) -> str:
    value = amount(text)
    kept = results.figure("hbm_bandwidth", None if value is None else scale(value, factor), "GB/s", name.lower(), line)
    return name if kept else ""
