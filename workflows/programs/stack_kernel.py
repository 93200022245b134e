"""What the kernel says of a process, also of one that is stopped or in uninterruptible sleep.

Only files are read that do not need the process's own memory map: `cmdline`, `environ`, `maps` and `exe` can block the
reader as long as the process itself is blocked, which is when we look.
"""

from __future__ import annotations

import os
from typing import Dict, List, Optional

from workflows.programs.stack_readers import kernel_stack
from workflows.programs.stack_values import MAIN, STATES, Process, Thread

THREADS, FILES = 64, 32
SMALL_BYTES = 16 * 1024
_X86 = {0: "read", 1: "write", 4: "stat", 7: "poll", 16: "ioctl", 23: "select", 24: "sched_yield", 34: "pause",
        35: "nanosleep", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg",
        56: "clone", 58: "vfork", 61: "wait4", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync", 202: "futex",
        230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 257: "openat", 262: "newfstatat", 270: "pselect6",
        271: "ppoll", 281: "epoll_pwait", 288: "accept4", 435: "clone3"}  # fmt: skip
_ARM = {22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 56: "openat", 63: "read", 64: "write",
        72: "pselect6", 73: "ppoll", 79: "newfstatat", 82: "fsync", 83: "fdatasync", 95: "waitid", 98: "futex",
        101: "nanosleep", 115: "clock_nanosleep", 124: "sched_yield", 202: "accept", 203: "connect", 206: "sendto",
        207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 220: "clone", 242: "accept4", 260: "wait4",
        435: "clone3"}  # fmt: skip
SYSCALLS: Dict[str, Dict[int, str]] = {"x86_64": _X86, "aarch64": _ARM}
"""Those that processes wait in, by machine and number."""
ABOUT_A_FILE = frozenset(
    ("read", "write", "ioctl", "connect", "accept", "accept4", "sendto", "recvfrom", "sendmsg", "recvmsg", "fcntl",
     "flock", "fsync", "fdatasync", "epoll_wait", "epoll_pwait")
)  # fmt: skip
"""Their first argument is a file descriptor."""


def process(rank: int, pid: int, top: bool) -> Optional[Process]:
    """What is seen of it; None: it is gone."""
    state = state_of(pid)
    if state is None:
        return None
    numbers = sorted(_numbers(f"/proc/{pid}/task"))
    threads = [_thread(pid, number) for number in numbers[:THREADS]]
    return Process(rank, pid, _small(f"/proc/{pid}/comm").strip(), top, state, "kernel", "", threads, _files(pid))


def state_of(pid: int) -> Optional[str]:
    """State of a process in words; None: there is none."""
    words = _small(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return STATES.get(words[0], words[0]) if words else None


def catches(pid: int, signal_number: int) -> bool:
    """Whether the process has a handler for the signal; without one it would kill it."""
    for line in _small(f"/proc/{pid}/status").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signal_number - 1) & 1)
    return False


def descriptor(pid: int, name: str) -> str:
    """Path through which a file that the process holds open can be opened, by the name it has there; "": none."""
    for number in _numbers(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{number}"
        if _link(path).startswith(name):
            return path
    return ""


def _thread(pid: int, number: int) -> Thread:
    folder = f"/proc/{pid}/task/{number}"
    words = _small(f"{folder}/stat").rpartition(")")[2].split()
    state = STATES.get(words[0], words[0]) if words else ""
    name = MAIN if number == pid else _small(f"{folder}/comm").strip()
    return Thread(number, name, state, [], _waits(pid, folder), kernel_stack(_small(f"{folder}/stack")))


def _waits(pid: int, folder: str) -> str:
    """As `read(5 socket:[77]) in unix_stream_read_generic`."""
    place = _small(f"{folder}/wchan").strip()
    words = _small(f"{folder}/syscall").split()
    call = ""
    if words and words[0].isdigit():
        known = SYSCALLS.get(os.uname().machine, {}).get(int(words[0]))
        call = known or f"syscall {words[0]}"
        if known in ABOUT_A_FILE and len(words) > 1:
            number = int(words[1], 16) & 0xFFFFFFFF
            call += f"({number} {_link(f'/proc/{pid}/fd/{number}') or 'closed'})"
    return " in ".join(part for part in (call, "" if place == "0" else place) if part)


def _files(pid: int) -> List[str]:
    numbers = sorted(_numbers(f"/proc/{pid}/fd"))[:FILES]
    return [f"{number} {_link(f'/proc/{pid}/fd/{number}')}" for number in numbers]


def _numbers(folder: str) -> List[int]:
    try:
        return [int(name) for name in os.listdir(folder) if name.isdigit()]
    except OSError:  # it is gone, or belongs to somebody else
        return []


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _small(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(SMALL_BYTES).decode(errors="replace")
    except OSError:
        return ""
