"""Probes that open GPUs: each GPU in a process of its own, so that one that hangs does not hide the others.

They use torch where the image has it. What cannot be measured is unknown with its reason. Each probe is a function of
its arguments and of the library (`Platform`), so that tests run it on simulated GPUs; by its name it always takes the
GPUs of torch, never the processor.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from workflows.programs.parsers.text import EVIDENCE_CHARACTERS, ParsedOutput, Reading
from workflows.programs.probes.gpu import collective as gpu_collective
from workflows.programs.probes.gpu import kernels
from workflows.programs.probes.gpu.children import (
    BEGAN,
    OPENED,
    OPENING_SECONDS,
    ChildEnd,
    ChildLine,
    Session,
    gpu_name,
    line_of,
    reasons_of,
    to_parsed,
)
from workflows.programs.probes.gpu.device import KINDS, Device, DeviceGroup, Platform, UnavailableError
from workflows.programs.probes.gpu.kernels import WORD_BYTES
from workflows.programs.probes.gpu.sensors import Sensors
from workflows.programs.probes.gpu.torch_device import torch_platform
from workflows.programs.probes.measure import MIB
from workflows.programs.probes.node import ArgumentError, number

SMOKE_SIZE = 1024
COPY_SECONDS, COPIES_SECONDS = 6.0, 60.0
"""For all copies from one GPU (hundreds of milliseconds where links are sound), and from all of them."""
LOOKS = 20
"""At the sensors while a load runs."""

Arguments = Mapping[str, str]


def _seconds(arguments: Arguments, default: int) -> int:
    """How long it measures; 0: as shortly as it can."""
    return number(arguments, "seconds", default, least=0)


def _choice(arguments: Arguments, name: str, default: str, known: Sequence[str]) -> str:
    chosen = arguments.get(name, default)
    if chosen not in known:
        raise ArgumentError(f"{name}: must be one of {', '.join(known)}, got {chosen!r}")
    return chosen


def gpu_smoke(arguments: Arguments, platform: Platform) -> ParsedOutput:
    """Open every GPU and multiply once: `gpus_bindable`, and of each `gemm_not_finite`. `seconds` (15): for all of it.

    A GPU that cannot be opened in time is not bindable. Where one did not even come to try, nobody knows the count.
    """
    session = Session(platform, float(number(arguments, "seconds", 15)))
    found = session.measure(lambda device, index, line: kernels.smoke(device, SMOKE_SIZE))
    bound = [one for one in found if one.stage == OPENED]
    readings = [
        Reading("gemm_not_finite", float(one.facts["not_finite"]), "count", gpu_name(one), line=line_of(one))
        for one in found
        if not one.why
    ]
    reasons = reasons_of(found)
    reasons += [
        f"{gpu_name(one)}: {one.facts['wrong']} values of a product are wrong: test it at depth device"
        for one in found
        if one.facts.get("wrong")
    ]
    if all(one.stage != BEGAN for one in found):
        line = "; ".join(reasons_of([one for one in found if one.stage != OPENED])) or f"all {len(found)} were opened"
        readings.insert(0, Reading("gpus_bindable", float(len(bound)), "count", line=line[:EVIDENCE_CHARACTERS]))
    return to_parsed(session, readings, reasons)


def gpu_gemm(arguments: Arguments, platform: Platform) -> ParsedOutput:
    """Products of `type` (bf16) and `size` on all GPUs at once for `seconds` (15): TFLOP/s and wrong values of each."""
    kind = _choice(arguments, "type", "bf16", KINDS)
    size = number(arguments, "size", kernels.KINDS[kind].size, least=16)
    seconds = _seconds(arguments, 15)
    session = Session(platform, seconds + OPENING_SECONDS)
    found = session.measure(lambda device, index, line: kernels.gemm(device, kind, size, seconds))
    return _rated(session, found, (f"{kind}_gemm", "TFLOP/s"), "gemm_wrong_values")


def gpu_memory_probe(arguments: Arguments, platform: Platform) -> ParsedOutput:
    """Pattern and complement over `share` (0.9) of the free memory of all GPUs at once, for `seconds` (20)."""
    text = arguments.get("share", "0.9")
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0.0 < share <= 0.95:
        raise ArgumentError(f"share: must be a number above 0 and at most 0.95, got {text!r}")
    seconds = _seconds(arguments, 20)
    session = Session(platform, 2 * seconds + OPENING_SECONDS)
    found = session.measure(lambda device, index, line: kernels.memory(device, share, seconds))
    return _rated(session, found, ("hbm_bandwidth", "GB/s"), "gpu_memory_wrong_bytes")


def _rated(session: Session, found: Sequence[ChildEnd], rate: Tuple[str, str], wrong: str) -> ParsedOutput:
    """A rate and a count of wrong ones from each GPU."""
    readings: List[Reading] = []
    for one in found:
        if not one.why:
            readings.append(Reading(rate[0], float(one.facts["rate"]), rate[1], gpu_name(one), line=line_of(one)))
            readings.append(Reading(wrong, float(one.facts["wrong"]), "count", gpu_name(one), line=line_of(one)))
    return to_parsed(session, readings, reasons_of(found))


def gpu_copy(arguments: Arguments, platform: Platform) -> ParsedOutput:
    """Copies of `bytes` (256 MiB) between host and GPU and from each GPU to each other, one after the other."""
    words = number(arguments, "bytes", 256 * MIB, least=8) // kernels.WORD_BYTES
    session = Session(platform, OPENING_SECONDS + COPIES_SECONDS)

    def work(device: Device, index: int, line: ChildLine) -> Dict[str, Any]:
        line.await_turn()
        peers = [peer for peer in session.indices if peer != index]
        for one in kernels.copies(device, index, peers, words, line.stage):
            line.report_partial({one.name: [one.rate, one.why]})
        return {"line": f"{device.title}: {words * kernels.WORD_BYTES >> 20} MiB, median"}

    found = session.measure(work, alone=False, turn_seconds=COPY_SECONDS)
    readings: List[Reading] = []
    reasons = reasons_of(found)
    for one in found:
        for name, (rate, why) in one.partial.items():
            quantity = _HOST.get(name, "gpu_to_gpu_bandwidth")
            subject = gpu_name(one) if name in _HOST else session.by_number(name)
            if why:
                reasons.append(f"{gpu_name(one)}, {session.by_number(name)}: {why}")
            else:
                line = line_of(one) or "measured before its process was lost"
                readings.append(Reading(quantity, float(rate), "GB/s", subject, line=line))
    return to_parsed(session, readings, reasons)


_HOST = {"to host": "gpu_to_host_bandwidth", "from host": "host_to_gpu_bandwidth"}


def gpu_load(arguments: Arguments, platform: Platform) -> ParsedOutput:
    """All GPUs busy for `seconds` (60), and what the vendor's tool tells of power, heat, clock and throttling then."""
    return loaded(_seconds(arguments, 60), platform, Sensors(), kernels.KINDS["bf16"].size)


