"""Resources that the ranks of a pod use: memory, processor time, open files, /dev/shm, NICs and GPUs.

Processes are read from /proc, which never blocks. A rank counts with all that it started (data loaders). Shared pages
count in each process that maps them, so the memory of a rank is an upper bound; the kernel kills by the figure of the
pod's control group.

NICs and GPUs are read from /sys and through NVIDIA's management library, without taking anything from the ranks: no
process is started and no context opened on a GPU. A driver in trouble may block, so only the meter's thread reads them.
Counters grow from the start of the node. Files are those of the kernel's documentation (`sysfs-class-infiniband`,
`amdgpu` thermal and memory); names, types and constants are those of NVML's public header (API version 2 of what has
one).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from typing import Any, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Tuple

from workflows.programs.probes.links import GPU_CLASSES, PCI
from workflows.programs.probes.node import listed, read

Figures = Dict[str, Any]
"""JSON: numbers in objects; unknown figures are absent."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
MOST_PROCESSES = 512
"""Processes counted for one rank."""
NEAR_LIMIT_SHARE = 0.9
"""Share of a limit from which a warning is printed."""
SHARED = "/dev/shm"  # noqa: S108 - the ranks' own
GROUP = "sys/fs/cgroup"
GROUPS = (
    ("memory.current", "memory.max", "memory.stat", "inactive_file"),
    ("memory/memory.usage_in_bytes", "memory/memory.limit_in_bytes", "memory/memory.stat", "total_inactive_file"),
)
"""Files with the memory in use and its limit, in control groups v2 and v1; and the key of cached files in it, which the
kernel drops before it kills anything (the kubelet subtracts the same)."""
UNLIMITED = 1 << 60
"""Control groups v1 state a limit above this where there is none."""


class RankUsage(NamedTuple):
    """One rank with its processes."""

    memory_bytes: int
    cpu_seconds: float
    """Since its start, including children that have ended and were reaped."""
    open_files: int
    """Open files of the process that has most, since the limit is per process."""
    open_files_limit: Optional[int]
    processes: int


class RankActivity(NamedTuple):
    """What one rank and its processes have done since their start."""

    cpu_seconds: float
    moved_bytes: int
    """Read and written, by any call and to whatever."""
    processes: FrozenSet[int]
    stopped: bool
    """Whether one of them is stopped (state T)."""


class _Process(NamedTuple):
    state: str
    parent: int
    ticks: int
    pages: int


def rank_usage(pids: Mapping[int, int]) -> Dict[int, RankUsage]:
    """Usage of each rank, by the rank's first process; a rank that is gone is left out."""
    processes, families = _families(pids)
    return {number: _rank(family, processes) for number, family in families.items()}


def rank_activity(pids: Mapping[int, int]) -> Dict[int, RankActivity]:
    """What each rank has done, by the rank's first process; a rank that is gone is left out."""
    processes, families = _families(pids)
    return {
        number: RankActivity(
            cpu_seconds=sum(processes[pid].ticks for pid in family) / TICKS,
            moved_bytes=sum(_part(f"proc/{pid}/io", name) for pid in family for name in ("rchar:", "wchar:")),
            processes=frozenset(family),
            stopped=any(processes[pid].state == "T" for pid in family),
        )
        for number, family in families.items()
    }


def _families(pids: Mapping[int, int]) -> Tuple[Dict[int, _Process], Dict[int, List[int]]]:
    """All processes, and those of each rank."""
    processes = {int(name): one for name in listed("proc") if name.isdigit() and (one := _process(name)) is not None}
    children: Dict[int, List[int]] = {}
    for pid, one in processes.items():
        children.setdefault(one.parent, []).append(pid)
    return processes, {number: _family(pid, children) for number, pid in pids.items() if pid in processes}


def _family(first: int, children: Mapping[int, List[int]]) -> List[int]:
    family: List[int] = []
    left = [first]
    while left and len(family) < MOST_PROCESSES:
        family.append(left.pop())
        left.extend(children.get(family[-1], ()))
    return family


