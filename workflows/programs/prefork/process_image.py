"""The initial state of a parked process, obstacles to forking it, and what `/proc` shows of a fork.

People, `ps` and tools that look for a rank by its `RANK` read its command line and environment in `/proc`, where a fork
would still show those of the parked process.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import struct
import sys
import threading
import warnings
from dataclasses import dataclass
from typing import Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

NICE = 5
"""Below the ranks that train beside it, while it imports."""
DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/infiniband/", "/dev/accel")

PR_SET_MM = 35
PR_SET_MM_MAP = 14
_NO_FILE = 0xFFFFFFFF
_FIELDS = (26, 27, 45, 46, 47)
"""Of `/proc/self/stat`: start and end of the code, start and end of the data, start of the heap."""
_START_OF_STACK = 28
_kept: List[mmap.mmap] = []
"""The kernel reads from there as long as the process lives."""


@dataclass(frozen=True)
class InitialState:
    """Everything that a preloaded module might change and a fork would inherit."""

    environment: Mapping[str, str]
    umask: int
    limits: Mapping[int, Tuple[int, int]]
    descriptors: FrozenSet[int]
    """Open at the start, standard streams included: a plain start inherits them too."""


def capture_state(ours: Iterable[int]) -> InitialState:
    """The present state of this process, without the descriptors in `ours`."""
    umask = os.umask(0o077)
    os.umask(umask)
    limits: Dict[int, Tuple[int, int]] = {}
    for name in dir(resource):
        if name.startswith("RLIMIT_"):
            number: int = getattr(resource, name)
            limits[number] = resource.getrlimit(number)
    return InitialState(dict(os.environ), umask, limits, frozenset(descriptors()) - frozenset(ours))


def restore_state(home: InitialState) -> None:
    """Mask and limits as they were at the start.

    Raises:
        OSError, ValueError: a limit was lowered for good.
    """
    os.umask(home.umask)
    for number, limits in home.limits.items():
        if resource.getrlimit(number) != limits:
            resource.setrlimit(number, limits)


def imported_changes(home: InitialState) -> Dict[str, Optional[str]]:
    """Variables that preloaded modules set (or, None, removed): they would have done so in a plain start as well."""
    now = dict(os.environ)
    changed: Dict[str, Optional[str]] = {name: text for name, text in now.items() if home.environment.get(name) != text}
    changed.update({name: None for name in home.environment if name not in now})
    return changed


def fork_obstacle(home: InitialState, ours: Iterable[int]) -> str:
    """Why this process cannot be forked safely now; "": it can. `ours` are descriptors that the caller handles."""
    if _gpu_in_use():
        return "a GPU context is open, which no fork can share"
    tasks = len(os.listdir("/proc/self/task"))
    if threading.active_count() > 1 or tasks > 1:
        names = ", ".join(sorted(one.name for one in threading.enumerate())[:5])
        return f"{max(tasks, threading.active_count())} threads run in it ({names}): their locks could be held for ever"
    if _has_children():
        return "a preloaded module has started another process"
    added = [fd for fd in descriptors() if fd not in home.descriptors and fd not in frozenset(ours)]
    if added:
        return f"preloaded modules left open: {', '.join(_where(fd) for fd in added[:3])}"
    return ""


def retire_library_threads() -> None:
    """Let libraries that handle forks (OpenBLAS) end their threads now: they start them anew when they need them.

    They do so before any fork; a first one that comes to nothing leaves only the threads that would be shared.
    """
    if len(os.listdir("/proc/self/task")) == 1:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of the threads that this ends
        child = os.fork()
        if child == 0:
            os._exit(0)
    os.waitpid(child, 0)


def can_be_raised() -> bool:
    """Whether a process here may lower its priority and get it back: tried out in a child."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            was = os.getpriority(os.PRIO_PROCESS, 0)
            os.setpriority(os.PRIO_PROCESS, 0, was + NICE)
            os.setpriority(os.PRIO_PROCESS, 0, was)
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def descriptors() -> List[int]:
    """Open descriptors of this process."""
    found: List[int] = []
    for name in os.listdir("/proc/self/fd"):
        try:
            os.fstat(int(name))
        except OSError:  # the listing's own
            continue
        found.append(int(name))
    return sorted(found)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _where(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return f"descriptor {fd}"


def _gpu_in_use() -> bool:
    """A context in torch (CUDA or HIP), or a device that any library holds open."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    asked = getattr(cuda, "is_initialized", None)
    if asked is not None and asked():
        return True
    return any(_where(fd).startswith(DEVICES) for fd in descriptors())


def rewrite_proc_files(argv: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Make `/proc` show this command line and environment; False where the kernel does not allow that."""
    words = b"".join(os.fsencode(word) + b"\0" for word in argv)
    pairs = b"".join(os.fsencode(f"{name}={text}") + b"\0" for name, text in environment.items())
    # Private: the kernel reads arguments from no other kind of memory.
    area = mmap.mmap(-1, len(words) + len(pairs) + 1, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.write(words + pairs)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(area))
    library = ctypes.CDLL(None)
    library.sbrk.restype = ctypes.c_void_p
    library.sbrk.argtypes = [ctypes.c_long]
    with open("/proc/self/stat", "rb") as file:
        stat = file.read().rpartition(b")")[2].split()
    places = [*(int(stat[number - 3]) for number in _FIELDS), int(library.sbrk(0) or 0), int(stat[_START_OF_STACK - 3])]
    ends = [begin, begin + len(words), begin + len(words), begin + len(words) + len(pairs)]
    memory_map = struct.pack("=12QII", *places, *ends, 0, 0, _NO_FILE)  # as struct prctl_mm_map of linux/prctl.h
    if library.prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.c_char_p(memory_map), ctypes.c_ulong(len(memory_map)), 0) != 0:
        return False
    _kept.append(area)
    return True
