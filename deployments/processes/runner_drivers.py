"""The drivers of a flow runner: forked from a process that has imported everything, and told to let go when it ends.

A driver of a training run releases its lease and the next runner drives the run; a process that runs another flow may
finish. Forking costs milliseconds and shares the memory, importing costs seconds of a core for each driver. The process
that forks has no threads and no connections, so it is made before the runner has any.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import NoReturn

from deployments.processes.flow_run import LET_GO, drive_flow_run, run_plain
from deployments.processes.prefork import end_with
from profiles.errors import Permanent
from tasks.processes import process_start

LONGEST_REQUEST_BYTES = 256
"""An id has 36 characters, a module path fewer than a hundred."""
END_SECONDS = 8.0
"""For all drivers to let go; less than the grace period of the pod."""
REQUEST_LOOK_SECONDS = 0.05


class Drivers:
    """Living drivers by the flow runs they work for. Make it before any thread is started."""

    def __init__(self) -> None:
        self._door, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._forker = os.fork()
        if self._forker == 0:
            self._door.close()
            _fork_on_request(inside)
        inside.close()
        self._living: dict[str, tuple[int, float]] = {}
        self._plain: set[str] = set()

    def start(self, flow_run: str, entrypoint: str = "") -> int:
        """Fork a process for a flow run; its pid.

        Args:
            flow_run: its id.
            entrypoint: module path of its flow; "": it is a training run.

        Raises:
            Permanent: the process that forks is gone; so should this one be.
        """
        if entrypoint:
            self._plain.add(flow_run)
        try:
            self._door.send(f"{flow_run} {entrypoint}".encode())
            answer = self._door.recv(LONGEST_REQUEST_BYTES)
        except OSError as error:
            raise Permanent(f"the process that forks drivers is gone: {error}") from error
        if not answer:
            raise Permanent("the process that forks drivers is gone")
        pid = int(answer)
        self._living[flow_run] = (pid, process_start(pid) or 0.0)
        return pid

    def working(self) -> frozenset[str]:
        """Flow runs whose drivers live."""
        self._living = {one: (pid, began) for one, (pid, began) in self._living.items() if process_start(pid) == began}
        self._plain &= self._living.keys()
        return frozenset(self._living)

    def working_plain(self) -> frozenset[str]:
        """Those of them that train nothing."""
        return self.working() & self._plain

    def end(self, flow_run: str) -> None:
        """End one that trains nothing: a person cancelled it."""
        if flow_run in self.working_plain():
            self._send(signal.SIGTERM, {flow_run})

    def let_go(self) -> bool:
        """Every driver gives its lease back and ends, training goes on; False where one had to be killed.

        What trains nothing may finish; what does not finish in time is killed, and the next runner begins it again.
        """
        self._send(LET_GO, self.working() - self._plain)
        deadline = time.monotonic() + END_SECONDS
        while self.working():
            if time.monotonic() > deadline:
                left = self.working()
                self._send(signal.SIGKILL, left)
                return left <= self._plain
            time.sleep(REQUEST_LOOK_SECONDS)
        return True

    def close(self) -> None:
        """End the process that forks; drivers live on."""
        self._door.close()
        os.waitpid(self._forker, 0)

    def _send(self, number: signal.Signals, flow_runs: AbstractSet[str]) -> None:
        for pid, _ in [self._living[one] for one in flow_runs]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def _fork_on_request(door: socket.socket) -> NoReturn:
    """Until the runner is gone."""
    # A session of its own: Ctrl-C in a terminal is the runner's to handle. The kernel reaps the drivers.
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while asked := door.recv(LONGEST_REQUEST_BYTES):
        pid = os.fork()
        if pid == 0:
            door.close()
            _become_flow_run_driver(*asked.decode().split(" "))
        door.send(str(pid).encode())
    os._exit(0)


def _become_flow_run_driver(flow_run: str, entrypoint: str) -> NoReturn:
    def drive() -> int:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return run_plain(flow_run, entrypoint) if entrypoint else drive_flow_run(flow_run)

    end_with(drive)