def _rank(family: List[int], processes: Mapping[int, _Process]) -> RankUsage:
    files = {pid: len(listed(f"proc/{pid}/fd")) for pid in family}
    fullest = max(family, key=lambda pid: files[pid])
    return RankUsage(
        memory_bytes=sum(processes[pid].pages for pid in family) * PAGE_BYTES,
        cpu_seconds=sum(processes[pid].ticks for pid in family) / TICKS,
        open_files=files[fullest],
        open_files_limit=_files_limit(read(f"proc/{fullest}/limits") or ""),
        processes=len(family),
    )


def _process(name: str) -> Optional[_Process]:
    """One process from `/proc/<pid>/stat`, whose second word is a name that may contain spaces and brackets."""
    words = (read(f"proc/{name}/stat") or "").rpartition(")")[2].split()
    if len(words) < 22:
        return None
    return _Process(words[0], int(words[1]), sum(int(word) for word in words[11:15]), max(0, int(words[21])))


def to_json(now: Mapping[int, RankUsage], before: Mapping[int, RankUsage], seconds: float) -> Dict[str, Figures]:
    """Usage as JSON, by the rank as text.

    `before` is the sample `seconds` earlier; a rank that is not in it has no processor time yet.
    """
    found: Dict[str, Figures] = {}
    for number, one in now.items():
        figures: Figures = {
            "memory_bytes": one.memory_bytes,
            "open_files": one.open_files,
            "open_files_limit": one.open_files_limit,
            "processes": one.processes,
        }
        earlier = before.get(number)
        if earlier is not None and seconds > 0:
            figures["cpu_cores"] = round(max(0.0, one.cpu_seconds - earlier.cpu_seconds) / seconds, 3)
        found[str(number)] = {name: value for name, value in figures.items() if value is not None}
    return found


def pod_usage(shared: str = SHARED) -> Figures:
    """Memory and shared memory of the pod, with their limits."""
    found: Figures = {}
    for used, most, parts, files in GROUPS:
        memory, limit = _whole(f"{GROUP}/{used}"), _whole(f"{GROUP}/{most}")
        if memory is not None and not found:
            found["memory_bytes"] = max(0, memory - _part(f"{GROUP}/{parts}", files))
            if limit is not None and limit < UNLIMITED:
                found["memory_limit_bytes"] = limit
    try:
        room = os.statvfs(shared)
    except OSError:
        return found
    size = room.f_blocks * room.f_frsize
    return {**found, "shared_memory_bytes": size - room.f_bfree * room.f_frsize, "shared_memory_limit_bytes": size}


def close_to_its_limit(figures: Figures) -> Dict[str, str]:
    """Warnings for people on limits that are nearly reached, by the limit's name; `figures` is the pod's sample."""
    found: Dict[str, str] = {}
    for name, what in (("memory", "the pod's memory"), ("shared_memory", SHARED)):
        used, limit = figures.get(f"{name}_bytes"), figures.get(f"{name}_limit_bytes")
        if used is not None and limit and used >= NEAR_LIMIT_SHARE * limit:
            found[name] = f"{what} is nearly used up: {used / 2**30:.2f} of {limit / 2**30:.2f} GiB"
    for number, one in figures.get("ranks", {}).items():
        used, limit = one.get("open_files"), one.get("open_files_limit")
        if used is not None and limit and used >= NEAR_LIMIT_SHARE * limit:
            found[f"files of {number}"] = f"rank {number} has {used} files open and may have {limit}"
    return found


def _files_limit(limits: str) -> Optional[int]:
    for line in limits.splitlines():
        words = line.split()
        if line.startswith("Max open files") and len(words) > 3 and words[3].isdigit():
            return int(words[3])
    return None


def _part(path: str, name: str) -> int:
    lines = (line.split() for line in (read(path) or "").splitlines())
    return next((int(words[1]) for words in lines if len(words) == 2 and words[0] == name and words[1].isdigit()), 0)


def _whole(path: str) -> Optional[int]:
    word = read(path) or ""
    return int(word) if word.isdigit() else None


