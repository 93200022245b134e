"""One trial: start a peer's processes, hurt a rank, and watch the record until the training has ended."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from tests.peers.environment import Installed, last_line
from tests.peers.peers import SAVE_EVERY, Command, Ground, Peer, by_hand
from tests.peers.readings import Event, Trial, events, read
from workflows.programs.launcher.rendezvous import free_port

START_SECONDS = 180.0
"""Until the step of the fault, and for a training without one."""
END_SECONDS = 5.0
"""For the processes to end by themselves after the last weights."""
LOOK_SECONDS = 0.005
SIGNALS = {"kill": signal.SIGKILL, "hang": signal.SIGSTOP}
MARK = "PEERS_TRIAL"
_numbers = itertools.count(1)


class Running:
    """The processes of a trial.

    Args:
        ground: its place.
    """

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._mark = f"{os.getpid()}-{ground.folder.name}"
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._services: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, commands: list[Command]) -> None:
        """Services one after the other until they listen, then the nodes.

        Raises:
            TimeoutError: a service does not listen.
        """
        for command in commands:
            process = self._started(command)
            if command.address is None:
                self._nodes[command.name] = process
                continue
            self._services[command.name] = process
            until(lambda address=command.address: listens(address), 60.0, f"{command.name} listens")

    def _started(self, command: Command) -> subprocess.Popen[bytes]:
        base = {name: value for name, value in os.environ.items() if not name.startswith(("PRIMUS_", "PREFECT_"))}
        ours = {
            "PATH": f"{self._ground.bin}{os.pathsep}{os.environ['PATH']}", "PYTHONWARNINGS": "ignore",
            "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", MARK: self._mark,
        }  # fmt: skip
        with (self._ground.folder / f"{command.name}.log").open("wb") as log:
            return subprocess.Popen(
                command.argv, env={**base, **ours, **command.environment}, cwd=self._ground.folder, stdout=log,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    @property
    def ended(self) -> bool:
        """All nodes have."""
        return all(process.poll() is not None for process in self._nodes.values())

    def last_lines(self) -> tuple[str, ...]:
        """What each said last, and how it ended."""
        told = {**self._services, **self._nodes}
        texts = {name: (self._ground.folder / f"{name}.log").read_text(errors="replace") for name in told}
        return tuple(f"{name} ({_state(process)}): {last_line(texts[name])}" for name, process in told.items())

    def close(self) -> None:
        """Kill all that were started here and all that those started: they carry this trial's mark."""
        while left := [pid for pid in _marked(self._mark) if pid != os.getpid()]:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for process in (*self._services.values(), *self._nodes.values()):
                process.poll()
            time.sleep(LOOK_SECONDS)
        for process in (*self._services.values(), *self._nodes.values()):
            process.wait()


def _state(process: subprocess.Popen[bytes]) -> str:
    return "runs" if process.poll() is None else f"ended with {process.returncode}"


def _marked(mark: str) -> Iterator[int]:
    """Living processes whose environment holds the mark."""
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)


def listens(address: tuple[str, int]) -> bool:
    """Somebody takes connections there."""
    with socket.socket() as client:
        client.settimeout(1.0)
        return client.connect_ex(address) == 0


def until(found: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for it.

    Raises:
        TimeoutError: it did not come in time.
    """
    deadline = time.monotonic() + seconds
    while not found():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(LOOK_SECONDS)


class Bench:
    """Trials, each in a folder of its own.

    Args:
        folder: for all of them.
        installed: the peers' environment.
        hang_seconds: the budget that every peer gets.
        limit_seconds: from the fault to the last weights.
        fault_step: after this step of the victim.
    """

    def __init__(
        self, folder: Path, installed: Installed, hang_seconds: float, limit_seconds: float, fault_step: int
    ) -> None:
        self._fault_step = fault_step
        self._folder = folder
        self._installed = installed
        self._hang_seconds = hang_seconds
        self._limit_seconds = limit_seconds

    def ground(self) -> Ground:
        """A new place."""
        number = next(_numbers)
        folder = self._folder / f"trial-{number}"
        folder.mkdir()
        ports = (free_port("127.0.0.1"), free_port("127.0.0.1"))
        net = f"127.{os.getpid() % 200 + 20}.{number % 250 + 1}"
        return Ground(folder, self._installed.bin, ports, self._hang_seconds, self._fault_step, net)

    def trial(self, peer: Peer, fault: str = "", victim: int = 0) -> Trial:
        """One training of a peer, with a fault or without.

        Args:
            peer: whose.
            fault: `kill` or `hang`; "": none.
            victim: the rank.
        """
        ground = self.ground()
        running = Running(ground)
        at, why = time.time(), ()
        try:
            running.start(peer.commands(ground))
            if fault:
                at = strike(ground, running, fault, victim)
            limit = self._limit_seconds if fault else START_SECONDS
            until(lambda: running.ended or finished(ground), limit, "the last weights")
            with contextlib.suppress(TimeoutError):
                until(lambda: running.ended, END_SECONDS, "the end")
        except (TimeoutError, ProcessLookupError, RuntimeError) as error:
            why = (str(error),)
        finally:
            seen = seen_in(ground)
            said = (*why, *running.last_lines())
            running.close()
        came = read(peer.name, fault, victim, seen, at)
        if came.completed:
            shutil.rmtree(ground.folder, ignore_errors=True)
            return came
        return replace(came, said=said)

    def floor_seconds(self) -> float:
        """From starting the script's processes to their first step after a checkpoint, by hand."""
        ground = self.ground()
        running = Running(ground)
        try:
            running.start(by_hand(ground))
            until(lambda: bool(list(ground.checkpoints.glob(f"step-{SAVE_EVERY}.pt"))), START_SECONDS, "a checkpoint")
        finally:
            running.close()
        for path in ground.checkpoints.iterdir():
            if path.name != f"step-{SAVE_EVERY}.pt":
                path.unlink()
        ground.record.unlink()
        again = replace(ground, ports=(free_port("127.0.0.1"), free_port("127.0.0.1")))
        running = Running(again)
        began = time.time()
        try:
            running.start(by_hand(again))
            until(lambda: any(event.step for event in seen_in(again)), START_SECONDS, "a step")
            return min(event.at for event in seen_in(again) if event.step) - began
        finally:
            running.close()


def seen_in(ground: Ground) -> list[Event]:
    """The record so far."""
    return events(ground.record.read_text()) if ground.record.exists() else []


def finished(ground: Ground) -> bool:
    """The last weights are told."""
    return any(event.weights for event in seen_in(ground))


def strike(ground: Ground, running: Running, fault: str, victim: int) -> float:
    """Cause the fault when the victim has told its step; the moment, seconds since the epoch.

    Raises:
        RuntimeError: the processes ended before.
        TimeoutError: it did not come so far.
        ProcessLookupError: the victim was gone.
    """

    def there() -> list[Event]:
        return [event for event in seen_in(ground) if event.rank == victim and event.step >= ground.fault_step]

    until(lambda: bool(there()) or running.ended, START_SECONDS, f"step {ground.fault_step}, before any fault")
    if not there():
        raise RuntimeError("ended before the fault")
    pid, at = there()[-1].pid, time.time()
    os.kill(pid, SIGNALS[fault])
    return at
