"""Checks of the node daemon on GPUs: PCIe bandwidth, remapped rows, slow-downs, memory, arithmetic, and diagnostics.

AMD and NVIDIA alike, by the vendor's tool or our own probe. Tools report a whole GPU's counters also where it is split
(MIG), so a split GPU is judged by them like any other. The diagnostic has levels 1 to 4: DCGM on NVIDIA, AGFHC or RVS
on AMD; a list of words says which of its failures make a node unfit (EVICT).

The expected number of GPUs comes from the node itself (its bus, or the daemon's flags), never from an assumption: a GPU
that no tool reports leaves a check unknown.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from workflows.programs.health.results import DeviceResult, Result, values_line
from workflows.programs.parsers.text import ParsedOutput, Reading
from workflows.programs.probes.call import Call, execute
from workflows.programs.probes.gpu_count import MAKERS, on_bus
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
    """As many as the flags say, or else as the bus shows; 0: not known."""


class Tools:
    """Runs tools and probes; equal calls at the same time run once.

    `expected` is the number of GPUs that the node should have; 0: as many as its bus shows.
    """

    def __init__(self, expected: int = 0, run: Execute = execute) -> None:
        self._expected, self._run = expected, run
        self._once = SharedResult()
        self.model = ""
        """Product name of the GPUs, once a tool has printed it."""

    def gpus(self) -> Gpus:
        """Whose GPUs these are, and how many."""
        counts = {vendor: len(on_bus(vendor)) for vendor in MAKERS}
        there = [vendor for vendor, count in counts.items() if count]
        vendor = there[0] if there else next((one for one in TOOLS if tool_of(one)), "")
        return Gpus(vendor, self._expected or counts.get(vendor, 0))

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


def count_of(parsed: ParsedOutput, gpus: Gpus, seen: int) -> int:
    """How many GPUs must have readings: the most that flags, bus, tool or readings show."""
    counted = next((one.value for one in parsed.readings if one.quantity == "gpu_count" and one.value), 0.0)
    return max(gpus.expected, int(counted or 0), seen)


def judge_devices(
    parsed: ParsedOutput, gpus: Gpus, quantities: Sequence[str], judge: Callable[[Reading], Optional[bool]]
) -> Tuple[Tuple[DeviceResult, ...], str]:
    """The verdict on each GPU by some of its readings, and why a verdict is unknown.

    A GPU fails where one reading is bad, passes where all readings are good, and is unknown without any. `judge`
    returns True for a bad reading, False for a good one, and None for one that does not count.
    """
    devices: List[DeviceResult] = []
    found = by_gpu(parsed, quantities)
    for index, readings in enumerate(found.values()):
        bad = [judge(one) for one in readings]
        known = [one for one in bad if one is not None]
        devices.append(DeviceResult(str(index), FAIL if any(known) else PASS if known else UNKNOWN))
    missing = count_of(parsed, gpus, len(devices)) - len(devices)
    devices += [DeviceResult(str(len(found) + more), UNKNOWN) for more in range(missing)]
    unknown = sum(one.verdict == UNKNOWN for one in devices)
    if not devices:
        return (), parsed.unknown or "the tool reports no GPU"
    reason = f"{unknown} of {len(devices)} GPUs have no reading" if unknown else ""
    return tuple(devices), f"{reason}: {parsed.unknown}" if reason and parsed.unknown else reason


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
    count = max(count_of(parsed, gpus, len(best)), max(best, default=-1) + 1)
    devices = tuple(_bandwidth(index, best.get(index), limits.pcie_gb_per_second) for index in range(count))
    low = [
        f"GPU {one.identity} {one.value:.4g} GB/s" for one in devices if one.verdict == FAIL and one.value is not None
    ]
    why = f"below {limits.pcie_gb_per_second:g} GB/s: {', '.join(low)}" if low else ""
    return _gpu_result("pciebw", node, devices, why or _missing(devices, parsed), unit="GB/s")


def _bandwidth(index: int, value: Optional[float], least: float) -> DeviceResult:
    if value is None:
        return DeviceResult(str(index), UNKNOWN)
    return DeviceResult(str(index), FAIL if value < least else PASS, round(value, 3))


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
    devices, unknown = judge_devices(tools.call(call), gpus, quantities, _umc if tool == "rocm-smi" else flagged)
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
    devices, unknown = judge_devices(tools.call(call), gpus, quantities, _slowed)
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
    devices = [_memory(index, readings, limits) for index, readings in enumerate(found.values())]
    devices += [DeviceResult(str(more), UNKNOWN) for more in range(len(devices), count_of(parsed, gpus, len(devices)))]
    bad = "; ".join(
        one.line or f"{one.quantity} {one.value:g} of {one.subject}" for one in parsed.readings if _wrong(one, limits)
    )
    return _gpu_result("gpumem", node, tuple(devices), bad or parsed.unknown or _missing(tuple(devices), parsed))


def _memory(index: int, readings: List[Reading], limits: GpuLimits) -> DeviceResult:
    counted = {one.quantity for one in readings if one.value is not None}
    if any(_wrong(one, limits) for one in readings):
        return DeviceResult(str(index), FAIL)
    whole = {"gpu_memory_wrong_bytes", "gemm_wrong_values"} <= counted
    return DeviceResult(str(index), PASS if whole else UNKNOWN)


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
Check = Callable[[Tools, str, GpuLimits], Result]
CHECKS: Mapping[str, Check] = {"pciebw": pciebw, "remapped": remapped, "gpupower": gpupower, "gpumem": gpumem}
LOADING = ("pciebw", "gpumem", "dcgm")
"""They load GPUs and take turns."""


DEADLINES: Mapping[int, float] = {1: 120.0, 2: 420.0, 3: 2700.0, 4: 10800.0}
"""DCGM says: seconds, 2 min, 15 min, 1 to 2 h; half as much again and more, for many GPUs."""
FATAL: Tuple[str, ...] = ("PCIe", "NVLink", "ECC", "GPU Memory")
"""Autopilot's list: a failed test whose name holds one of them makes the node unfit."""
_JUDGED = ("dcgm_test", "agfhc_test", "agfhc_result", "gpu_memory_test", "pcie_test")
_SUBJECT = re.compile(r"(gpu|cpu) ([0-9A-Za-z]{1,12}(?:[, ]{1,2}[0-9]{1,4})*)(?: (.{1,80}))?")


