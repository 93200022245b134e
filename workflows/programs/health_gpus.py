"""Checks of the node daemon on GPUs: PCIe bandwidth, remapped rows, slow-downs, memory and arithmetic.

Standard library only, Python 3.9. AMD and NVIDIA alike, by the vendor's tool or our own probe. A whole GPU's counters
are told also where it is split (MIG), so a split GPU is judged by them like any other.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Callable, Dict, List, Mapping, Optional, Tuple

from workflows.programs.health_tools import (
    NVIDIA_QUERY,
    SMI_SECONDS,
    Gpus,
    Tools,
    by_gpu,
    count_of,
    detected,
    flagged,
    judged,
    tool_of,
)
from workflows.programs.health_words import FAIL, PASS, UNKNOWN, Device, Result, values_line, worst
from workflows.programs.probe_call import Call
from workflows.programs.readings import Parsed, Reading

BANDWIDTH_SECONDS = 120.0
MEMORY_SECONDS = 90.0
NO_GPU = "this node shows no GPU, and neither nvidia-smi, amd-smi nor rocm-smi is installed"
AMD_SLOWDOWNS: Tuple[str, ...] = (
    *("throttle_prochot", "throttle_processor_hot", "throttle_socket_thermal", "throttle_vr_thermal"),
    *("throttle_hbm_thermal", "throttle_status"),
)
"""What holds an AMD GPU's clocks down against its wish; its power limit (ppt) does so under any full load."""


@dataclass(frozen=True)
class Limits:
    """Figures below which a GPU fails."""

    pcie_gb_per_second: float = 4.0
    """Autopilot's `--bw`: a quarter of what a PCIe 3 x16 slot gives."""
    hbm_gb_per_second: float = 0.0
    """0: memory is checked for wrong bytes only, the figure is told."""


def pciebw(tools: Tools, node: str, limits: Limits) -> Result:
    """Bandwidth from the host to each GPU in GB/s; below the limit the GPU fails."""
    gpus = tools.gpus()
    if not gpus.vendor:
        return Result("pciebw", UNKNOWN, NO_GPU)
    parsed = tools.call(_copy_call(gpus.vendor))
    best: Dict[int, float] = {}
    for one in parsed.readings:
        gpu = one.subject.partition("-> gpu ")[2].split() or one.subject.partition("gpu ")[2].split()
        if one.quantity == "host_to_gpu_bandwidth" and one.value is not None and gpu and gpu[0].isdigit():
            best[int(gpu[0])] = max(one.value, best.get(int(gpu[0]), 0.0))
    # The place nearest to the GPU counts: the host's other side is slower and not the GPU's fault.
    count = max(count_of(parsed, gpus, len(best)), max(best, default=-1) + 1)
    devices = tuple(_bandwidth(index, best.get(index), limits.pcie_gb_per_second) for index in range(count))
    low = [
        f"GPU {one.identity} {one.value:.4g} GB/s" for one in devices if one.verdict == FAIL and one.value is not None
    ]
    why = f"below {limits.pcie_gb_per_second:g} GB/s: {', '.join(low)}" if low else ""
    return _gpu_result("pciebw", node, devices, why or _missing(devices, parsed), unit="GB/s")


def _bandwidth(index: int, value: Optional[float], least: float) -> Device:
    if value is None:
        return Device(str(index), UNKNOWN)
    return Device(str(index), FAIL if value < least else PASS, round(value, 3))


def _missing(devices: Tuple[Device, ...], parsed: Parsed) -> str:
    absent = [one.identity for one in devices if one.verdict == UNKNOWN]
    if not devices:
        return parsed.unknown or "no figure was told"
    return f"GPU {', '.join(absent)}: no figure: {parsed.unknown or 'the tool does not tell of it'}" if absent else ""


def _copy_call(vendor: str) -> Call:
    if vendor == "nvidia" and shutil.which("nvbandwidth"):
        command = ("nvbandwidth", "-t", "host_to_device_memcpy_ce")
        return Call(0, command=command, parser="nvbandwidth", deadline_seconds=BANDWIDTH_SECONDS)
    if vendor == "amd" and shutil.which("TransferBench"):
        command = ("TransferBench", "p2p")
        return Call(0, command=command, parser="transferbench", deadline_seconds=BANDWIDTH_SECONDS)
    return Call(0, probe="gpu-copy", deadline_seconds=BANDWIDTH_SECONDS)


def remapped(tools: Tools, node: str, _: Limits) -> Result:
    """Rows or pages of memory that wait to be replaced, or could not be: the GPU needs a reset or a repair."""
    gpus = tools.gpus()
    tool = tool_of(gpus.vendor)
    if not tool:
        return Result("remapped", UNKNOWN, _no_tool(gpus))
    call, quantities = _REMAPPED[tool]
    devices, unknown = judged(tools.call(call), gpus, quantities, _umc if tool == "rocm-smi" else flagged)
    lines = (detected(gpus.vendor, devices),) if devices else ()
    return _gpu_result("remapped", node, devices, unknown, lines, "a replaced row or page is pending, or failed")


