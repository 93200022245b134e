"""How many GPUs this node has: device files of the driver, the vendor's own tool, the bus, driver and management.

Where device files and tool both answer the smaller number counts: a device file may outlive the GPU behind it. Nothing
is opened, so a training is not disturbed. An unreadable source is left out, and a check that needs it is unknown.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, cast

from workflows.programs.parsers.text import ParsedOutput, Reading
from workflows.programs.probes.links import GPU_CLASSES, PCI
from workflows.programs.probes.node import GIB, listed, read
from workflows.programs.runtime.bounded import Ended, run_program

VENDORS = ("amd", "nvidia")
FAKE_VARIABLE = "PRIMUS_FAKE_GPUS"


@dataclass(frozen=True)
class GpuCount:
    """What was counted."""

    gpus: int
    evidence: str
    """Every source with its number."""


def count(
    vendor: str, fake: bool, environment: Mapping[str, str], timeout_seconds: float, root: str = "/"
) -> Optional[GpuCount]:
    """Number of this node's GPUs; None where fake ones are wanted and the environment names no number.

    `vendor` is `amd`, `nvidia`, or empty for either; `fake` takes the number from `PRIMUS_FAKE_GPUS`; `root` has the
    folders `dev` and `sys`.
    """
    if fake:
        text = environment.get(FAKE_VARIABLE, "")
        return GpuCount(int(text), f"{FAKE_VARIABLE}={text}") if text.isdigit() else None
    counts = [_of_vendor(name, timeout_seconds, root) for name in ([vendor] if vendor else VENDORS)]
    return GpuCount(max(one.gpus for one in counts), "; ".join(one.evidence for one in counts))


def _of_vendor(vendor: str, timeout_seconds: float, root: str) -> GpuCount:
    sources: List[Tuple[str, Optional[int]]] = [("device files", DEVICES[vendor](root))]
    listing = ask_tool(vendor, timeout_seconds)
    sources += [(listing.command, listing.gpus)] if listing is not None else []
    # A tool that is there and does not answer sees no GPU.
    numbers = [0 if number is None else number for _, number in sources]
    evidence = "; ".join(f"{name}: {'no answer' if number is None else number}" for name, number in sources)
    return GpuCount(min(numbers), f"{vendor}: {evidence}")


@dataclass(frozen=True)
class ToolListing:
    """What a vendor's tool answered when it was to list the GPUs."""

    command: str
    ended: Ended
    gpus: Optional[int]
    """None: it did not end well, or its answer cannot be read."""


def ask_tool(vendor: str, seconds: float) -> Optional[ToolListing]:
    """The answer of the vendor's best tool that is installed; None: there is none. One that hangs is left behind."""
    for argv, count_in in TOOLS[vendor]:
        if shutil.which(argv[0]) is not None:
            ended = run_program(argv, seconds, grace_seconds=0.0)
            return ToolListing(" ".join(argv), ended, count_in(ended.output) if ended.code == 0 else None)
    return None


def nvidia_devices(root: str) -> int:
    """`/dev/nvidia<n>`: one a GPU."""
    return sum(
        1 for path in glob.glob(os.path.join(root, "dev/nvidia[0-9]*")) if path.rpartition("nvidia")[2].isdigit()
    )


def amd_devices(root: str) -> int:
    """Nodes of the compute driver's topology that have SIMD units (the others are CPUs)."""
    found = 0
    for path in glob.glob(os.path.join(root, "sys/class/kfd/kfd/topology/nodes/*/properties")):
        with open(path, encoding="ascii", errors="replace") as file:
            match = re.search(r"^simd_count (\d+)$", file.read(), re.MULTILINE)
        found += match is not None and int(match.group(1)) > 0
    return found


def read_nvidia_smi(text: str) -> Optional[int]:
    """`nvidia-smi -L`: one line `GPU <n>: …` each."""
    return len(re.findall(r"^GPU \d+: ", text, re.MULTILINE))


