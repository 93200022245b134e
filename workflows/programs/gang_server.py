"""The half of a tool that waits on the other node of a pair: started, ready, ended, whatever becomes of it.

Tools' servers let in whoever comes, so one stands only as long as its one client needs it, on a port of its own.
Standard library only, Python 3.9. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from typing import List, Optional, Set

READY_SECONDS = 5.0
"""A server that lives and still shows no listening socket by then is taken for ready: it may wait by other means."""
LOOK_SECONDS = 0.005
GRACE_SECONDS = 2.0
LAST_CHARACTERS = 200
LISTENING = "0A"
"""State of a TCP socket in /proc/net/tcp."""


class Server:
    """One process, with whatever it starts."""

    def __init__(self) -> None:
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`

    def start(self, argv: List[str], until: float) -> str:
        """Start it and wait until it listens.

        Args:
            argv: program and words.
            until: by the monotonic clock.

        Returns:
            Why it does not serve; "" where it does.
        """
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return f"{argv[0]} cannot be started: {error.strerror or error}"
        patience = min(until, time.monotonic() + READY_SECONDS)
        while time.monotonic() < patience:
            if self._process.poll() is not None:
                return f"{argv[0]} ended with {self._process.returncode} before its client came{self._last()}"
            if listens(self._process.pid):
                break
            time.sleep(LOOK_SECONDS)
        return ""

    def end(self) -> str:
        """End it with everything it started; its last words, "" where it had none. Never raises."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_SECONDS)
        said = self._last()
        self._output.close()
        return said

    def _last(self) -> str:
        if self._output.closed:
            return ""
        with contextlib.suppress(OSError, ValueError):
            size = self._output.seek(0, os.SEEK_END)
            self._output.seek(max(0, size - 4 * LAST_CHARACTERS))
            said = " ".join(self._output.read().decode("utf-8", "replace").split())
            return f"; it said: {said[-LAST_CHARACTERS:]}" if said else ""
        return ""


def listens(group: int, proc: str = "/proc") -> bool:
    """Whether any process of this process group has a listening TCP socket."""
    waiting = _listening(proc)
    return bool(waiting) and any(_sockets(os.path.join(proc, pid)) & waiting for pid in _members(group, proc))


def _listening(proc: str) -> Set[str]:
    """Inodes of sockets that listen in our network namespace."""
    found: Set[str] = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(os.path.join(proc, "self", "net", name), encoding="ascii") as file:
            for line in file:
                cells = line.split()
                if len(cells) > 9 and cells[3] == LISTENING:
                    found.add(f"socket:[{cells[9]}]")
    return found


def _members(group: int, proc: str) -> List[str]:
    found: List[str] = []
    for pid in os.listdir(proc):
        with contextlib.suppress(OSError, ValueError):
            if os.getpgid(int(pid)) == group:
                found.append(pid)
    return found


def _sockets(process: str) -> Set[str]:
    found: Set[str] = set()
    with contextlib.suppress(OSError):
        folder = os.path.join(process, "fd")
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                found.add(os.readlink(os.path.join(folder, name)))
    return found
