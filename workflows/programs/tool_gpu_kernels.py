"""Reads two programs that time kernels on one GPU: rocblas-bench (with hipblaslt-bench) and BabelStream."""

from __future__ import annotations

import re
from typing import Dict, List

from workflows.programs.readings import Parsed
from workflows.programs.tool_text import Told, amount, close, scaled, whole_lines

_GFLOPS = re.compile(r"(?:rocblas|hipblas|hipblaslt)-[Gg]flops")
_STREAM = re.compile(r"(Copy|Mul|Add|Triad|Dot|Nstream)\s{1,40}(\S{1,30})(?:\s{1,40}\S{1,30}){3}")
_FUNCTION = re.compile(r"Function\s{1,40}(MBytes|MiBytes|GBytes|GiBytes)/sec\s.{0,100}")
UNITS: Dict[str, float] = {"MBytes": 1e-3, "MiBytes": 1.048576e-3, "GBytes": 1.0, "GiBytes": 1.073741824}
"""GB/s in one printed unit."""
LAST = ("Dot", "Nstream")
"""The last row of a table."""


def parse_gemm(text: str) -> Parsed:
    """Readings `gemm` (TFLOP/s) and `gemm_time` (us) of each line below a header with `rocblas-Gflops`.

    The type of the numbers is not printed. A line with another number of cells than its header is left out.
    """
    lines, cut = whole_lines(text)
    told = Told()
    columns: List[str] = []
    for line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        if any(_GFLOPS.fullmatch(cell.partition(":")[2] or cell) for cell in cells):
            columns = [cell.partition(":")[2] or cell for cell in cells]
        elif columns and len(cells) == len(columns):
            _gemm(told, columns, cells, line)
    if columns and not told.readings:
        told.note("the figures below the header are missing")
    return close(told, "rocblas-bench", text, cut)


def _gemm(told: Told, columns: List[str], cells: List[str], line: str) -> None:
    by_name: Dict[str, str] = dict(zip(columns, cells))  # noqa: B905 - 3.10
    rate = next((amount(by_name[name]) for name in columns if _GFLOPS.fullmatch(name)), None)
    lowered = {name.lower(): cell for name, cell in by_name.items()}
    sizes = [lowered.get(name, "") for name in ("m", "n", "k")]
    subject = "x".join(sizes) if all(sizes) else ""
    if told.figure("gemm", None if rate is None else scaled(rate, 1e-3), "TFLOP/s", subject, line):
        told.figure("gemm_time", amount(by_name.get("us", "")), "us", subject, line)


def parse_stream(text: str) -> Parsed:
    """Readings `hbm_bandwidth` (GB/s) by kernel. Tables of several processes may follow each other, without a name."""
    lines, cut = whole_lines(text)
    told = Told()
    factor = 0.0
    last = ""
    for line in lines:
        stripped = line.strip()
        header = _FUNCTION.fullmatch(stripped)
        row = _STREAM.fullmatch(stripped)
        if header:
            factor = UNITS[header.group(1)]
        elif row and factor:
            last = _kernel(told, row.group(1), row.group(2), factor, line) or last
        elif stripped.startswith("Version:"):
            told.version = stripped[8:48].strip()
        elif stripped.startswith("Validation failed"):
            told.word("stream_validation", "failed", "", line, "fail")
    missing = "" if last in LAST else "the table's last row is missing"
    return close(told, "BabelStream", text, cut, missing)


def _kernel(told: Told, name: str, text: str, factor: float, line: str) -> str:
    value = amount(text)
    kept = told.figure("hbm_bandwidth", None if value is None else scaled(value, factor), "GB/s", name.lower(), line)
    return name if kept else ""
