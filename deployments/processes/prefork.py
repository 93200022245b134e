"""Drivers forked from a warm process, which has imported everything once: a home's nursery, or a runner's own.

Importing Prefect, Hera and SQLAlchemy costs two to three seconds of a core for every driver; a fork costs milliseconds
and shares the memory. The process that forks has no threads and no connections.

The nursery is a convenience: where none answers, or its code or server is not the present one, a driver is started
plainly (`deployments.processes.driver`). It decides nothing, and its death disturbs no driver.

A forked child becomes like a freshly started driver (session, signals, environment), drives its run, and ends without
unwinding into the process that forked it. `drive_here` and `end_with` are what every driver does, forked or not.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from profiles.errors import Permanent
from tasks.addresses import prepare
from tasks.embedded.runtime.inherited import reset_inherited
from tasks.prefect.server import quiet_environment
from tasks.prefect.services import code_stamp
from tasks.processes import end_services, name_driver, process_start, recorded, remove, start_recorded, stop

HAND_OVER_SECONDS = 3.0
"""For each of the two; a server that answers takes a few milliseconds."""


def warm(*modules: str) -> None:
    """Import what drivers will need, and keep the pages shared that they get with a fork."""
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()


def end_with(drive: Callable[[], int]) -> NoReturn:
    """Drive in a new session and end this process with the result, without unwinding into the code that forked it.

    The exit code is what `drive` returns, 1 where it raises.
    """
    code = 1
    try:
        os.setsid()
        name_driver()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        code = drive()
    except BaseException:
        traceback.print_exc()
    finally:
        _hand_over()
        # Not sys.exit: that would unwind into the loop that forked it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _hand_over() -> None:
    """Wait until Prefect's own threads have sent the end of the flow's log and its last events."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (APILogWorker, EventsWorker):
        with suppress(Exception):  # a server that is away gets neither, and the run has ended either way
            worker.drain_all(timeout=HAND_OVER_SECONDS)


SOCKET, PID_FILE, MODULE = "nursery.sock", "nursery.json", "deployments.processes.prefork"
MAX_REQUEST_BYTES = 1 << 20
"""An environment is at most a few hundred kilobytes."""
ANSWER_SECONDS = 5.0
"""A fork takes milliseconds; a nursery that is stopped or starved is done without."""
LOOK_SECONDS = 5.0
"""How often an idle nursery looks whether its home still names it."""


def ensure_nursery(home: Path, api_url: str) -> None:
    """Start a nursery for this server and this code where none lives; returns at once, it warms up by itself."""
    wanted = f"{api_url} {code_stamp()}"
    found = recorded(home / PID_FILE)
    if found is not None and found.detail == wanted:
        return
    stop(home / PID_FILE)
    environment = {**quiet_environment(home), "PREFECT_API_URL": api_url, "PRIMUS_HOME": str(home)}
    start_recorded(home / PID_FILE, MODULE, (), home / "logs" / "nursery.log", environment, wanted)


def stop_nursery(home: Path) -> bool:
    """End the nursery of this home, not the drivers it forked; True where one lived."""
    named = stop(home / PID_FILE)
    stopped = bool(end_services(home, [MODULE])) or named
    remove(home / SOCKET)
    return stopped


def forked_driver(home: Path, api_url: str, run: str, log: Path, environment: Mapping[str, str]) -> int | None:
    """Pid of a driver of `run` forked by the nursery; None where no nursery that fits answers.

    `environment` is the driver's whole environment, `log` takes its output.
    """
    found = recorded(home / PID_FILE)
    if found is None or found.detail != f"{api_url} {code_stamp()}":
        return None
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(ANSWER_SECONDS)
            folder = os.open(home, os.O_PATH)
            try:
                # Paths of sockets are limited to 108 characters, homes are not.
                link.connect(f"/proc/self/fd/{folder}/{SOCKET}")
            finally:
                os.close(folder)
            link.sendall(json.dumps({"run": run, "log": str(log), "environment": dict(environment)}).encode())
            link.shutdown(socket.SHUT_WR)
            answer = json.loads(_received(link))
    except (OSError, ValueError):
        return None
    return int(answer["pid"]) if "pid" in answer else None


def _received(link: socket.socket) -> bytes:
    parts: list[bytes] = []
    while block := link.recv(65536):
        parts.append(block)
        if sum(map(len, parts)) > MAX_REQUEST_BYTES:
            raise ValueError("the request is too long")
    return b"".join(parts)


def _serve(home: Path) -> None:
    """Answer until the home names another nursery or none."""
    os.chdir(home)
    Path(SOCKET).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        before = os.umask(0o177)
        door.bind(SOCKET)
        os.umask(before)
        door.listen(64)
        door.settimeout(LOOK_SECONDS)
        while True:
            try:
                link, _ = door.accept()
            except TimeoutError:
                found = recorded(home / PID_FILE)
                if found is None or found.pid != os.getpid():
                    return
                continue
            with link:
                _answer(link, door)


def _answer(link: socket.socket, door: socket.socket) -> None:
    """Fork one driver and answer with its pid."""
    link.settimeout(ANSWER_SECONDS)
    try:
        _, uid, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        if uid != os.getuid():
            return
        asked: dict[str, Any] = json.loads(_received(link))
        pid = os.fork()
        if pid == 0:
            door.close()
            link.close()
            _become_driver(asked)
        link.sendall(json.dumps({"pid": pid}).encode())
    except (OSError, ValueError) as error:
        sys.stderr.write(f"a request was not answered: {error}\n")
        sys.stderr.flush()


def _become_driver(asked: Mapping[str, Any]) -> NoReturn:
    """What the forked child does."""

    def drive() -> int:
        os.chdir("/")
        log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.environ.clear()
        os.environ.update(asked["environment"])

        return drive_here(str(asked["run"]))

    end_with(drive)


def drive_here(run: str) -> int:
    """Drive the run in this process until its flow ends; the exit code."""
    from flows.train import train
    from profiles.request import TrainRequest

    asyncio.run(train(TrainRequest(name=run, profile="")))  # pyright: ignore[reportArgumentType]
    return 0


LET_GO = signal.SIGHUP
"""End without ending the training. Not SIGTERM: Prefect's engine keeps that for itself while a flow runs."""
LONGEST_REQUEST_BYTES = 256
"""An id has 36 characters, a module path fewer than a hundred."""
END_SECONDS = 8.0
"""For all drivers to let go; less than the grace period of the pod."""
REQUEST_LOOK_SECONDS = 0.05


class Drivers:
    """A runner's living drivers, by the flow runs they work for. Make it before any thread is started.

    A driver of a training run lets go when the runner ends, and the next runner drives it; whatever runs another flow
    may finish meanwhile.
    """

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

        `entrypoint` is the module path of its flow; "": it is a training run.

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

    def let_go_of(self, flow_run: str) -> None:
        """One driver gives its lease back and ends, training goes on."""
        if flow_run in self.working() - self._plain:
            self._send(LET_GO, {flow_run})

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
    name_driver()
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
    from deployments.processes.flow_run import drive_flow_run, run_plain

    def drive() -> int:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return run_plain(flow_run, entrypoint) if entrypoint else drive_flow_run(flow_run)

    end_with(drive)


def main() -> int:
    """Import what drivers need, then fork them on request."""
    reset_inherited()
    prepare(os.environ)
    warm("flows.train")
    # Children are reaped by the kernel: a zombie would look like a driver that does not end.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _serve(Path(os.environ["PRIMUS_HOME"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
