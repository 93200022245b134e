"""What the ranks of a pod use: memory, processor time, open files, /dev/shm. Read from /proc, which never waits.

A rank is counted with all that it started (data loaders). Shared pages count in each process that maps them, so the
memory of a rank is an upper bound; what the kernel kills by is the pod's own figure, of its control group.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from workflows.programs.probe_node import listed, read

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
