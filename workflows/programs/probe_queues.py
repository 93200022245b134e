"""Probes of what GPUs do with their queues: how long one kernel takes to be queued, and what goes on side by side.

Standard library only, Python 3.9; torch where the image has it. Each GPU in a process of its own.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Sequence

from workflows.programs import gpu_queues
from workflows.programs.gpu_children import Ended, Line
from workflows.programs.gpu_device import Device, Group, Platform
from workflows.programs.gpu_memory import WORD_BYTES
from workflows.programs.gpu_session import OPENING_SECONDS, Session, line_of, named, parsed, reasons_of
from workflows.programs.measure import MIB, ArgumentError, number
from workflows.programs.probe_devices import on_gpus
from workflows.programs.readings import Parsed, Reading

MEASURING_SECONDS = 30.0
"""For all rounds; a sound GPU takes a tenth of it."""
MOVED_BYTES = 256 * MIB
"""Of one transfer beside products: a large bucket of gradients."""

Arguments = Mapping[str, str]


def gpu_launch(arguments: Arguments, platform: Platform) -> Parsed:
    """Queue the smallest kernel `launches` (100,000) times on each GPU: `kernel_launch_time` of each."""
    launches = number(arguments, "launches", 100_000, least=10)
    session = Session(platform, OPENING_SECONDS + MEASURING_SECONDS)

    def work(device: Device, index: int, line: Line) -> Dict[str, Any]:
        line.await_turn()
        return gpu_queues.launch(device, launches)

    # One after the other: all of them queue on the same processors.
    found = session.measure(work, turn_seconds=MEASURING_SECONDS)
    readings: List[Reading] = []
    reasons = reasons_of(found)
    for one in found:
        if one.why:
            continue
        readings.append(
            Reading("kernel_launch_time", float(one.facts["microseconds"]), "us", named(one), line=line_of(one))
        )
        if one.facts["lost"]:
            reasons.append(f"{named(one)}: {one.facts['lost']} of its kernels did nothing: test it at depth device")
    return parsed(session, readings, reasons)


def gpu_overlap(arguments: Arguments, platform: Platform) -> Parsed:
    """Products of `size` (8192) beside a `transfer` of `bytes`: `copy` from the host, `all-reduce` over the GPUs.

    `copy_overlap`, `all_reduce_overlap`: per cent of the shorter one's time that the other hid; `overlap_wrong_values`.
    """
    transfer = arguments.get("transfer", "copy")
    if transfer not in TRANSFERS:
        raise ArgumentError(f"transfer: must be one of {', '.join(TRANSFERS)}, got {transfer!r}")
    size = number(arguments, "size", 8192, least=16)
    count = number(arguments, "bytes", MOVED_BYTES, least=64)
    session = Session(platform, OPENING_SECONDS + MEASURING_SECONDS)
    found = TRANSFERS[transfer](session, size, count)
    readings: List[Reading] = []
    for one in found:
        if not one.why:
            share = 100.0 * float(one.facts["share"])
            readings.append(Reading(f"{transfer.replace('-', '_')}_overlap", share, "%", named(one), line=line_of(one)))
            readings.append(
                Reading("overlap_wrong_values", float(one.facts["wrong"]), "count", named(one), line=line_of(one))
            )
    few = ["an all-reduce needs two GPUs, and there is one"] if transfer == "all-reduce" and not found else []
    return parsed(session, readings, [*few, *reasons_of(found)])


def _beside_copies(session: Session, size: int, count: int) -> Sequence[Ended]:
    def work(device: Device, index: int, line: Line) -> Dict[str, Any]:
        line.await_turn()
        return gpu_queues.beside_copies(device, size, max(1, count // WORD_BYTES))

    return session.measure(work, turn_seconds=MEASURING_SECONDS)


def _beside_all_reduces(session: Session, size: int, count: int) -> Sequence[Ended]:
    if len(session.indices) < 2:
        return ()
    folder = tempfile.mkdtemp(prefix="primus-overlap-")

    def work(device: Device, index: int, line: Line) -> Dict[str, Any]:
        line.stage("meeting the others")
        group = session.platform.join(device, index, len(session.indices), folder)
        line.stage("in the collective")
        return _reduced(device, group, size, count)

    try:
        return session.measure(work, alone=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reduced(device: Device, group: Group, size: int, count: int) -> Dict[str, Any]:
    values = device.zeros(max(1, count // 4), "fp32")
    found = gpu_queues.overlap(device, size, lambda: group.all_reduce(values), group.slowest)
    wrong = int(found["wrong"]) + device.count(values != 0)
    line = f"{device.title}: {found['line']}; all-reduce of {count >> 20} MiB over {group.size} GPUs"
    return {**found, "wrong": wrong, "line": line}


TRANSFERS: Mapping[str, Callable[[Session, int, int], Sequence[Ended]]] = {
    "copy": _beside_copies,
    "all-reduce": _beside_all_reduces,
}
OF_PLATFORM: Mapping[str, Callable[[Arguments, Platform], Parsed]] = {
    "gpu-launch": gpu_launch,
    "gpu-overlap": gpu_overlap,
}
PROBES: Dict[str, Callable[[Arguments], Parsed]] = {
    name: partial(on_gpus, probe) for name, probe in OF_PLATFORM.items()
}
"""By the names of `profiles/suite_words.py`."""