def dcgm(tools: Tools, node: str, level: int, paths: Sequence[str] = ()) -> Result:
    """The diagnostic of one level, from 1 (seconds) to 4 (hours).

    `paths` (`top.category.test`) limits which tests count; empty: all.
    """
    gpus = tools.gpus()
    if not gpus.vendor:
        return _answer(node, level, UNKNOWN, NO_GPU)
    call = call_of(gpus.vendor, level)
    if call is None:
        return _counters(tools, node, level, gpus)
    parsed = tools.call(call)
    wanted = {unified(one.rpartition(".")[2]) for one in paths}
    tests = [one for one in parsed.readings if one.said or one.quantity in _JUDGED]
    if wanted:
        tests = [one for one in tests if unified(tool_test_of(one)) in wanted]
        parsed = ParsedOutput(tuple(tests), parsed.unknown if not tests else _skipped(tests))
    return judge(node, level, tests, parsed.unknown)


def judge(node: str, level: int, tests: Sequence[Reading], unknown: str) -> Result:
    """Fail where one test failed; pass only where all of them passed and nothing is missing."""
    failed = [one for one in tests if one.said == "fail"]
    if failed:
        why = "; ".join(dict.fromkeys(one.line.strip() or one.subject for one in failed))
        return _answer(node, level, FAIL, why, failing(failed))
    neither = [one for one in tests if not one.said]
    if not tests:
        return _answer(node, level, UNKNOWN, unknown or "no test was reported")
    if neither or unknown:
        said = "; ".join(one.line.strip() for one in neither[:4])
        return _answer(node, level, UNKNOWN, unknown or f"{len(neither)} of {len(tests)} tests did not pass: {said}")
    return _answer(node, level, PASS, "")


