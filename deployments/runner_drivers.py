"""Drivers of a runner: forked from a process that has imported everything, and told to let go when the runner ends.

Forking costs milliseconds and shares the memory; importing costs seconds of a core for each driver. The process that
forks has no threads and no connections, so it is made before the runner has any.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import suppress
from typing import NoReturn

from deployments.flow_run import LET_GO, drive_flow_run
from deployments.forked import end_with
from profiles.errors import Permanent
from tasks.identity import process_start

LONGEST_REQUEST_BYTES = 256
"""An id has 36 characters."""
END_SECONDS = 8.0
"""For all drivers to let go; less than the grace period of the pod."""
LOOK_SECONDS = 0.05


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

    def start(self, flow_run: str) -> int:
        """Fork a driver for a flow run; its pid.

        Raises:
            Permanent: the process that forks is gone; so should this one be.
        """
        try:
            self._door.send(flow_run.encode())
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
        return frozenset(self._living)

    def let_go(self) -> bool:
        """Every driver gives its lease back and ends, training goes on; False where one had to be killed."""
        self.working()
        self._send(LET_GO)
        deadline = time.monotonic() + END_SECONDS
        while self.working():
            if time.monotonic() > deadline:
                self._send(signal.SIGKILL)
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def close(self) -> None:
        """End the process that forks; drivers live on."""
        self._door.close()
        os.waitpid(self._forker, 0)

    def _send(self, number: signal.Signals) -> None:
        for pid, _ in self._living.values():
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
            _become_driver(asked.decode())
        door.send(str(pid).encode())
    os._exit(0)


def _become_driver(flow_run: str) -> NoReturn:
    def drive() -> int:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return drive_flow_run(flow_run)

    end_with(drive)