def read_amd_smi(text: str) -> Optional[int]:
    """`amd-smi list --json`: a list with one object a GPU (newer versions: under `gpu_data`)."""
    data = _json(text)
    if isinstance(data, dict):
        data = cast("Dict[str, Any]", data).get("gpu_data")
    return len(cast("List[Any]", data)) if isinstance(data, list) else None


def read_rocm_smi(text: str) -> Optional[int]:
    """`rocm-smi --showid --json`: an object with one key `card<n>` a GPU."""
    data = _json(text)
    if not isinstance(data, dict):
        return None
    return sum(1 for key in cast("Dict[str, Any]", data) if re.match(r"^card\d+$", key))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


DEVICES: Mapping[str, Callable[[str], int]] = {"nvidia": nvidia_devices, "amd": amd_devices}
TOOLS: Mapping[str, Tuple[Tuple[Tuple[str, ...], Callable[[str], Optional[int]]], ...]] = {
    "nvidia": ((("nvidia-smi", "-L"), read_nvidia_smi),),
    "amd": (
        (("amd-smi", "list", "--json"), read_amd_smi),
        (("rocm-smi", "--showid", "--json"), read_rocm_smi),
    ),
}
"""The vendor's tools, best first; the first one that is installed is asked."""


KFD = "sys/class/kfd/kfd"
NVIDIA_GPUS = "proc/driver/nvidia/gpus"
MIB = float(1 << 20)
ANSWER_SECONDS = 8.0
MAKERS: Mapping[str, str] = {"nvidia": "0x10de", "amd": "0x1002"}
"""Their numbers on the PCI bus."""

Arguments = Mapping[str, str]


def gpu_devices(_: Arguments) -> ParsedOutput:
    """How many there are, whether the driver is loaded, who uses them, and how much of their memory."""
    amd, nvidia = on_bus("amd"), on_bus("nvidia")
    if nvidia or listed(NVIDIA_GPUS):
        return _parsed(_nvidia(nvidia))
    return _parsed(_amd(amd))


def _parsed(readings: List[Reading]) -> ParsedOutput:
    counted = any(one.quantity == "gpu_count" for one in readings)
    hidden = "" if counted else "the driver is loaded, and what it lists is not to be seen from here"
    return ParsedOutput(tuple(readings), hidden)


def on_bus(vendor: str) -> List[str]:
    """PCI addresses of a vendor's GPUs."""
    own = [name for name in listed(PCI) if read(f"{PCI}/{name}/vendor") == MAKERS[vendor]]
    return [name for name in own if (read(f"{PCI}/{name}/class") or "")[:6] in GPU_CLASSES]


def _amd(bus: List[str]) -> List[Reading]:
    nodes = [read(f"{KFD}/topology/nodes/{node}/gpu_id") for node in listed(f"{KFD}/topology/nodes")]
    driver = [identity for identity in nodes if identity not in (None, "", "0")]
    seen = len(driver) if listed(f"{KFD}/topology/nodes") else None
    found = _counted(bus, seen, "the driver's topology", "amdgpu")
    if listed(f"{KFD}/topology/nodes"):
        # Each process that has the driver's device open has a folder here, whatever container it is in.
        users = listed(f"{KFD}/proc")
        line = f"processes {', '.join(users[:8])}" if users else "nobody has the driver's device open"
        found.append(Reading("gpu_foreign_processes", float(len(users)), "count", line=line))
    for index, device in enumerate(bus):  # what the driver has lost is still on the bus: numbers stay
        used = read(f"{PCI}/{device}/mem_info_vram_used")
        if used is not None and used.isdigit():
            found.append(Reading("gpu_memory_used", int(used) / GIB, "GiB", f"gpu {index}", line=device))
    return found