def _skipped(tests: Sequence[Reading]) -> str:
    skipped = sum(one.word.startswith("Skip") for one in tests)
    return f"{skipped} of {len(tests)} results are of tests that were skipped" if skipped else ""


def call_of(vendor: str, level: int) -> Optional[Call]:
    """What runs this level; None where the vendor's counters stand for it."""
    seconds = DEADLINES[level]
    if vendor == "nvidia":
        command = ("dcgmi", "diag", "-j", "-r", str(level))
        return Call(0, command=command, parser="dcgm-diag", deadline_seconds=seconds)
    if level == 1:
        return None
    if shutil.which("agfhc"):
        return Call(0, command=("agfhc", "-r", f"all_lvl{level}"), parser="agfhc", deadline_seconds=seconds)
    return Call(0, command=("rvs", "-r", str(level)), parser="rvs", deadline_seconds=seconds)


def _counters(tools: Tools, node: str, level: int, gpus: Gpus) -> Result:
    """Level 1 on AMD: no memory error that nobody corrected (its own suites begin at minutes of load)."""
    tool = tool_of(gpus.vendor)
    commands = {"amd-smi": ("amd-smi", "metric", "--ecc", "--json"), "rocm-smi": ("rocm-smi", "--showrasinfo", "all")}
    if not tool:
        return _answer(node, level, UNKNOWN, "amd-smi and rocm-smi are not installed in this image")
    parsed = tools.call(Call(0, command=commands[tool], parser=tool, deadline_seconds=SMI_SECONDS))
    devices, unknown = judge_devices(parsed, gpus, ("ecc_uncorrectable",), flagged)
    bad = [
        (gpu, readings)
        for gpu, readings in by_gpu(parsed, ("ecc_uncorrectable",)).items()
        if any(map(flagged, readings))
    ]
    if bad:
        why = "; ".join(one.line.strip() for _, readings in bad for one in readings if flagged(one))
        return _answer(node, level, FAIL, why, ("ecc." + ".".join(gpu for gpu, _ in bad),))
    return _answer(node, level, UNKNOWN if unknown or not devices else PASS, unknown)


def _answer(node: str, level: int, verdict: str, why: str, failed: Tuple[str, ...] = ()) -> Result:
    host = (f"Host {node}",) if verdict == FAIL else ()
    return Result("dcgm", verdict, why, (), host, "", level, failed)


def tool_test_of(one: Reading) -> str:
    """Name of the test that a reading is about."""
    hit = _SUBJECT.fullmatch(one.subject)
    return (hit.group(3) or one.quantity) if hit else one.subject or one.quantity


def failing(failed: Sequence[Reading]) -> Tuple[str, ...]:
    """Failed tests with their GPUs: `pcie.3`, `gpu_memory.0.5`."""
    found: Dict[str, List[str]] = {}
    for one in failed:
        hit = _SUBJECT.fullmatch(one.subject)
        gpus = re.split(r"[, ]+", hit.group(2)) if hit else []
        found.setdefault(unified(tool_test_of(one)), []).extend(gpus)
    return tuple(".".join([name, *dict.fromkeys(gpus)]) for name, gpus in found.items())


def unified(text: str) -> str:
    """Names as labels and lists write them: lower case, underscores."""
    return re.sub(r"[/|\s]+", "_", text.strip().lower())


def fatal_words(text: str) -> Tuple[str, ...]:
    """The words of `DCGM_FATAL_ERRORS`, with commas between them; empty: the usual list."""
    words = tuple(one.strip() for one in text.split(",") if one.strip())
    return words or FATAL


def is_fatal(failed: Sequence[str], words: Sequence[str]) -> bool:
    """Whether one of the failed tests makes the node unfit."""
    names = [one.partition(".")[0] for one in failed]
    return any(unified(word) in name for word in words for name in names)
