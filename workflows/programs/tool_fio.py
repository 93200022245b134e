"""Reads fio, as JSON (`--output-format=json`, `json+`) and terse (versions 3 to 5).

Latencies of fio 2 are microseconds (`clat`), those of fio 3 nanoseconds (`clat_ns`). `bw` is KiB/s, `bw_bytes` bytes.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

from workflows.programs.readings import Parsed
from workflows.programs.tool_json import document, listing, looks_like_json, mapping, no_document, number, string
from workflows.programs.tool_text import Told, amount, close, scaled, whole_lines

TOOL = "fio"
WAYS = ("read", "write")
PERCENTILE = "99.000000"
TERSE: Mapping[str, int] = {"read": 5, "write": 46}
"""Where the fields of a way begin in a terse line: total KiB, KiB/s, operations a second, ms, …"""
TERSE_FIELDS = 87
"""As many as a terse line of version 3 to 5 has at least, up to the end of `write`."""


def parse(text: str) -> Parsed:
    """Readings by the job's name: `storage_read_bandwidth` (GB/s), `storage_read_rate` (1/s), `…_latency_p99` (ms).

    The same for `write`; a way without operations tells nothing. `storage_errors` is the job's error number.
    """
    if looks_like_json(text):
        return _parse_json(text)
    lines, cut = whole_lines(text)
    told = Told()
    for line in lines:
        cells = line.split(";", 400)
        if len(cells) >= TERSE_FIELDS and cells[0] in ("3", "4", "5") and cells[1].startswith("fio-"):
            _terse(told, cells, line)
        elif line.startswith("fio: ") and "err=" in line[:400]:
            told.note("a job ended in an error")
    return close(told, TOOL, text, cut)


def _terse(told: Told, cells: List[str], line: str) -> None:
    told.version = cells[1][4:44]
    job = cells[2][:80]
    told.figure("storage_errors", amount(cells[4]), "count", job, line)
    for way in WAYS:
        total, rate, operations = (amount(cell) for cell in cells[TERSE[way] : TERSE[way] + 3])
        if total and rate is not None:
            told.figure(f"storage_{way}_bandwidth", scaled(rate, 1.024e-6), "GB/s", job, line)
            told.figure(f"storage_{way}_rate", operations, "1/s", job, line)


def _parse_json(text: str) -> Parsed:
    data = mapping(document(text))
    jobs = [mapping(job) for job in listing(data.get("jobs"))]
    if "fio version" not in data:
        return no_document(TOOL, text)
    told = Told()
    told.version = string(data.get("fio version")).replace("fio-", "")[:40]
    for job in jobs:
        name = string(job.get("jobname"))[:80]
        told.figure("storage_errors", number(job.get("error")), "count", name, f"{name}: error {job.get('error')}")
        for way in WAYS:
            _way(told, name, way, mapping(job.get(way)))
    if not any(one.quantity != "storage_errors" for one in told.readings):
        told.note("no job has read or written anything")
    return told.parsed()


def _way(told: Told, job: str, way: str, part: Dict[str, Any]) -> None:
    if not _positive(part.get("total_ios")) and not _positive(part.get("io_bytes")):
        return
    exact, rough = _positive(part.get("bw_bytes")), _positive(part.get("bw"))
    rate = scaled(exact, 1e-9) if exact is not None else scaled(rough, 1.024e-6) if rough is not None else None
    line = f"{job}: {way}: bw {part.get('bw')} KiB/s, iops {part.get('iops')}"
    told.figure(f"storage_{way}_bandwidth", rate, "GB/s", job, line)
    told.figure(f"storage_{way}_rate", _positive(part.get("iops")), "1/s", job, line)
    latency, factor = _latency(part)
    told.figure(
        f"storage_{way}_latency_p99", None if latency is None else scaled(latency, factor), "ms", job, f"{line}, p99"
    )


def _latency(part: Dict[str, Any]) -> Tuple[Optional[float], float]:
    for name, factor in (("clat_ns", 1e-6), ("clat", 1e-3)):
        percentiles = mapping(mapping(part.get(name)).get("percentile"))
        if PERCENTILE in percentiles:
            return _positive(percentiles[PERCENTILE]), factor
    return None, 1.0


def _positive(value: Any) -> Optional[float]:
    figure = number(value)
    return figure if figure is not None and figure >= 0 else None
