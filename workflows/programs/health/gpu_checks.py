"""Checks of the node daemon on GPUs: PCIe bandwidth, remapped rows, slow-downs, memory and arithmetic.

AMD and NVIDIA alike, by the vendor's tool or our own probe. Tools report a whole GPU's counters also where it is split
(MIG), so a split GPU is judged by them like any other.

The expected number of GPUs comes from the daemon's flags or the node itself (its bus, its driver, whatever it showed
before), never from an assumption. A GPU that a whole list leaves out is lost, which is a failure of that GPU by its own
number; one of which a list that broke off does not tell is unknown.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, replace
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from workflows.programs.health.gpu_places import GpuList, Places, listing_of, placed
from workflows.programs.health.results import DeviceResult, Result, values_line
from workflows.programs.parsers.gpu_models import lacks
from workflows.programs.parsers.text import ParsedOutput, Reading, is_absent
from workflows.programs.probes.call import Call, execute
from workflows.programs.probes.gpu_count import MAKERS, NVIDIA_GPUS, address, on_bus
from workflows.programs.probes.node import listed
from workflows.programs.probes.verdicts import FAIL, PASS, UNKNOWN, worst
from workflows.programs.runtime.bounded import SharedResult

TOOLS: Mapping[str, Tuple[str, ...]] = {"nvidia": ("nvidia-smi",), "amd": ("amd-smi", "rocm-smi")}
SMI_SECONDS = 30.0
"""`nvidia-smi -q` needs several seconds on 8 GPUs without persistence mode."""
NVIDIA_QUERY = Call(0, command=("nvidia-smi", "-q"), parser="nvidia-smi", deadline_seconds=SMI_SECONDS)
BANDWIDTH_SECONDS = 120.0
MEMORY_SECONDS = 90.0
NO_GPU = "this node shows no GPU, and neither nvidia-smi, amd-smi nor rocm-smi is installed"
AMD_SLOWDOWNS: Tuple[str, ...] = (
    *("throttle_prochot", "throttle_processor_hot", "throttle_socket_thermal", "throttle_vr_thermal"),
    *("throttle_hbm_thermal", "throttle_status"),
)
"""What holds an AMD GPU's clocks down against its wish; its power limit (ppt) does so under any full load."""
_GPU = re.compile(r"gpu ([0-9A-Za-z:.]{1,40})")

Execute = Callable[[Call, Mapping[str, str], float, Mapping[str, Callable[[str], ParsedOutput]]], ParsedOutput]


@dataclass(frozen=True)
class GpuLimits:
    """Figures below which a GPU fails."""

    pcie_gb_per_second: float = 4.0
    """Autopilot's `--bw`: a quarter of what a PCIe 3 x16 slot gives."""
    hbm_gb_per_second: float = 0.0
    """0: memory is checked for wrong bytes only, whatever its speed."""


@dataclass(frozen=True)
class Gpus:
    """What is known of them before any check."""

    vendor: str
    """`nvidia`, `amd`, or "" where there is neither GPU nor tool."""
    expected: int
    """As many as the flags say, or else as it ever showed; 0: not known."""
    known: Tuple[str, ...] = ()
    """Addresses of all that it ever showed: on the bus, to the driver, to a tool."""


