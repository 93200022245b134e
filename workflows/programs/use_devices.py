"""What NICs and GPUs tell of themselves in /sys and through NVIDIA's library; nothing is opened that a rank could miss.

A driver in trouble may hold up whoever asks it, so only the meter's thread asks. Counters grow from the start of the
node; files are named as in the kernel's own documentation (`sysfs-class-infiniband`, `amdgpu` thermal and memory).
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from workflows.programs.probe_links import GPU_CLASSES, PCI
from workflows.programs.probe_node import listed, read
from workflows.programs.use import Figures
from workflows.programs.use_nvml import Library

INFINIBAND = "sys/class/infiniband"
NET = "sys/class/net"
WORD_BYTES = 4
"""RDMA ports count their traffic in words of 32 bits."""
RDMA_ERRORS = ("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_xmit_discards")
NET_ERRORS = ("rx_errors", "tx_errors")
MOST_DEVICES = 64
AMD = "0x1002"
MILLI, MICRO = 1e-3, 1e-6


def nics() -> Dict[str, Figures]:
    """Traffic and errors of each NIC, RDMA devices summed over their ports; loopback is none."""
    found: Dict[str, Figures] = {}
    for device in listed(INFINIBAND)[:MOST_DEVICES]:
        ports = [f"{INFINIBAND}/{device}/ports/{port}/counters" for port in listed(f"{INFINIBAND}/{device}/ports")]
        figures = {
            "received_bytes": _sum([f"{port}/port_rcv_data" for port in ports], WORD_BYTES),
            "sent_bytes": _sum([f"{port}/port_xmit_data" for port in ports], WORD_BYTES),
            "errors": _sum([f"{port}/{name}" for port in ports for name in RDMA_ERRORS]),
        }
        found[device] = _known(figures)
    for device in [name for name in listed(NET) if name != "lo"][:MOST_DEVICES]:
        folder = f"{NET}/{device}/statistics"
        figures = {
            "received_bytes": _sum([f"{folder}/rx_bytes"]),
            "sent_bytes": _sum([f"{folder}/tx_bytes"]),
            "errors": _sum([f"{folder}/{name}" for name in NET_ERRORS]),
        }
        found[device] = _known(figures)
    return {name: figures for name, figures in found.items() if figures}


def gpus(library: Optional[Library]) -> Dict[str, Figures]:
    """Of each GPU, by its place on the bus or the library's number: memory, load, temperature, power, errors.

    Args:
        library: NVIDIA's, where there is one.
    """
    if library is not None:
        return library.gpus()
    bus = [name for name in listed(PCI) if read(f"{PCI}/{name}/vendor") == AMD]
    bus = [name for name in bus if (read(f"{PCI}/{name}/class") or "")[:6] in GPU_CLASSES]
    found = {str(index): _amd(f"{PCI}/{name}") for index, name in enumerate(bus[:MOST_DEVICES])}
    return {number: figures for number, figures in found.items() if figures}


def _amd(folder: str) -> Figures:
    sensors = [f"{folder}/hwmon/{name}" for name in listed(f"{folder}/hwmon")]
    return _known(
        {
            "memory_bytes": _sum([f"{folder}/mem_info_vram_used"]),
            "memory_limit_bytes": _sum([f"{folder}/mem_info_vram_total"]),
            "busy_percent": _sum([f"{folder}/gpu_busy_percent"]),
            "temperature_celsius": _hottest(sensors),
            "power_watts": _first([f"{one}/{name}" for one in sensors for name in ("power1_average", "power1_input")]),
            "uncorrected_errors": _uncorrected(f"{folder}/ras"),
        }
    )


def _hottest(sensors: List[str]) -> Optional[float]:
    """Edge, junction and memory have a sensor each; one of them throttles first, and that is the hottest."""
    told = [read(f"{one}/temp{number}_input") or "" for one in sensors for number in (1, 2, 3)]
    return max((int(word) * MILLI for word in told if word.lstrip("-").isdigit()), default=None)


def _first(paths: List[str]) -> Optional[float]:
    told = (read(path) or "" for path in paths)
    return next((int(word) * MICRO for word in told if word.isdigit()), None)


def _uncorrected(folder: str) -> Optional[int]:
    told = [read(f"{folder}/{name}") or "" for name in listed(folder) if name.endswith("_err_count")]
    counts = [int(found[1]) for text in told for found in [re.search(r"^ue:\s*(\d+)", text, re.M)] if found]
    return sum(counts) if counts else None


def _sum(paths: List[str], factor: int = 1) -> Optional[int]:
    words = [read(path) or "" for path in paths]
    numbers = [int(word) for word in words if word.isdigit()]
    return sum(numbers) * factor if numbers else None


def _known(figures: Dict[str, Any]) -> Figures:
    return {name: value for name, value in figures.items() if value is not None}
