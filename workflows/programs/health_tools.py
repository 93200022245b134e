"""The GPUs of the node as the checks of the node daemon see them: whose they are, how many, what their tools tell.

Standard library only, Python 3.9. How many GPUs there should be is told by the node itself (its bus, or whoever
started the daemon), never assumed: a GPU that no tool tells of leaves a check unknown.
"""

from __future__ import annotations

import re
import shutil
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from workflows.programs.health_runs import Once
from workflows.programs.health_words import FAIL, PASS, UNKNOWN, Device
from workflows.programs.probe_call import Call, execute
from workflows.programs.probe_links import GPU_CLASSES, PCI
from workflows.programs.probe_node import listed, read
from workflows.programs.readings import Parsed, Reading

MAKERS: Mapping[str, str] = {"nvidia": "0x10de", "amd": "0x1002"}
TOOLS: Mapping[str, Tuple[str, ...]] = {"nvidia": ("nvidia-smi",), "amd": ("amd-smi", "rocm-smi")}
SMI_SECONDS = 30.0
"""`nvidia-smi -q` needs several seconds on 8 GPUs without persistence mode."""
NVIDIA_QUERY = Call(0, command=("nvidia-smi", "-q"), parser="nvidia-smi", deadline_seconds=SMI_SECONDS)
_GPU = re.compile(r"gpu ([0-9A-Za-z:.]{1,40})")

Execute = Callable[[Call, Mapping[str, str], float, Mapping[str, Callable[[str], Parsed]]], Parsed]


@dataclass(frozen=True)
class Gpus:
    """What is known of them before any check."""

    vendor: str
    """`nvidia`, `amd`, or "" where there is neither GPU nor tool."""
    expected: int
    """How many there are on the bus, or as told from outside; 0: nobody knows."""


class Tools:
    """Runs tools and probes; the same call of several callers at once runs once.

    Args:
        expected: GPUs that the node should have; 0: as many as its bus shows.
        run: executes a call.
    """

    def __init__(self, expected: int = 0, run: Execute = execute) -> None:
        self._expected, self._run = expected, run
        self._once = Once()
        self.model = ""
        """Product name of the GPUs, once a tool told it."""

    def gpus(self) -> Gpus:
        """Whose GPUs these are, and how many."""
        counts = {vendor: on_bus(maker) for vendor, maker in MAKERS.items()}
        there = [vendor for vendor, count in counts.items() if count]
        vendor = there[0] if there else next((one for one in TOOLS if tool_of(one)), "")
        return Gpus(vendor, self._expected or counts.get(vendor, 0))

    def call(self, call: Call, seconds: float = 0.0) -> Parsed:
        """What a tool or a probe of ours told; whatever goes wrong is the reason why nothing is known."""
        from workflows.programs.tools import PARSERS

        deadline = seconds or call.deadline_seconds
        key = (call.probe, tuple(sorted(call.arguments.items())), call.command)
        found = self._once.do(key, lambda: self._run(call, {}, deadline, PARSERS))
        name = next((one.word for one in found.readings if one.quantity == "product_name" and one.word), "")
        self.model = name or self.model
        return found


def on_bus(maker: str) -> int:
    """GPUs of a maker on the PCI bus."""
    own = [name for name in listed(PCI) if read(f"{PCI}/{name}/vendor") == maker]
    return sum(1 for name in own if (read(f"{PCI}/{name}/class") or "")[:6] in GPU_CLASSES)


def tool_of(vendor: str) -> str:
    """The vendor's management tool that is installed; "" where none is."""
    return next((one for one in TOOLS.get(vendor, ()) if shutil.which(one)), "")


def by_gpu(parsed: Parsed, quantities: Sequence[str]) -> Dict[str, List[Reading]]:
    """Readings of these quantities by GPU, in the order in which the tool tells of them."""
    found: Dict[str, List[Reading]] = {}
    for one in parsed.readings:
        gpu = _GPU.match(one.subject)
        if gpu:
            found.setdefault(gpu.group(1), [])
            if one.quantity in quantities:
                found[gpu.group(1)].append(one)
    return found


def count_of(parsed: Parsed, gpus: Gpus, seen: int) -> int:
    """How many GPUs must be told of: the most that anybody shows."""
    told = next((one.value for one in parsed.readings if one.quantity == "gpu_count" and one.value), 0.0)
    return max(gpus.expected, int(told or 0), seen)


def judged(
    parsed: Parsed, gpus: Gpus, quantities: Sequence[str], judge: Callable[[Reading], Optional[bool]]
) -> Tuple[Tuple[Device, ...], str]:
    """Each GPU's verdict by some of its readings, and why one of them is not known.

    A GPU fails where one reading is bad, passes where all that there are are good, and is unknown without any.

    Args:
        parsed: what the tool told.
        gpus: how many there should be.
        quantities: which readings count.
        judge: True for a bad reading, False for a good one, None where it says nothing.
    """
    devices: List[Device] = []
    found = by_gpu(parsed, quantities)
    for index, readings in enumerate(found.values()):
        bad = [judge(one) for one in readings]
        known = [one for one in bad if one is not None]
        devices.append(Device(str(index), FAIL if any(known) else PASS if known else UNKNOWN))
    missing = count_of(parsed, gpus, len(devices)) - len(devices)
    devices += [Device(str(len(found) + more), UNKNOWN) for more in range(missing)]
    unknown = sum(one.verdict == UNKNOWN for one in devices)
    if not devices:
        return (), parsed.unknown or "no GPU is told of"
    reason = f"{unknown} of {len(devices)} GPUs are not told of" if unknown else ""
    return tuple(devices), f"{reason}: {parsed.unknown}" if reason and parsed.unknown else reason


def flagged(one: Reading) -> Optional[bool]:
    """Bad where the figure is not zero."""
    return None if one.value is None else one.value > 0


def detected(vendor: str, devices: Sequence[Device]) -> str:
    """`Detected NVIDIA GPU: 0 1 Total: 2`."""
    names = " ".join(one.identity for one in devices)
    return f"Detected {vendor.upper()} GPU: {names} Total: {len(devices)}"


def cpu_model(text: str) -> str:
    """The processor's name in /proc/cpuinfo; "" where it has none."""
    hit = re.search(r"^(?:model name|Model|cpu model)\s*: (.{1,120})$", text, re.MULTILINE)
    return hit.group(1).strip() if hit else ""


class Clock:
    """Wall clock and stop watch, replaced in tests."""

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.monotonic()


Json = Dict[str, Any]