class Tools:
    """Runs tools and probes; equal calls at the same time run once.

    `expected` is the number of GPUs that the node should have; 0: as many as its bus shows.
    """

    def __init__(self, expected: int = 0, run: Execute = execute) -> None:
        self._expected, self._run = expected, run
        self._once = SharedResult()
        self._seen: Dict[str, None] = {}
        self.model = ""
        """Product name of the GPUs, once a tool has printed it."""

    def gpus(self) -> Gpus:
        """Whose GPUs these are, and how many."""
        shown = {vendor: [address(one) for one in on_bus(vendor)] for vendor in MAKERS}
        shown["nvidia"] += [address(one) for one in listed(NVIDIA_GPUS)]
        there = [vendor for vendor, places in shown.items() if places]
        vendor = there[0] if there else next((one for one in TOOLS if tool_of(one)), "")
        known = tuple(sorted({*filter(None, shown.get(vendor, ())), *self._seen}))
        return Gpus(vendor, self._expected or len(known), known)

    def places(self, parsed: ParsedOutput, gpus: Gpus) -> Places:
        """Which GPU each key of the readings is, by its place, and which ones are gone."""
        listing = listing_of(parsed)
        counted = next((one.value for one in parsed.readings if one.quantity == "gpu_count" and one.value), 0.0)
        expected = max(gpus.expected, int(counted or 0))
        short = len(listing.keys) < max(expected, len(gpus.known))
        if short and not listing.places and gpus.vendor == "amd":
            listing = replace(listing, places=self._amd_places())
        self._seen.update(dict.fromkeys((*listing.places.values(), *filter(address, listing.lost))))
        return placed(listing, tuple({*gpus.known, *self._seen}), expected)

    def present(self, gpus: Gpus) -> Places:
        """The same of the vendor's own list: what a library that only counts calls 0, 1, … in that order."""
        tool = tool_of(gpus.vendor)
        return self.places(self.call(LISTS[tool]), gpus) if tool else placed(GpuList(()), gpus.known, 0)

    def _amd_places(self) -> Dict[str, str]:
        tool = tool_of("amd")
        parsed = self.call(LISTS[tool]) if tool else ParsedOutput()
        found = {one.subject[4:]: address(one.word) for one in parsed.readings if one.quantity == "bus_address"}
        return {key: place for key, place in found.items() if place}

    def lacks(self, gpus: Gpus, quantities: Sequence[str]) -> bool:
        """Whether the model of the GPUs has none of what these quantities tell of; asked only where none was told."""
        if not self.model and gpus.vendor == "amd" and tool_of("amd") in MODELS:
            self.call(MODELS[tool_of("amd")])
        return bool(self.model) and all(lacks(self.model, one) for one in quantities)

    def call(self, call: Call, seconds: float = 0.0) -> ParsedOutput:
        """The readings of a tool or of a probe of ours; whatever goes wrong is the reason why there are none."""
        from workflows.programs.parsers.registry import PARSERS

        deadline = seconds or call.deadline_seconds
        key = (call.probe, tuple(sorted(call.arguments.items())), call.command)
        found = self._once.do(key, lambda: self._run(call, {}, deadline, PARSERS))
        name = next((one.word for one in found.readings if one.quantity == "product_name" and one.word), "")
        self.model = name or self.model
        return found


def tool_of(vendor: str) -> str:
    """The vendor's management tool that is installed; "" where none is."""
    return next((one for one in TOOLS.get(vendor, ()) if shutil.which(one)), "")


def by_gpu(parsed: ParsedOutput, quantities: Sequence[str]) -> Dict[str, List[Reading]]:
    """Readings of these quantities by GPU, in the order in which the tool prints them."""
    found: Dict[str, List[Reading]] = {}
    for one in parsed.readings:
        gpu = _GPU.match(one.subject)
        if gpu:
            found.setdefault(gpu.group(1), [])
            if one.quantity in quantities:
                found[gpu.group(1)].append(one)
    return found


def judge_devices(
    tools: Tools,
    parsed: ParsedOutput,
    gpus: Gpus,
    quantities: Sequence[str],
    judge: Callable[[Reading], Optional[bool]],
) -> Tuple[Tuple[DeviceResult, ...], str]:
    """The verdict on each GPU by some of its readings, and why one is unknown or lost.

    A GPU fails where one reading is bad or the GPU is lost, passes where all readings are good or its model has no such
    thing, and is unknown without any. `judge` returns True for a bad reading, False for a good one, and None for one
    that does not count.
    """
    places, readings_of = tools.places(parsed, gpus), by_gpu(parsed, quantities)
    verdicts: Dict[str, str] = {}
    for key, name in places.names.items():
        bad = [False if is_absent(one) else judge(one) for one in readings_of.get(key, ())]
        known = [one for one in bad if one is not None]
        none_to_tell = not readings_of.get(key) and tools.lacks(gpus, quantities)
        verdicts[name] = FAIL if any(known) else PASS if known or none_to_tell else UNKNOWN
    devices = with_the_gone([DeviceResult(name, verdict) for name, verdict in verdicts.items()], places)
    if not devices:
        return (), parsed.unknown or "the tool reports no GPU"
    unknown = sum(one.verdict == UNKNOWN for one in devices)
    reason = f"{unknown} of {len(devices)} GPUs have no reading" if unknown else ""
    reason = f"{reason}: {parsed.unknown}" if reason and parsed.unknown else reason
    return devices, "; ".join(filter(None, (gone_in_words(places), reason)))


def with_the_gone(devices: Sequence[DeviceResult], places: Places) -> Tuple[DeviceResult, ...]:
    """All GPUs in their order; lost ones fail, and those that a list may still have held are unknown."""
    every = [*devices, *(DeviceResult(name, FAIL, lost=True) for name in places.lost)]
    every += [DeviceResult(name, UNKNOWN) for name in places.untold]
    return tuple(sorted(every, key=lambda one: (not one.identity.isdigit(), one.identity.zfill(8))))