def loaded(seconds: int, platform: Platform, sensors: Sensors, size: int) -> ParsedOutput:
    """The load itself, with the sensors and products of that size."""
    session = Session(platform, seconds + OPENING_SECONDS)
    found = session.measure(
        lambda device, index, line: kernels.burn(device, "bf16", size, seconds),
        beside=sensors.sample,
        beside_seconds=max(0.05, seconds / LOOKS),
    )
    sensed = sensors.to_parsed()
    idle = {gpu_name(one) for one in found if one.why}
    numbered = [replace(one, subject=session.by_number(one.subject)) for one in sensed.readings]
    readings = [one for one in numbered if not any((one.subject + " ").startswith(f"{gpu} ") for gpu in idle)]
    return to_parsed(session, readings, [*reasons_of(found), *([sensed.unknown] if sensed.unknown else [])])


def collective(arguments: Arguments, platform: Platform) -> ParsedOutput:
    """`operation` (all-reduce, all-to-all) of `bytes` (1 GiB) over all GPUs of the node, `iterations` (20) times."""
    operation = _choice(arguments, "operation", "all-reduce", tuple(gpu_collective.SHARES))
    size = number(arguments, "bytes", 1024 * MIB, least=64)
    iterations = number(arguments, "iterations", 20)
    session = Session(platform, OPENING_SECONDS + 20.0)
    if len(session.indices) < 2:
        return to_parsed(session, (), ["a collective needs two GPUs, and there is one"])
    folder = tempfile.mkdtemp(prefix="primus-collective-")

    def work(device: Device, index: int, line: ChildLine) -> Dict[str, Any]:
        line.stage("meeting the others")
        group = session.platform.join(device, index, len(session.indices), folder)
        line.stage("in the collective")
        return gpu_collective.collective(device, group, operation, size, iterations)

    try:
        found = session.measure(work, alone=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    good = [one for one in found if not one.why]
    readings = [
        Reading("collective_wrong_values", float(one.facts["wrong"]), "count", gpu_name(one), line=line_of(one))
        for one in good
    ]
    if len(good) == len(found):
        quantity, rate = f"{operation.replace('-', '_')}_bus_bandwidth", min(float(one.facts["rate"]) for one in good)
        readings.insert(0, Reading(quantity, rate, "GB/s", line=line_of(good[0])))
    return to_parsed(session, readings, reasons_of(found))


def train_step(arguments: Arguments, platform: Platform) -> ParsedOutput:
    """Train `model` (small) for `steps` (100) on each GPU, twice, with the same weights and inputs.

    `loss_differences` counts steps whose loss is not that of the GPU's own second run or of most GPUs of the node.
    Where the `digest` of a proven run is given, that one holds instead. The line of every reading shows the digest.
    """
    name = _choice(arguments, "model", "small", tuple(gpu_collective.MODELS))
    steps, proven = number(arguments, "steps", 100), arguments.get("digest", "")
    session = Session(platform, OPENING_SECONDS + 30.0 + 4.0 * steps)
    found = session.measure(lambda device, index, line: gpu_collective.train(device, name, steps))
    return to_parsed(session, trained(found, gpu_collective.MODELS[name], proven), reasons_of(found))


def trained(found: Sequence[ChildEnd], model: gpu_collective.Model, proven: str) -> List[Reading]:
    """Readings of all GPUs that trained; without a proven run, that of more than half of them holds.

    Where none is that of so many, nobody can say who is wrong, and all of them differ.
    """
    good = [one for one in found if not one.why]
    runs = {one.index: gpu_collective.digest(one.facts["losses"], one.facts["weights"]) for one in good}
    common, times = (Counter(runs.values()).most_common(1) or [("", 0)])[0]
    model_run = next((one for one in good if runs[one.index] == common and 2 * times > len(good)), None)
    readings: List[Reading] = []
    for one in good:
        own, seconds = runs[one.index], float(one.facts["step_seconds"])
        differs = int(one.facts["unlike"])
        if proven:
            differs = max(differs, int(own != proven))
        elif model_run is None:
            differs = max(differs, 1)
        elif own != common:
            differs = max(differs, 1, gpu_collective.unlike(one.facts["losses"], model_run.facts["losses"]))
        line = f"digest {own}{f', proven {proven}' if proven else ''}; {line_of(one)}"[:EVIDENCE_CHARACTERS]
        add = partial(Reading, subject=gpu_name(one), line=line)
        readings += [
            add("tokens_per_second", model.tokens / seconds, "1/s"),
            add("model_rate", model.step_flops / seconds / 1e12, "TFLOP/s"),
            add("loss_not_finite", float(one.facts["not_finite"]), "count"),
            add("loss_differences", float(differs), "count"),
        ]
    return readings


MEASURING_SECONDS = 30.0
"""For all rounds; a sound GPU takes a tenth of it."""
MOVED_BYTES = 256 * MIB
"""Of one transfer beside products: a large bucket of gradients."""


def gpu_launch(arguments: Arguments, platform: Platform) -> ParsedOutput:
    """Queue the smallest kernel `launches` (100,000) times on each GPU: `kernel_launch_time` of each."""
    launches = number(arguments, "launches", 100_000, least=10)
    session = Session(platform, OPENING_SECONDS + MEASURING_SECONDS)

    def work(device: Device, index: int, line: ChildLine) -> Dict[str, Any]:
        line.await_turn()
        return kernels.launch(device, launches)

    # One after the other: all of them queue on the same processors.
    found = session.measure(work, turn_seconds=MEASURING_SECONDS)
    readings: List[Reading] = []
    reasons = reasons_of(found)
    for one in found:
        if one.why:
            continue
        readings.append(
            Reading("kernel_launch_time", float(one.facts["microseconds"]), "us", gpu_name(one), line=line_of(one))
        )
        if one.facts["lost"]:
            reasons.append(f"{gpu_name(one)}: {one.facts['lost']} of its kernels did nothing: test it at depth device")
    return to_parsed(session, readings, reasons)


def gpu_overlap(arguments: Arguments, platform: Platform) -> ParsedOutput:
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
            readings.append(
                Reading(f"{transfer.replace('-', '_')}_overlap", share, "%", gpu_name(one), line=line_of(one))
            )
            readings.append(
                Reading("overlap_wrong_values", float(one.facts["wrong"]), "count", gpu_name(one), line=line_of(one))
            )
    few = ["an all-reduce needs two GPUs, and there is one"] if transfer == "all-reduce" and not found else []
    return to_parsed(session, readings, [*few, *reasons_of(found)])


def _beside_copies(session: Session, size: int, count: int) -> Sequence[ChildEnd]:
    def work(device: Device, index: int, line: ChildLine) -> Dict[str, Any]:
        line.await_turn()
        return kernels.beside_copies(device, size, max(1, count // WORD_BYTES))

    return session.measure(work, turn_seconds=MEASURING_SECONDS)


def _beside_all_reduces(session: Session, size: int, count: int) -> Sequence[ChildEnd]:
    if len(session.indices) < 2:
        return ()
    folder = tempfile.mkdtemp(prefix="primus-overlap-")

    def work(device: Device, index: int, line: ChildLine) -> Dict[str, Any]:
        line.stage("meeting the others")
        group = session.platform.join(device, index, len(session.indices), folder)
        line.stage("in the collective")
        return _reduced(device, group, size, count)

    try:
        return session.measure(work, alone=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reduced(device: Device, group: DeviceGroup, size: int, count: int) -> Dict[str, Any]:
    values = device.zeros(max(1, count // 4), "fp32")
    found = kernels.overlap(device, size, lambda: group.all_reduce(values), group.slowest)
    wrong = int(found["wrong"]) + device.count(values != 0)
    line = f"{device.title}: {found['line']}; all-reduce of {count >> 20} MiB over {group.size} GPUs"
    return {**found, "wrong": wrong, "line": line}


TRANSFERS: Mapping[str, Callable[[Session, int, int], Sequence[ChildEnd]]] = {
    "copy": _beside_copies,
    "all-reduce": _beside_all_reduces,
}
OF_PLATFORM: Mapping[str, Callable[[Arguments, Platform], ParsedOutput]] = {
    "gpu-smoke": gpu_smoke,
    "gpu-gemm": gpu_gemm,
    "gpu-memory": gpu_memory_probe,
    "gpu-copy": gpu_copy,
    "gpu-load": gpu_load,
    "gpu-launch": gpu_launch,
    "gpu-overlap": gpu_overlap,
    "collective": collective,
    "train-step": train_step,
}


def on_gpus(probe: Callable[[Arguments, Platform], ParsedOutput], arguments: Arguments) -> ParsedOutput:
    """The probe with the GPUs of this image's torch."""
    try:
        return probe(arguments, torch_platform())
    except UnavailableError as error:
        return ParsedOutput(unknown=str(error))


PROBES: Dict[str, Callable[[Arguments], ParsedOutput]] = {
    name: partial(on_gpus, probe) for name, probe in OF_PLATFORM.items()
}
"""By the names of `profiles/checks/catalogue.py`."""
