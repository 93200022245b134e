"""A launcher's part for tests of warm starts: the same command started plainly and forked, and what came of each."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.support.running.waiting import patience
from workflows.programs.prefork import parent
from workflows.programs.prefork.protocol import parse_command
from workflows.programs.runtime import processes

DEADLINE_SECONDS = patience(60.0)
"""Generous: only a test that fails waits so long."""


@dataclass(frozen=True)
class Ended:
    """What a process printed, and how it ended."""

    out: str
    err: str
    status: str


class Yard:
    """A launcher with one parked process.

    Args:
        folder: where programs start.
        command: the program.
        preload: modules to import.
        environment: beside the test's own.
        terminal: ranks write to pseudo terminals.
    """

    def __init__(
        self,
        folder: Path,
        command: Sequence[str],
        preload: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        terminal: bool = False,
    ) -> None:
        self.folder, self.command, self.terminal = folder, tuple(command), terminal
        self.environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        program = parse_command(self.command)
        assert program is not None
        self.parked = parent.ParkedProcess(program, preload, self.environment, str(folder), terminal)
        self.said: list[str] = []

    def __enter__(self) -> Yard:
        assert processes.become_subreaper()
        self.parked.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.parked.close()
        if self.parked.pid:
            os.waitpid(self.parked.pid, 0)
        ctypes.CDLL(None).prctl(processes.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)

    def listen(self) -> list[str]:
        """Wait until it is ready or never will be; what it said."""
        while not self.parked.ready and self.parked.fileno() >= 0:
            self.said += self.next_words()
        return self.said

    def next_words(self) -> list[str]:
        """Wait until it says something, its end included."""
        assert select.select([self.parked], [], [], DEADLINE_SECONDS)[0], "it says nothing"
        return self.parked.read()

    def start_of(self, rank: int = 0, *arguments: str, **environment: str) -> processes.Start:
        """A rank's start."""
        named = {"RANK": str(rank), "LOCAL_RANK": str(rank), **environment}
        argv = (*self.command, *arguments)
        return processes.Start(rank, rank, argv, {**self.environment, **named}, str(self.folder), self.terminal)

    def forked(self, start: processes.Start) -> processes.RankProcess:
        """A warm start: as long as a busy machine needs."""
        return self.parked.fork(start, DEADLINE_SECONDS)

    def both(self, rank: int = 0, *arguments: str, **environment: str) -> tuple[Ended, Ended]:
        """The same start plainly and warm, one after the other."""
        start = self.start_of(rank, *arguments, **environment)
        self.listen()
        return end_of(processes.start(start)), end_of(self.forked(start))


def end_of(process: processes.RankProcess) -> Ended:
    """Read it to its end and reap it."""
    texts = {process.stdout: b"", process.stderr: b""}
    deadline = time.monotonic() + DEADLINE_SECONDS
    open_ones = set(texts)
    while open_ones:
        assert time.monotonic() < deadline, texts
        for fd in select.select(list(open_ones), [], [], 1.0)[0]:
            data = b""
            with contextlib.suppress(OSError):  # the end of a pseudo terminal
                data = os.read(fd, 65536)
            texts[fd] += data
            if not data:
                open_ones.discard(fd)
                os.close(fd)
    status = os.waitpid(process.pid, 0)[1]
    out, err = (texts[fd].decode() for fd in (process.stdout, process.stderr))
    return Ended(out, err, processes.describe_status(status))


def kill(process: processes.RankProcess) -> None:
    """End it and drop its streams."""
    os.kill(process.pid, signal.SIGKILL)
    end_of(process)


def python(*words: str) -> tuple[str, ...]:
    """A command of this Python."""
    return (sys.executable, *words)