LIBRARY = "libnvidia-ml.so.1"
SUCCESS = 0
TEMPERATURE_GPU = 0
UNCORRECTED, SINCE_BOOT = 1, 0
"""Kinds of memory errors and of their counters."""
MILLIWATT = 1e-3
MOST_GPUS = 64


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class NvmlLibrary:
    """NVIDIA's management library, initialised; each of its `functions` returns 0 on success."""

    def __init__(self, functions: Any) -> None:
        self._functions = functions

    def gpus(self) -> Dict[str, Dict[str, Any]]:
        """Figures of each GPU by its number; what it does not support is absent."""
        count = ctypes.c_uint(0)
        if not self._did("nvmlDeviceGetCount_v2", ctypes.byref(count)):
            return {}
        found: Dict[str, Dict[str, Any]] = {}
        for index in range(min(count.value, MOST_GPUS)):
            gpu = ctypes.c_void_p()
            if self._did("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(gpu)):
                found[str(index)] = self._gpu(gpu)
        return found

    def _gpu(self, gpu: ctypes.c_void_p) -> Dict[str, Any]:
        usage: Dict[str, Any] = {}
        memory, load = _Memory(), _Utilization()
        number, errors = ctypes.c_uint(0), ctypes.c_ulonglong(0)
        if self._did("nvmlDeviceGetMemoryInfo", gpu, ctypes.byref(memory)):
            usage.update(memory_bytes=memory.used, memory_limit_bytes=memory.total)
        if self._did("nvmlDeviceGetUtilizationRates", gpu, ctypes.byref(load)):
            usage["busy_percent"] = load.gpu
        if self._did("nvmlDeviceGetTemperature", gpu, ctypes.c_uint(TEMPERATURE_GPU), ctypes.byref(number)):
            usage["temperature_celsius"] = number.value
        if self._did("nvmlDeviceGetPowerUsage", gpu, ctypes.byref(number)):
            usage["power_watts"] = number.value * MILLIWATT
        kinds = (ctypes.c_uint(UNCORRECTED), ctypes.c_uint(SINCE_BOOT))
        if self._did("nvmlDeviceGetTotalEccErrors", gpu, *kinds, ctypes.byref(errors)):
            usage["uncorrected_errors"] = errors.value
        return usage

    def _did(self, name: str, *arguments: Any) -> bool:
        function = getattr(self._functions, name, None)
        return function is not None and bool(function(*arguments) == SUCCESS)


def open_library(path: str = LIBRARY) -> Optional[NvmlLibrary]:
    """The library; None: it is missing here, or does not initialise (no driver)."""
    with contextlib.suppress(OSError, AttributeError):
        functions = ctypes.CDLL(path)
        if functions.nvmlInit_v2() == SUCCESS:
            return NvmlLibrary(functions)
    return None


INFINIBAND = "sys/class/infiniband"
NET = "sys/class/net"
WORD_BYTES = 4
"""RDMA ports count their traffic in words of 32 bits."""
RDMA_ERRORS = ("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_xmit_discards")
NET_ERRORS = ("rx_errors", "tx_errors")
MOST_DEVICES = 64
AMD = "0x1002"
MILLI, MICRO = 1e-3, 1e-6


def nic_usage() -> Dict[str, Figures]:
    """Traffic and errors of each NIC but loopback, RDMA devices summed over their ports."""
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


def gpu_usage(library: Optional[NvmlLibrary]) -> Dict[str, Figures]:
    """Memory, load, temperature, power and errors of each GPU, by its bus address or the library's number."""
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
    """The highest of the edge, junction and memory sensors, because that one throttles first."""
    usage = [read(f"{one}/temp{number}_input") or "" for one in sensors for number in (1, 2, 3)]
    return max((int(word) * MILLI for word in usage if word.lstrip("-").isdigit()), default=None)


def _first(paths: List[str]) -> Optional[float]:
    usage = (read(path) or "" for path in paths)
    return next((int(word) * MICRO for word in usage if word.isdigit()), None)


def _uncorrected(folder: str) -> Optional[int]:
    usage = [read(f"{folder}/{name}") or "" for name in listed(folder) if name.endswith("_err_count")]
    counts = [int(found[1]) for text in usage for found in [re.search(r"^ue:\s*(\d+)", text, re.M)] if found]
    return sum(counts) if counts else None


def _sum(paths: List[str], factor: int = 1) -> Optional[int]:
    words = [read(path) or "" for path in paths]
    numbers = [int(word) for word in words if word.isdigit()]
    return sum(numbers) * factor if numbers else None


def _known(figures: Dict[str, Any]) -> Figures:
    return {name: value for name, value in figures.items() if value is not None}
