"""Stacks of ranks while they run, or hang: bounded in time and size, whatever state the ranks are in.

A launcher calls `gather` in a thread of its own when the coordinator orders `stacks`, and posts what `stack_wire` makes
of it. In this order, whatever answers first wins:

1. **py-spy**, where it is on the PATH and may look (the right to trace): any Python program, nothing prepared.
2. **faulthandler**, in any Python that started with the `PYTHONPATH` of a rank (`python_start`), and in ranks that
   were forked from the parked process: the signal makes the interpreter write all its stacks into a file in memory that
   we read through /proc. It needs no right, and works while the interpreter's lock is held; it is only sent where a
   handler stands, since it would kill otherwise.
3. **the kernel**: state, system call, kernel functions and files of each thread, of any process; nothing else can be
   had of one that is stopped or in uninterruptible sleep, and those are sent no signals.

What does not answer in time is left to itself: the thread that waits for it is a daemon, and nothing waits for that.
`gather` starts py-spy as children of the launcher: whoever reaps all children must not take them for ranks.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass, replace
from typing import Callable, Dict, List, Mapping, Tuple

from workflows.programs import ranks, stack_kernel
from workflows.programs.python_start.stack_signal import MEMORY_FILE, SIGNAL
from workflows.programs.stack_readers import faulthandler, py_spy
from workflows.programs.stack_values import STOPPED, UNINTERRUPTIBLE, Dump, Process, Thread

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
class Look:
    """How to look."""

    seconds: float = LIMIT_SECONDS
    """For all ranks together."""
    py_spy: str = ""
    """Its path; "": there is none."""


def here(seconds: float = LIMIT_SECONDS) -> Look:
    """How to look on this machine."""
    return Look(seconds, shutil.which("py-spy") or "")


def gather(pids: Mapping[int, int], node: str, look: Look, now: Callable[[], float] = time.time) -> Dump:
    """Stacks of these ranks and of all that runs below them.

    Args:
        pids: process of each rank.
        node: stands in the dump.
        look: how, and how long at most.
        now: Unix time.
    """
    began, start = now(), time.monotonic()
    deadline = start + look.seconds
    found: Dict[Tuple[int, int], Process] = {}
    workers = [_Worker(rank, pid, look, deadline, found) for rank, pid in sorted(pids.items())]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
    seen = dict(found)  # late workers go on writing
    for rank, pid in pids.items():
        seen.setdefault((rank, pid), Process(rank, pid, why=f"no answer within {look.seconds:g} s"))
    ordered = [seen[key] for key in sorted(seen, key=lambda key: (key[0], not seen[key].top, key[1]))]
    return Dump(node, began, round(time.monotonic() - start, 3), ordered, sum(worker.left_out for worker in workers))


class _Worker(threading.Thread):
    """Looks at one rank: first all that the kernel says of its processes, then each one's own stacks."""

    def __init__(self, rank: int, pid: int, look: Look, deadline: float, found: Dict[Tuple[int, int], Process]) -> None:
        super().__init__(daemon=True, name=f"stacks-{rank}")
        self._rank, self._pid, self._look, self._deadline, self._found = rank, pid, look, deadline, found
        self.left_out = 0

    def run(self) -> None:
        below = ranks.descendants(self._pid)
        self.left_out = max(0, len(below) - PROCESSES)
        pids = [self._pid, *below[:PROCESSES]]
        # Of the time that is left, for all of them together: what py-spy cannot see is still asked for.
        spied_until = time.monotonic() + (self._deadline - time.monotonic()) * SPY_SHARE
        spies = {pid: child for pid in pids[:SPIES] if (child := self._spy(pid)) is not None}
        for pid in pids:
            seen = stack_kernel.process(self._rank, pid, top=pid == self._pid)
            if seen is not None:
                self._found[self._rank, pid] = seen
        for pid in pids:
            seen = self._found.get((self._rank, pid))
            if seen is not None:
                self._found[self._rank, pid] = self._closer(seen, spies.get(pid), spied_until)
        for child in spies.values():
            _end(child)

    def _closer(self, seen: Process, spy: "subprocess.Popen[str] | None", spied_until: float) -> Process:
        if spy is not None:
            threads, why = _answer(spy, spied_until - time.monotonic())
            if threads:
                return replace(seen, how="py-spy", threads=_merged(threads, seen.threads))
        else:
            why = "no py-spy here" if not self._look.py_spy else "py-spy did not start"
        if seen.state in (STOPPED, UNINTERRUPTIBLE):
            return replace(seen, why=f"{why}; a process that is {seen.state} answers no signal")
        threads = ask(seen.pid, min(ANSWER_SECONDS, self._deadline - time.monotonic()))
        if threads:
            return replace(seen, how="faulthandler", threads=_merged(threads, seen.threads))
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


def ask(pid: int, seconds: float) -> List[Thread]:
    """What a process with `install` answers; nothing where it has none or takes longer."""
    path = stack_kernel.descriptor(pid, f"/memfd:{MEMORY_FILE}") if stack_kernel.catches(pid, SIGNAL) else ""
    if not path:
        return []
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        os.ftruncate(file, 0)
        os.kill(pid, SIGNAL)
        return faulthandler(_written(file, seconds))
    except OSError:
        return []
    finally:
        os.close(file)


def _written(file: int, seconds: float) -> str:
    """What is in the file once it does not grow any more."""
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
    return py_spy(out), f"py-spy: {said[0].strip()}" if said else "py-spy saw no Python"


def _end(spy: "subprocess.Popen[str]") -> None:
    """Kill it where it still runs; it is hardly waited for, since it may be stuck as its process is."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        if spy.poll() is None:
            spy.kill()
            spy.wait(KILLED_SECONDS)
    for stream in (spy.stdout, spy.stderr):
        if stream is not None:
            stream.close()


def _merged(stacks: List[Thread], kernel: List[Thread]) -> List[Thread]:
    """Stacks, with what the kernel says of the same threads; those without a stack (of libraries) are left out."""
    by_id = {thread.id: thread for thread in kernel}
    first = kernel[0] if kernel else None
    found: List[Thread] = []
    for one in stacks:
        same = by_id.get(one.id, first if one.name == "MainThread" else None)
        found.append(one if same is None else replace(one, state=same.state, waits=same.waits, kernel=same.kernel))
    return found