def gone_in_words(places: Places) -> str:
    """`GPU 3 is lost: 7 of 8 are listed`; "" where none is."""
    if not places.lost:
        return ""
    numbers = [one for one in places.lost if one.isdigit()]
    which = f"GPU {', '.join(numbers)}" if numbers else ""
    more = len(places.lost) - len(numbers)
    unplaced = f"{more} GPU{'s' * (more > 1)} of which nobody can tell the number" if more else ""
    listed_ones = len(places.names)
    every = listed_ones + len(places.lost) + len(places.untold)
    verb = "is" if len(places.lost) == 1 else "are"
    return f"{' and '.join(filter(None, (which, unplaced)))} {verb} lost: {listed_ones} of {every} are listed"


def flagged(one: Reading) -> Optional[bool]:
    """Bad where the figure is not zero."""
    return None if one.value is None else one.value > 0


def detected(vendor: str, devices: Sequence[DeviceResult]) -> str:
    """`Detected NVIDIA GPU: 0 1 Total: 2`."""
    names = " ".join(one.identity for one in devices)
    return f"Detected {vendor.upper()} GPU: {names} Total: {len(devices)}"


def cpu_model(text: str) -> str:
    """The processor's name in /proc/cpuinfo; "" where it has none."""
    hit = re.search(r"^(?:model name|Model|cpu model)\s*: (.{1,120})$", text, re.MULTILINE)
    return hit.group(1).strip() if hit else ""


def pciebw(tools: Tools, node: str, limits: GpuLimits) -> Result:
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
    names, places = _numbered(tools, gpus, max(best, default=-1) + 1)
    rated = [_bandwidth(name, best.get(at), limits.pcie_gb_per_second) for at, name in enumerate(names)]
    devices = with_the_gone(rated, places)
    low = [
        f"GPU {one.identity} {one.value:.4g} GB/s" for one in devices if one.verdict == FAIL and one.value is not None
    ]
    why = f"below {limits.pcie_gb_per_second:g} GB/s: {', '.join(low)}" if low else ""
    why = "; ".join(filter(None, (gone_in_words(places), why)))
    return _gpu_result("pciebw", node, devices, why or _missing(devices, parsed), unit="GB/s")


def _numbered(tools: Tools, gpus: Gpus, count: int) -> Tuple[List[str], Places]:
    """Numbers of the `count` GPUs that a library sees, in its order, and of those that it left out; and what is gone.

    What is gone is known by the list of the vendor's own tool.
    """
    places = tools.present(gpus) if count < max(gpus.expected, len(gpus.known)) else Places({})
    names = [*places.names.values()]
    names = names if len(names) >= count else [str(index) for index in range(count)]
    told = {*names, *places.lost, *places.untold}
    more = [str(index) for index in range(gpus.expected) if str(index) not in told]
    return [*names, *more[: max(0, gpus.expected - len(told))]], places


def _bandwidth(name: str, value: Optional[float], least: float) -> DeviceResult:
    if value is None:
        return DeviceResult(name, UNKNOWN)
    return DeviceResult(name, FAIL if value < least else PASS, round(value, 3))


def _missing(devices: Tuple[DeviceResult, ...], parsed: ParsedOutput) -> str:
    absent = [one.identity for one in devices if one.verdict == UNKNOWN]
    if not devices:
        return parsed.unknown or "no figure was printed"
    return f"GPU {', '.join(absent)}: no figure: {parsed.unknown or 'the tool does not report it'}" if absent else ""


def _copy_call(vendor: str) -> Call:
    if vendor == "nvidia" and shutil.which("nvbandwidth"):
        command = ("nvbandwidth", "-t", "host_to_device_memcpy_ce")
        return Call(0, command=command, parser="nvbandwidth", deadline_seconds=BANDWIDTH_SECONDS)
    if vendor == "amd" and shutil.which("TransferBench"):
        command = ("TransferBench", "p2p")
        return Call(0, command=command, parser="transferbench", deadline_seconds=BANDWIDTH_SECONDS)
    return Call(0, probe="gpu-copy", deadline_seconds=BANDWIDTH_SECONDS)


def remapped(tools: Tools, node: str, _: GpuLimits) -> Result:
    """Rows or pages of memory that wait to be replaced, or could not be: the GPU needs a reset or a repair."""
    gpus = tools.gpus()
    tool = tool_of(gpus.vendor)
    if not tool:
        return Result("remapped", UNKNOWN, _no_tool(gpus))
    call, quantities = _REMAPPED[tool]
    judge_one = _umc if tool == "rocm-smi" else flagged
    devices, unknown = judge_devices(tools, tools.call(call), gpus, quantities, judge_one)
    lines = (detected(gpus.vendor, devices),) if devices else ()
    return _gpu_result("remapped", node, devices, unknown, lines, "a replaced row or page is pending, or failed")


