"""The GPUs of a node as bus, driver and management show them; nothing is opened, nothing disturbs whoever trains.

Standard library only, Python 3.9. What nobody tells is left out, and the check that asks for it is unknown.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import List, Mapping, Optional

from workflows.programs.probe_links import GPU_CLASSES, PCI
from workflows.programs.probe_node import GIB, listed, read
from workflows.programs.readings import Parsed, Reading

KFD = "sys/class/kfd/kfd"
NVIDIA_GPUS = "proc/driver/nvidia/gpus"
MIB = float(1 << 20)
ANSWER_SECONDS = 8.0
MODULES = {"0x1002": "amdgpu", "0x10de": "nvidia"}
"""Driver's module by maker: AMD, NVIDIA."""

Arguments = Mapping[str, str]


def gpu_devices(_: Arguments) -> Parsed:
    """How many there are, whether the driver is loaded, who uses them, and how much of their memory."""
    amd, nvidia = _on_bus("0x1002"), _on_bus("0x10de")
    if nvidia or listed(NVIDIA_GPUS):
        return _told(_nvidia(nvidia))
    return _told(_amd(amd))


def _told(readings: List[Reading]) -> Parsed:
    counted = any(one.quantity == "gpu_count" for one in readings)
    hidden = "" if counted else "the driver is loaded, and what it lists is not to be seen from here"
    return Parsed(tuple(readings), hidden)


def _on_bus(maker: str) -> List[str]:
    """PCI addresses of a maker's GPUs."""
    own = [name for name in listed(PCI) if read(f"{PCI}/{name}/vendor") == maker]
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
    for index, device in enumerate(bus):
        used = read(f"{PCI}/{device}/mem_info_vram_used")
        if used is not None and used.isdigit():
            found.append(Reading("gpu_memory_used", int(used) / GIB, "GiB", f"gpu {index}", line=device))
    return found


def _nvidia(bus: List[str]) -> List[Reading]:
    # Without the vendor's runtime a container sees the bus, and nothing of the driver's own files.
    driver = listed(NVIDIA_GPUS)
    seen = len(driver) if driver or listed("proc/driver/nvidia") else None
    found = _counted(bus, seen, "/proc/driver/nvidia/gpus", "nvidia")
    users = _asked("--query-compute-apps=pid")
    if users is not None:
        line = f"processes {', '.join(users[:8])}" if users else "no process computes"
        found.append(Reading("gpu_foreign_processes", float(len(users)), "count", line=line))
    for index, used in enumerate(_asked("--query-gpu=memory.used") or []):
        if used.isdigit():
            found.append(Reading("gpu_memory_used", int(used) * MIB / GIB, "GiB", f"gpu {index}", line="nvidia-smi"))
    return found


def _counted(bus: List[str], driver: Optional[int], where: str, module: str) -> List[Reading]:
    """The smallest count holds: a GPU that only one of them shows cannot be used.

    A driver that is loaded and shows nothing of itself (None) is hidden from this pod: that is no count. One that is
    not loaded drives no GPU.
    """
    loaded = read(f"sys/module/{module}/initstate") or ("live" if listed(f"sys/module/{module}") else "")
    word = "loaded" if loaded == "live" else loaded or "absent"
    found = [Reading("gpu_driver", word=word, line=f"module {module}")]
    if driver is None and word == "loaded":
        return found
    line = f"{len(bus)} on the PCI bus, {driver or 0} in {where}"
    return [Reading("gpu_count", float(min(len(bus), driver or 0)), "count", line=line), *found]


def _asked(query: str) -> Optional[List[str]]:
    """Rows that nvidia-smi gives; None where it is not there or refuses."""
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=ANSWER_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    return [line.strip() for line in done.stdout.decode("utf-8", "replace").splitlines() if line.strip()]


PROBES = {"gpu-devices": gpu_devices}
"""By the names of `profiles/suite_words.py`."""
