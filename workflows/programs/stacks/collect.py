"""Stacks of ranks while they run, or hang: bounded in time and size, whatever state the ranks are in.

A launcher calls `gather` in a thread of its own when the coordinator orders `stacks`, and posts the dump as JSON
(`values`). The first source that answers wins:

1. **py-spy**, where it is on the PATH and has the right to trace: any Python program, without preparation.
2. **faulthandler**, in any Python that started with the `PYTHONPATH` of a rank (`python_start`), and in ranks that
   were forked from the parked process: a signal makes the interpreter write all its stacks into a file in memory that
   we read through /proc. It needs no right, and works while the interpreter's lock is held; it is only sent where a
   handler is installed, since it would kill otherwise.
3. **the kernel**: state, system call, kernel functions and files of each thread, of any process; nothing else can be
   had of one that is stopped or in uninterruptible sleep, and those are sent no signals. Only files are read that do
   not need the process's own memory map: `cmdline`, `environ`, `maps` and `exe` can block the reader as long as the
   process itself is blocked, which is when we look.

A source that does not answer in time is abandoned: its thread is a daemon, and nothing waits for it. `gather` starts
py-spy as children of the launcher, which must not take them for ranks when it reaps.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, cast

from workflows.programs.runtime import processes
from workflows.programs.stacks.python_start.stack_signal import MEMORY_FILE, SIGNAL
from workflows.programs.stacks.values import MAIN, STATES, STOPPED, UNINTERRUPTIBLE, Dump, Frame, ProcessStacks, Thread

_HEAD = re.compile(r"^(?:Current thread|Thread) 0x(?P<id>[0-9a-fA-F]+)(?: \[(?P<name>[^\]]*)\])? \(most recent call")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.+)$')
_KERNEL = re.compile(r"^\[<[0-9a-fx]*>\] (?P<function>[^+\s]+)")
KEPT_KERNEL_FRAMES = 12


def parse_py_spy(text: str) -> List[Thread]:
    """Threads of one process from `py-spy dump --json`; none where it is something else."""
    try:
        data: Any = json.loads(text)
    except ValueError:
        return []
    rows = cast("List[Any]", data) if isinstance(data, list) else []
    found = [_py_spy_thread(cast("Dict[str, Any]", row)) for row in rows if isinstance(row, dict)]
    return [thread for thread in found if thread is not None]


def _py_spy_thread(row: Dict[str, Any]) -> Optional[Thread]:
    try:
        frames = [Frame(str(one["name"]), str(one["filename"]), int(one["line"] or 0)) for one in row["frames"]]
        number = int(row.get("os_thread_id") or row["thread_id"])
    except (KeyError, TypeError, ValueError):
        return None
    return Thread(number, str(row.get("thread_name") or ""), "running" if row.get("active") else "sleeping", frames)


def parse_faulthandler(text: str) -> List[Thread]:
    """Threads from a dump of all threads; the interpreter lists its first one last."""
    heads: List[Tuple[int, str, List[Frame]]] = []
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head is not None:
            heads.append((int(head["id"], 16), head["name"] or "", []))
            continue
        frame = _FRAME.match(line)
        if frame is not None and heads:
            number = 0 if frame["line"] == "???" else int(frame["line"])
            heads[-1][2].append(Frame(frame["function"], frame["file"], number))
    found = [Thread(number, name, "", frames) for number, name, frames in heads]
    if found:
        found[-1] = Thread(found[-1].id, MAIN, "", found[-1].frames)
    return found[::-1]


def parse_kernel_stack(text: str) -> List[str]:
    """Functions in `/proc/<pid>/stack`, without the entry that all share."""
    hits = (_KERNEL.match(line) for line in text.splitlines())
    names = [hit["function"] for hit in hits if hit is not None]
    return [name for name in names if not name.startswith(("entry_SYSCALL", "do_syscall", "el0"))][:KEPT_KERNEL_FRAMES]


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


def read_process(rank: int, pid: int, top: bool) -> Optional[ProcessStacks]:
    """State of a process and its threads from the kernel; None: it is gone."""
    state = state_of(pid)
    if state is None:
        return None
    numbers = sorted(_numbers(f"/proc/{pid}/task"))
    threads = [_thread(pid, number) for number in numbers[:THREADS]]
    return ProcessStacks(rank, pid, _small(f"/proc/{pid}/comm").strip(), top, state, "kernel", "", threads, _files(pid))


def state_of(pid: int) -> Optional[str]:
    """State of a process in words; None: there is none."""
    words = _small(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return STATES.get(words[0], words[0]) if words else None


def has_handler(pid: int, signal_number: int) -> bool:
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
    return Thread(number, name, state, [], _waits(pid, folder), parse_kernel_stack(_small(f"{folder}/stack")))


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


LIMIT_SECONDS = 3.0
PROCESSES = 64
"""Below one rank: data loaders of a large host."""
SPIES = 8
"""Processes of one rank that py-spy looks at: it takes a tenth of a second of a processor for each."""
SPY_SHARE = 1 / 3
ANSWER_SECONDS = 0.25
"""faulthandler answers in a millisecond where a processor is free."""
SETTLED_SECONDS = 0.02
"""It writes line by line and says no end."""
FILE_BYTES = 1 << 20
KILLED_SECONDS = 0.05
_POLL_SECONDS = 0.002


@dataclass(frozen=True)
class CollectOptions:
    """Sources and time limit."""

    seconds: float = LIMIT_SECONDS
    """For all ranks together."""
    py_spy: str = ""
    """Its path; "": there is none."""


def local_options(seconds: float = LIMIT_SECONDS) -> CollectOptions:
    """The options on this machine."""
    return CollectOptions(seconds, shutil.which("py-spy") or "")


def gather(pids: Mapping[int, int], node: str, look: CollectOptions, now: Callable[[], float] = time.time) -> Dump:
    """Stacks of these ranks, given by process id, and of all processes below them.

    `node` is named in the dump; `look` says how and how long; `now` is the clock, in Unix seconds.
    """
    began, start = now(), time.monotonic()
    deadline = start + look.seconds
    found: Dict[Tuple[int, int], ProcessStacks] = {}
    workers = [_Worker(rank, pid, look, deadline, found) for rank, pid in sorted(pids.items())]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
    seen = dict(found)  # late workers go on writing
    for rank, pid in pids.items():
        seen.setdefault((rank, pid), ProcessStacks(rank, pid, why=f"no answer within {look.seconds:g} s"))
    ordered = [seen[key] for key in sorted(seen, key=lambda key: (key[0], not seen[key].top, key[1]))]
    return Dump(node, began, round(time.monotonic() - start, 3), ordered, sum(worker.left_out for worker in workers))


class _Worker(threading.Thread):
    """Looks at one rank: first all that the kernel says of its processes, then each one's own stacks."""

    def __init__(
        self, rank: int, pid: int, look: CollectOptions, deadline: float, found: Dict[Tuple[int, int], ProcessStacks]
    ) -> None:
        super().__init__(daemon=True, name=f"stacks-{rank}")
        self._rank, self._pid, self._look, self._deadline, self._found = rank, pid, look, deadline, found
        self.left_out = 0

    def run(self) -> None:
        below = processes.descendants(self._pid)
        self.left_out = max(0, len(below) - PROCESSES)
        pids = [self._pid, *below[:PROCESSES]]
        # Of the time that is left, for all of them together: what py-spy cannot see is still asked for.
        spied_until = time.monotonic() + (self._deadline - time.monotonic()) * SPY_SHARE
        spies = {pid: child for pid in pids[:SPIES] if (child := self._spy(pid)) is not None}
        for pid in pids:
            seen = read_process(self._rank, pid, top=pid == self._pid)
            if seen is not None:
                self._found[self._rank, pid] = seen
        for pid in pids:
            seen = self._found.get((self._rank, pid))
            if seen is not None:
                self._found[self._rank, pid] = self._closer(seen, spies.get(pid), spied_until)
        for child in spies.values():
            _end(child)

    def _closer(self, seen: ProcessStacks, spy: "subprocess.Popen[str] | None", spied_until: float) -> ProcessStacks:
        if spy is not None:
            threads, why = _answer(spy, spied_until - time.monotonic())
            if threads:
                return replace(seen, how="py-spy", threads=_merge(threads, seen.threads))
        else:
            why = "no py-spy here" if not self._look.py_spy else "py-spy did not start"
        if seen.state in (STOPPED, UNINTERRUPTIBLE):
            return replace(seen, why=f"{why}; a process that is {seen.state} answers no signal")
        threads = ask_faulthandler(seen.pid, min(ANSWER_SECONDS, self._deadline - time.monotonic()))
        if threads:
            return replace(seen, how="faulthandler", threads=_merge(threads, seen.threads))
        return replace(seen, why=f"{why}; no answer of a faulthandler")

    def _spy(self, pid: int) -> "subprocess.Popen[str] | None":
        if not self._look.py_spy:
            return None
        # Without pausing the process: one that cannot be paused would hold py-spy for ever.
        argv = [self._look.py_spy, "dump", "--nonblocking", "--json", "--pid", str(pid)]
        try:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    encoding="utf-8", errors="replace")  # fmt: skip
        except OSError:
            return None