def gpupower(tools: Tools, node: str, _: GpuLimits) -> Result:
    """Clocks that the hardware holds down now: heat or power supply, not a wished limit."""
    gpus = tools.gpus()
    tool = tool_of(gpus.vendor)
    if tool not in _POWER:
        return Result(
            "gpupower", UNKNOWN, "rocm-smi does not report slow-downs: install amd-smi" if tool else _no_tool(gpus)
        )
    call, quantities = _POWER[tool]
    devices, unknown = judge_devices(tools, tools.call(call), gpus, quantities, _slowed)
    return _gpu_result("gpupower", node, devices, unknown, (), "the hardware holds clocks down")


def gpumem(tools: Tools, node: str, limits: GpuLimits) -> Result:
    """Memory and arithmetic of every GPU under a short load, checked for wrong bytes and wrong products."""
    gpus = tools.gpus()
    if not gpus.vendor:
        return Result("gpumem", UNKNOWN, NO_GPU)
    memory = tools.call(Call(0, probe="gpu-memory", arguments={"share": "0.5", "seconds": "10"}), MEMORY_SECONDS)
    product = tools.call(Call(0, probe="gpu-gemm", arguments={"type": "fp64", "seconds": "5"}), MEMORY_SECONDS)
    unknown = dict.fromkeys(filter(None, (memory.unknown, product.unknown)))
    parsed = ParsedOutput((*memory.readings, *product.readings), "; ".join(unknown))
    found = by_gpu(parsed, ("hbm_bandwidth", "gpu_memory_wrong_bytes", "gemm_wrong_values"))
    names, places = _numbered(tools, gpus, len(found))
    readings_of = [*found.values(), *([] for _ in names[len(found) :])]
    rated = [_memory(name, readings, limits) for name, readings in zip(names, readings_of)]  # noqa: B905 - 3.10
    devices = with_the_gone(rated, places)
    bad = "; ".join(
        one.line or f"{one.quantity} {one.value:g} of {one.subject}" for one in parsed.readings if _wrong(one, limits)
    )
    why = "; ".join(filter(None, (gone_in_words(places), bad)))
    return _gpu_result("gpumem", node, devices, why or parsed.unknown or _missing(devices, parsed))


def _memory(name: str, readings: List[Reading], limits: GpuLimits) -> DeviceResult:
    counted = {one.quantity for one in readings if one.value is not None}
    if any(_wrong(one, limits) for one in readings):
        return DeviceResult(name, FAIL)
    whole = {"gpu_memory_wrong_bytes", "gemm_wrong_values"} <= counted
    return DeviceResult(name, PASS if whole else UNKNOWN)


def _wrong(one: Reading, limits: GpuLimits) -> bool:
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
    devices: Tuple[DeviceResult, ...],
    why: str,
    lines: Tuple[str, ...] = (),
    fault: str = "",
    unit: str = "",
) -> Result:
    verdict = worst([one.verdict for one in devices])
    bad = ", ".join(one.identity for one in devices if one.verdict == FAIL and not one.lost)
    if bad and fault:
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
LISTS: Mapping[str, Call] = {
    "nvidia-smi": NVIDIA_QUERY,
    "amd-smi": Call(0, command=("amd-smi", "list", "--json"), parser="amd-smi", deadline_seconds=SMI_SECONDS),
    "rocm-smi": Call(0, command=("rocm-smi", "--showbus", "--json"), parser="rocm-smi", deadline_seconds=SMI_SECONDS),
}
"""What lists all GPUs with their addresses."""
MODELS: Mapping[str, Call] = {
    "amd-smi": Call(
        0, command=("amd-smi", "static", "--asic", "--json"), parser="amd-smi", deadline_seconds=SMI_SECONDS
    ),
    "rocm-smi": Call(
        0, command=("rocm-smi", "--showproductname", "--json"), parser="rocm-smi", deadline_seconds=SMI_SECONDS
    ),
}
"""What tells the model, where the tool does not print it beside everything else."""
Check = Callable[[Tools, str, GpuLimits], Result]
CHECKS: Mapping[str, Check] = {"pciebw": pciebw, "remapped": remapped, "gpupower": gpupower, "gpumem": gpumem}
LOADING = ("pciebw", "gpumem", "dcgm")
"""They load GPUs and take turns."""