def gpupower(tools: Tools, node: str, _: Limits) -> Result:
    """Clocks that the hardware holds down now: heat or power supply, not a wished limit."""
    gpus = tools.gpus()
    tool = tool_of(gpus.vendor)
    if tool not in _POWER:
        return Result(
            "gpupower", UNKNOWN, "rocm-smi does not tell of slow-downs: install amd-smi" if tool else _no_tool(gpus)
        )
    call, quantities = _POWER[tool]
    devices, unknown = judged(tools.call(call), gpus, quantities, _slowed)
    return _gpu_result("gpupower", node, devices, unknown, (), "the hardware holds clocks down")


def gpumem(tools: Tools, node: str, limits: Limits) -> Result:
    """Memory and arithmetic of every GPU under a short load, checked for wrong bytes and wrong products."""
    gpus = tools.gpus()
    if not gpus.vendor:
        return Result("gpumem", UNKNOWN, NO_GPU)
    memory = tools.call(Call(0, probe="gpu-memory", arguments={"share": "0.5", "seconds": "10"}), MEMORY_SECONDS)
    product = tools.call(Call(0, probe="gpu-gemm", arguments={"type": "fp64", "seconds": "5"}), MEMORY_SECONDS)
    unknown = dict.fromkeys(filter(None, (memory.unknown, product.unknown)))
    parsed = Parsed((*memory.readings, *product.readings), "; ".join(unknown))
    found = by_gpu(parsed, ("hbm_bandwidth", "gpu_memory_wrong_bytes", "gemm_wrong_values"))
    devices = [_memory(index, readings, limits) for index, readings in enumerate(found.values())]
    devices += [Device(str(more), UNKNOWN) for more in range(len(devices), count_of(parsed, gpus, len(devices)))]
    bad = "; ".join(
        one.line or f"{one.quantity} {one.value:g} of {one.subject}" for one in parsed.readings if _wrong(one, limits)
    )
    return _gpu_result("gpumem", node, tuple(devices), bad or parsed.unknown or _missing(tuple(devices), parsed))


def _memory(index: int, readings: List[Reading], limits: Limits) -> Device:
    told = {one.quantity for one in readings if one.value is not None}
    if any(_wrong(one, limits) for one in readings):
        return Device(str(index), FAIL)
    whole = {"gpu_memory_wrong_bytes", "gemm_wrong_values"} <= told
    return Device(str(index), PASS if whole else UNKNOWN)


def _wrong(one: Reading, limits: Limits) -> bool:
    if one.value is None:
        return False
    if one.quantity in ("gpu_memory_wrong_bytes", "gemm_wrong_values"):
        return one.value > 0
    return one.quantity == "hbm_bandwidth" and one.value < limits.hbm_gb_per_second


def _umc(one: Reading) -> Optional[bool]:
    """Of rocm-smi, which knows no pending pages: memory errors that nobody corrected stand for them."""
    return flagged(one) if one.subject.endswith(" umc") else None


def _slowed(one: Reading) -> Optional[bool]:
    if one.value is None:
        return None if one.word in ("", "N/A") else one.word.upper() not in ("UNTHROTTLED", "NOT ACTIVE")
    return one.value > 0


def _no_tool(gpus: Gpus) -> str:
    return NO_GPU if not gpus.vendor else f"the tools of {gpus.vendor} are not installed in this image"


def _gpu_result(
    check: str,
    node: str,
    devices: Tuple[Device, ...],
    why: str,
    lines: Tuple[str, ...] = (),
    fault: str = "",
    unit: str = "",
) -> Result:
    verdict = worst([one.verdict for one in devices])
    bad = ", ".join(one.identity for one in devices if one.verdict == FAIL)
    if verdict == FAIL and fault:
        why = "; ".join(filter(None, (f"GPU {bad}: {fault}", why)))
    result = Result(check, verdict, "" if verdict == PASS else why, devices, unit=unit)
    if not devices:
        return result
    failed = ("FAIL",) if check == "remapped" and verdict == FAIL else ()
    host = (f"Host  {node}",) if check in ("pciebw", "remapped") else ()
    shown = (*host, *lines, *failed, values_line(result))
    return Result(check, verdict, result.why, devices, shown, unit)


_REMAPPED: Mapping[str, Tuple[Call, Tuple[str, ...]]] = {
    "nvidia-smi": (
        NVIDIA_QUERY,
        ("row_remap_pending", "row_remap_failure", "page_retirement_pending"),
    ),
    "amd-smi": (
        Call(0, command=("amd-smi", "bad-pages", "--json"), parser="amd-smi", deadline_seconds=SMI_SECONDS),
        ("bad_pages_pending", "bad_pages_unreservable"),
    ),
    "rocm-smi": (
        Call(0, command=("rocm-smi", "--showrasinfo", "all"), parser="rocm-smi", deadline_seconds=SMI_SECONDS),
        ("ecc_uncorrectable",),
    ),
}
_POWER: Mapping[str, Tuple[Call, Tuple[str, ...]]] = {
    "nvidia-smi": (NVIDIA_QUERY, ("throttle_hw_slowdown",)),
    "amd-smi": (
        Call(0, command=("amd-smi", "metric", "--violation", "--json"), parser="amd-smi", deadline_seconds=SMI_SECONDS),
        AMD_SLOWDOWNS,
    ),
}
Check = Callable[[Tools, str, Limits], Result]
CHECKS: Mapping[str, Check] = {"pciebw": pciebw, "remapped": remapped, "gpupower": gpupower, "gpumem": gpumem}
LOADING = ("pciebw", "gpumem", "dcgm")
"""They load GPUs and take turns."""