def ask_faulthandler(pid: int, seconds: float) -> List[Thread]:
    """Stacks from the faulthandler of a process; none where it has no handler or takes longer than `seconds`."""
    path = descriptor(pid, f"/memfd:{MEMORY_FILE}") if has_handler(pid, SIGNAL) else ""
    if not path:
        return []
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        os.ftruncate(file, 0)
        os.kill(pid, SIGNAL)
        return parse_faulthandler(_read_when_settled(file, seconds))
    except OSError:
        return []
    finally:
        os.close(file)


def _read_when_settled(file: int, seconds: float) -> str:
    """Content of the file once it stops growing."""
    now = time.monotonic()
    end, settled, size = now + seconds, now, 0
    while now < end and (size == 0 or now < settled + SETTLED_SECONDS):
        time.sleep(_POLL_SECONDS)
        now, grown = time.monotonic(), os.fstat(file).st_size
        if grown != size:
            size, settled = grown, now
    return os.pread(file, FILE_BYTES, 0).decode(errors="replace")


def _answer(spy: "subprocess.Popen[str]", seconds: float) -> Tuple[List[Thread], str]:
    try:
        out, errors = spy.communicate(timeout=max(0.01, seconds))
    except (subprocess.TimeoutExpired, OSError, ValueError):
        return [], "py-spy did not answer in time"
    said = [line for line in errors.splitlines() if line.strip()]
    return parse_py_spy(out), f"py-spy: {said[0].strip()}" if said else "py-spy saw no Python"


def _end(spy: "subprocess.Popen[str]") -> None:
    """Kill it where it still runs; it is hardly waited for, since it may be stuck as its process is."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        if spy.poll() is None:
            spy.kill()
            spy.wait(KILLED_SECONDS)
    for stream in (spy.stdout, spy.stderr):
        if stream is not None:
            stream.close()


def _merge(stacks: List[Thread], kernel: List[Thread]) -> List[Thread]:
    """Stacks with the kernel's state of the same threads; threads without a stack (of libraries) are left out."""
    by_id = {thread.id: thread for thread in kernel}
    first = kernel[0] if kernel else None
    found: List[Thread] = []
    for one in stacks:
        same = by_id.get(one.id, first if one.name == "MainThread" else None)
        found.append(one if same is None else replace(one, state=same.state, waits=same.waits, kernel=same.kernel))
    return found