def _nvidia(bus: List[str]) -> List[Reading]:
    # Without the vendor's runtime a container sees the bus, and nothing of the driver's own files.
    driver = listed(NVIDIA_GPUS)
    seen = len(driver) if driver or listed("proc/driver/nvidia") else None
    places: List[str] = sorted({place for place in map(address, [*bus, *driver]) if place})
    rows = [row.split(",") for row in _asked("--query-gpu=pci.bus_id,memory.used") or []]
    used = {address(row[0].strip()): row[-1].strip() for row in rows if address(row[0].strip())}
    told = len(used) if used and not _is_a_part(len(used), len(places)) else None
    gone = [place for place in places if place not in used] if told is not None else []
    found = _counted(bus, seen, "/proc/driver/nvidia/gpus", "nvidia", told, gone)
    users = _asked("--query-compute-apps=pid")
    if users is not None:
        line = f"processes {', '.join(users[:8])}" if users else "no process computes"
        found.append(Reading("gpu_foreign_processes", float(len(users)), "count", line=line))
    for place, mebibytes in used.items():
        if mebibytes.isdigit() and place in places:
            gpu = f"gpu {places.index(place)}"
            found.append(Reading("gpu_memory_used", int(mebibytes) * MIB / GIB, "GiB", gpu, line=f"nvidia-smi {place}"))
    return found


def numbers_of(counted: int) -> Tuple[int, ...]:
    """Numbers of the GPUs that a library counted as 0, 1, … by their places on the bus, where it counted too few.

    Which ones it left out is what the vendor's tool does not reach either; where that does not explain it, the
    library's own numbers stand.
    """
    bus = [address(one) for vendor in MAKERS for one in on_bus(vendor)]
    if not 0 < counted < len(bus):
        return tuple(range(counted))
    reached = {address(row) for row in _asked("--query-gpu=pci.bus_id") or []}
    there = tuple(number for number, place in enumerate(bus) if place in reached)
    return there if len(there) == counted else tuple(range(counted))


def _is_a_part(told: int, places: int) -> bool:
    """Whether this container was given some of the node's GPUs only, as many as the tool tells of."""
    given = [one for one in os.environ.get("NVIDIA_VISIBLE_DEVICES", "all").split(",") if one]
    return given not in (["all"], []) and len(given) < places and told >= len(given)


_ADDRESS = re.compile(r"(?:[0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])", re.IGNORECASE)


def address(text: str) -> str:
    """A place on the bus as the kernel writes it, `0000:5e:00.0`; "" where the text is none."""
    hit = _ADDRESS.fullmatch(text)
    return hit.group(1).lower() if hit else ""


def _counted(
    bus: List[str],
    driver: Optional[int],
    where: str,
    module: str,
    told: Optional[int] = None,
    gone: Sequence[str] = (),
) -> List[Reading]:
    """The smallest count holds: a GPU that only one of them shows cannot be used.

    A driver that is loaded and shows nothing of itself (None) is hidden from this pod: that is no count. One that is
    not loaded drives no GPU. `told`: GPUs that the vendor's tool reaches (None: it does not say), `gone` those that it
    does not.
    """
    loaded = read(f"sys/module/{module}/initstate") or ("live" if listed(f"sys/module/{module}") else "")
    word = "loaded" if loaded == "live" else loaded or "absent"
    found = [Reading("gpu_driver", word=word, line=f"module {module}")]
    if driver is None and word == "loaded":
        return found
    counts = [len(bus), driver or 0, *([] if told is None else [told])]
    line = f"{len(bus)} on the PCI bus, {driver or 0} in {where}"
    line += f", {told} reached by the tool: {', '.join(gone)} lost" if gone else ""
    return [Reading("gpu_count", float(min(counts)), "count", line=line), *found]


def _asked(query: str) -> Optional[List[str]]:
    """Rows that nvidia-smi gives; None where it is not there or refuses."""
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    ended = run_program(command, ANSWER_SECONDS)
    return [line.strip() for line in ended.output.splitlines() if line.strip()] if ended.code == 0 else None


PROBES = {"gpu-devices": gpu_devices}
"""By the names of `profiles/checks/catalogue.py`."""
