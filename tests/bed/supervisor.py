"""Starts again what ended by itself, as a machine's init does; it never touches what was stopped on purpose.

A component that ends again and again is waited for longer each time. What it did stands in `log/supervisor.log`.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bed import groups
from tests.bed.layout import ROOT, Folder
from tests.bed.options import NAMESPACE
from tests.bed.processes import Processes, Program

NAME = "supervisor"
GROUP = f"plane/{NAME}"
LOOK_S = 0.5
LONGEST_PAUSE_S = 15.0
STEADY_S = 60.0
"""A component that ran so long has found its feet: the next end is a first one."""


@dataclass
class Past:
    """What is known of one component."""

    restarts: int = 0
    """Without a steady time in between."""
    started_at: float = 0.0


class Supervisor:
    """Looks at all components of one bed."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._past: dict[str, Past] = {}

    def look(self, now: float) -> list[str]:
        """Start what is to be started at `now` (s, any origin); the names of what was."""
        return [name for name in self._processes.names() if name != NAME and self._start(name, now)]

    def _start(self, name: str, now: float) -> bool:
        past = self._past.setdefault(name, Past())
        if now - past.started_at < pause(past.restarts) or not self._processes.start_ended(name):
            return False
        if now - past.started_at > STEADY_S:
            past.restarts = 0
        past.restarts += 1
        past.started_at = now
        return True


def pause(restarts: int) -> float:
    """Seconds between two starts; the first one comes at once."""
    return min(LONGEST_PAUSE_S, 2.0 ** (restarts - 1)) if restarts else 0.0


def start(folder: Folder, processes: Processes) -> None:
    """The supervisor of this bed as a process of its own."""
    command = [sys.executable, "-m", "tests.bed.supervisor", str(folder.root)]
    processes.start(Program(NAME, command, NAMESPACE, GROUP, {"PYTHONPATH": str(ROOT)}))


def end(processes: Processes) -> None:
    """Kill it, before anything else is ended."""
    if NAME in processes.names():
        processes.mark_stopped([NAME])
    groups.end(GROUP)


def main(root: str) -> None:
    """Look until killed."""
    supervisor = Supervisor(Processes(Folder(Path(root))))
    while True:
        for name in supervisor.look(time.monotonic()):
            print(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {name} had ended; started again", flush=True)
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main(sys.argv[1])
