"""What the ranks of a pod use: memory, processor time, open files, /dev/shm. Read from /proc, which never waits.

A rank is counted with all that it started (data loaders). Shared pages count in each process that maps them, so the
memory of a rank is an upper bound; what the kernel kills by is the pod's own figure, of its control group.

What NICs and GPUs tell of themselves in /sys and through NVIDIA's library; nothing is opened that a rank could miss.

A driver in trouble may hold up whoever asks it, so only the meter's thread asks. Counters grow from the start of the
node; files are named as in the kernel's own documentation (`sysfs-class-infiniband`, `amdgpu` thermal and memory).

NVIDIA's management library, asked through ctypes: no process is started, no context is opened on a GPU.

Names, types and constants are those of NVML's public header (API version 2 of what has one).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from workflows.programs.probes.links import GPU_CLASSES, PCI
from workflows.programs.probes.node import listed, read

Figures = Dict[str, Any]
"""JSON: numbers in objects; what is not known is absent."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
MOST_PROCESSES = 512
"""Of one rank; what is beyond is not counted."""
CLOSE = 0.9
"""Of a limit: worth a word."""
SHARED = "/dev/shm"  # noqa: S108 - the ranks' own
GROUP = "sys/fs/cgroup"
GROUPS = (
    ("memory.current", "memory.max", "memory.stat", "inactive_file"),
    ("memory/memory.usage_in_bytes", "memory/memory.limit_in_bytes", "memory/memory.stat", "total_inactive_file"),
)
"""What a control group uses and may use, in its second and its first version; and what of it is only files kept from
the storage, which are dropped before anything is killed (the kubelet subtracts the same)."""
UNLIMITED = 1 << 60
"""Control groups of the first version say a limit as large for none."""


class Rank(NamedTuple):
    """One rank with its processes."""

    memory_bytes: int
    cpu_seconds: float
    """Since it began, with children that have ended and were waited for."""
    open_files: int
    """Of the process that has most, since the limit is one of each."""
    open_files_limit: Optional[int]
    processes: int


class _Process(NamedTuple):
    parent: int
    ticks: int
    pages: int


def ranks(pids: Mapping[int, int]) -> Dict[int, Rank]:
    """What each rank uses whose first process is given; a rank that is gone is left out."""
    processes = {int(name): one for name in listed("proc") if name.isdigit() and (one := _process(name)) is not None}
    children: Dict[int, List[int]] = {}
    for pid, one in processes.items():
        children.setdefault(one.parent, []).append(pid)
    return {number: _rank(pid, processes, children) for number, pid in pids.items() if pid in processes}


def _rank(first: int, processes: Mapping[int, _Process], children: Mapping[int, List[int]]) -> Rank:
    family: List[int] = []
    left = [first]
    while left and len(family) < MOST_PROCESSES:
        family.append(left.pop())
        left.extend(children.get(family[-1], ()))
    files = {pid: len(listed(f"proc/{pid}/fd")) for pid in family}
    fullest = max(family, key=lambda pid: files[pid])
    return Rank(
        memory_bytes=sum(processes[pid].pages for pid in family) * PAGE_BYTES,
        cpu_seconds=sum(processes[pid].ticks for pid in family) / TICKS,
        open_files=files[fullest],
        open_files_limit=_files_limit(read(f"proc/{fullest}/limits") or ""),
        processes=len(family),
    )


def _process(name: str) -> Optional[_Process]:
    """Of `/proc/<pid>/stat`; its second word is a name that may have spaces and brackets in it."""
    words = (read(f"proc/{name}/stat") or "").rpartition(")")[2].split()
    if len(words) < 22:
        return None
    return _Process(int(words[1]), sum(int(word) for word in words[11:15]), max(0, int(words[21])))


def told(now: Mapping[int, Rank], before: Mapping[int, Rank], seconds: float) -> Dict[str, Figures]:
    """As it travels, by the rank's number as text.

    Args:
        now: of each rank.
        before: the sample before; a rank that is not in it has no processor time yet.
        seconds: between the two.
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


def pod(shared: str = SHARED) -> Figures:
    """Memory and /dev/shm of the pod, with their limits.

    Args:
        shared: where memory that processes share is.
    """
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
    """What is nearly used up, by its name, in words.

    Args:
        figures: of the pod, with `ranks`.
    """
    found: Dict[str, str] = {}
    for name, what in (("memory", "the pod's memory"), ("shared_memory", SHARED)):
        used, limit = figures.get(f"{name}_bytes"), figures.get(f"{name}_limit_bytes")
        if used is not None and limit and used >= CLOSE * limit:
            found[name] = f"{what} is nearly used up: {used / 2**30:.2f} of {limit / 2**30:.2f} GiB"
    for number, one in figures.get("ranks", {}).items():
        used, limit = one.get("open_files"), one.get("open_files_limit")
        if used is not None and limit and used >= CLOSE * limit:
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


class Library:
    """The library, started.

    Args:
        functions: of the loaded library; each answers 0 where it succeeded.
    """

    def __init__(self, functions: Any) -> None:
        self._functions = functions

    def gpus(self) -> Dict[str, Dict[str, Any]]:
        """Of each GPU, by its number: what it tells; what it refuses is absent."""
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
        told: Dict[str, Any] = {}
        memory, load = _Memory(), _Utilization()
        number, errors = ctypes.c_uint(0), ctypes.c_ulonglong(0)
        if self._did("nvmlDeviceGetMemoryInfo", gpu, ctypes.byref(memory)):
            told.update(memory_bytes=memory.used, memory_limit_bytes=memory.total)
        if self._did("nvmlDeviceGetUtilizationRates", gpu, ctypes.byref(load)):
            told["busy_percent"] = load.gpu
        if self._did("nvmlDeviceGetTemperature", gpu, ctypes.c_uint(TEMPERATURE_GPU), ctypes.byref(number)):
            told["temperature_celsius"] = number.value
        if self._did("nvmlDeviceGetPowerUsage", gpu, ctypes.byref(number)):
            told["power_watts"] = number.value * MILLIWATT
        kinds = (ctypes.c_uint(UNCORRECTED), ctypes.c_uint(SINCE_BOOT))
        if self._did("nvmlDeviceGetTotalEccErrors", gpu, *kinds, ctypes.byref(errors)):
            told["uncorrected_errors"] = errors.value
        return told

    def _did(self, name: str, *arguments: Any) -> bool:
        function = getattr(self._functions, name, None)
        return function is not None and bool(function(*arguments) == SUCCESS)


def opened(path: str = LIBRARY) -> Optional[Library]:
    """The library; None: there is none here, or it does not start (no driver)."""
    with contextlib.suppress(OSError, AttributeError):
        functions = ctypes.CDLL(path)
        if functions.nvmlInit_v2() == SUCCESS:
            return Library(functions)
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
