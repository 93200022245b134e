"""Reads storage tools: fio (JSON of `json` and `json+`, terse versions 3 to 5), IOR and mdtest.

Latencies of fio 2 are microseconds (`clat`), those of fio 3 nanoseconds (`clat_ns`). `bw` is KiB/s, `bw_bytes` bytes.
IOR gives the bandwidth of one shared file system, mdtest operations on files and folders a second.
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

TOOL = "fio"
WAYS = ("read", "write")
PERCENTILE = "99.000000"
TERSE: Mapping[str, int] = {"read": 5, "write": 46}
"""Where the fields of a way begin in a terse line: total KiB, KiB/s, operations a second, ms, …"""
TERSE_FIELDS = 87
"""As many as a terse line of version 3 to 5 has at least, up to the end of `write`."""


def parse(text: str) -> ParsedOutput:
    """Readings by the job's name: `storage_read_bandwidth` (GB/s), `storage_read_rate` (1/s), `…_latency_p99` (ms).

    The same for `write`; a way without operations tells nothing. `storage_errors` is the job's error number.
    """
    if looks_like_json(text):
        return _parse_json(text)
    lines, cut = whole_lines(text)
    results = ToolReadings()
    for line in lines:
        cells = line.split(";", 400)
        if len(cells) >= TERSE_FIELDS and cells[0] in ("3", "4", "5") and cells[1].startswith("fio-"):
            _terse(results, cells, line)
        elif line.startswith("fio: ") and "err=" in line[:400]:
            results.note("a job ended in an error")
    return close_readings(results, TOOL, text, cut)


def _terse(results: ToolReadings, cells: List[str], line: str) -> None:
    results.version = cells[1][4:44]
    job = cells[2][:80]
    results.figure("storage_errors", amount(cells[4]), "count", job, line)
    for way in WAYS:
        total, rate, operations = (amount(cell) for cell in cells[TERSE[way] : TERSE[way] + 3])
        if total and rate is not None:
            results.figure(f"storage_{way}_bandwidth", scale(rate, 1.024e-6), "GB/s", job, line)
            results.figure(f"storage_{way}_rate", operations, "1/s", job, line)


def _parse_json(text: str) -> ParsedOutput:
    data = as_mapping(document(text))
    jobs = [as_mapping(job) for job in as_list(data.get("jobs"))]
    if "fio version" not in data:
        return no_document(TOOL, text)
    results = ToolReadings()
    results.version = as_string(data.get("fio version")).replace("fio-", "")[:40]
    for job in jobs:
        name = as_string(job.get("jobname"))[:80]
        results.figure("storage_errors", number(job.get("error")), "count", name, f"{name}: error {job.get('error')}")
        for way in WAYS:
            _way(results, name, way, as_mapping(job.get(way)))
    if not any(one.quantity != "storage_errors" for one in results.readings):
        results.note("no job has read or written anything")
    return results.to_parsed()


def _way(results: ToolReadings, job: str, way: str, part: Dict[str, Any]) -> None:
    if not _positive(part.get("total_ios")) and not _positive(part.get("io_bytes")):
        return
    exact, rough = _positive(part.get("bw_bytes")), _positive(part.get("bw"))
    rate = scale(exact, 1e-9) if exact is not None else scale(rough, 1.024e-6) if rough is not None else None
    line = f"{job}: {way}: bw {part.get('bw')} KiB/s, iops {part.get('iops')}"
    results.figure(f"storage_{way}_bandwidth", rate, "GB/s", job, line)
    results.figure(f"storage_{way}_rate", _positive(part.get("iops")), "1/s", job, line)
    latency, factor = _latency(part)
    results.figure(
        f"storage_{way}_latency_p99", None if latency is None else scale(latency, factor), "ms", job, f"{line}, p99"
    )


def _latency(part: Dict[str, Any]) -> Tuple[Optional[float], float]:
    for name, factor in (("clat_ns", 1e-6), ("clat", 1e-3)):
        percentiles = as_mapping(as_mapping(part.get(name)).get("percentile"))
        if PERCENTILE in percentiles:
            return _positive(percentiles[PERCENTILE]), factor
    return None, 1.0


def _positive(value: Any) -> Optional[float]:
    figure = number(value)
    return figure if figure is not None and figure >= 0 else None


_MAX = re.compile(r"Max (Write|Read):\s{1,12}(\S{1,30}) MiB/sec(?: \((\S{1,30}) MB/sec\))?")
_OPERATION = re.compile(
    r"((?:File|Directory|Tree) (?:creation|stat|read|removal|rename))\s{0,40}:?\s{1,40}(\S.{0,300})"
)
MIB = 2.0**20 / 1e9
"""GB in a MiB."""


def parse_ior(text: str) -> ParsedOutput:
    """Readings `storage_write_bandwidth` and `storage_read_bandwidth` in GB/s: the best of all repetitions."""
    lines, cut = whole_lines(text)
    results = ToolReadings()
    ended = False
    for line in lines:
        stripped = line.strip()
        best = _MAX.fullmatch(stripped)
        if best:
            value = amount(best.group(2))
            # A way that was not run is printed as 0.00.
            if value:
                results.figure(f"storage_{best.group(1).lower()}_bandwidth", scale(value, MIB), "GB/s", "", line)
        elif stripped.startswith("IOR-"):
            results.version = stripped[4:44].partition(":")[0]
        elif stripped.startswith(("ERROR", "ior ERROR")):
            results.note(f"it ended in an error: {stripped[:120]}")
        ended = ended or stripped.startswith("Finished")
    return close_readings(results, "IOR", text, cut, "" if ended else "the line `Finished` is missing")


def parse_mdtest(text: str) -> ParsedOutput:
    """Readings such as `file_creation_rate` in operations a second: the mean of all iterations.

    An operation that was not run is printed as 0.000 and tells nothing.
    """
    lines, cut = whole_lines(text)
    results = ToolReadings()
    rates = ended = False
    for line in lines:
        stripped = line.strip()
        if stripped.startswith("SUMMARY"):
            rates = "time" not in stripped[:20]
        operation = _OPERATION.fullmatch(stripped) if rates else None
        if operation:
            mean = _mean(operation.group(2).split(None, 16))
            name = operation.group(1).lower().replace(" ", "_")
            results.figure(f"{name}_rate", amount(mean) or None, "1/s", "", line)
        elif stripped.startswith("mdtest-"):
            results.version = stripped[7:47].partition(" ")[0]
        ended = ended or "finished at" in stripped[:40]
    return close_readings(results, "mdtest", text, cut, "" if ended else "the line `finished at` is missing")


def _mean(cells: List[str]) -> str:
    """Of `max min mean deviation`, or of version 4's three columns by rank before those four."""
    return cells[2] if 3 <= len(cells) <= 4 else cells[5] if len(cells) == 7 else ""
