"""Long-lived processes: each is written down with its command, so that it can be stopped and started again by name.

A process is ours when its id and its start time are those written down; ids alone are given out again. Beside them
stands whether it is meant to run: `tests.bed.supervisor` starts again what ended by itself, never what was stopped.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Generator, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.bed import groups
from tests.bed.commands import BedError, until
from tests.bed.layout import Folder
from tests.support.running.waiting import patience

STOP_LIMIT_S = patience(10.0)


@dataclass(frozen=True)
class Program:
    """How one component is started."""

    name: str
    command: list[str]
    namespace: str
    """Network namespace."""
    group: str
    """Control group, below ours."""
    environment: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Running:
    """One started process."""

    process: int
    started: str
    """Clock ticks since the boot, as the kernel tells."""


def begun(process: int) -> str:
    """Start time of a living process; "" where it is gone or only its entry is left."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    if fields[0] in "ZX":
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process, os.WNOHANG)
        return ""
    return fields[19]


def _environment() -> dict[str, str]:
    """Of the caller's only what programs need: a component outlives whatever the caller's variables speak of."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TZ") if name in os.environ}


def _inherited() -> list[int]:
    """Descriptors that our caller left open: a lock among them would be held as long as the component lives."""
    found: list[int] = []
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if number > 2 and os.get_inheritable(number):
                found.append(number)
    return found


class Processes:
    """The bed's processes, as its folder tells of them."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        """Every component that was ever started here."""
        return sorted(path.stem for path in self._folder.processes.glob("*.json"))

    def program(self, name: str) -> Program:
        """How `name` is started; LookupError where it never was."""
        path = self._folder.processes / f"{name}.json"
        if not path.exists():
            raise LookupError(f"no component {name!r}; there are: {', '.join(self.names())}")
        return Program(**json.loads(path.read_text(encoding="utf-8")))

    def running(self, name: str) -> int:
        """Its process id; 0 where it does not run."""
        path = self._folder.processes / f"{name}.pid"
        if not path.exists():
            return 0
        known = Running(**json.loads(path.read_text(encoding="utf-8")))
        return known.process if begun(known.process) == known.started else 0

    def log(self, name: str) -> Path:
        """What it prints."""
        return self._folder.logs / f"{name}.log"

    def is_stopped(self, name: str) -> bool:
        """Whether it was stopped on purpose."""
        return self._mark(name).exists()

    def mark_stopped(self, names: Iterable[str]) -> None:
        """Nobody starts these again unless asked to; whoever ends them says so before."""
        with self._alone():
            for name in names:
                self._mark(name).touch()

    def _mark(self, name: str) -> Path:
        return self._folder.processes / f"{name}.stopped"

    @contextlib.contextmanager
    def _alone(self) -> Generator[None]:
        """Only one of us decides at a time who is to run; without it one starts what another just ended."""
        with (self._folder.processes / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def start(self, program: Program) -> None:
        """Start it and write it down; nothing where it runs."""
        with self._alone():
            self._mark(program.name).unlink(missing_ok=True)
            self._start(program)

    def start_ended(self, name: str) -> bool:
        """Start a component again that ended by itself; whether it did."""
        with self._alone():
            started_before = (self._folder.processes / f"{name}.pid").exists()
            if not started_before or self.is_stopped(name) or self.running(name):
                return False
            self._start(self.program(name))
            return True

    def _start(self, program: Program) -> None:
        self._write(f"{program.name}.json", json.dumps(asdict(program), indent=1) + "\n")
        if self.running(program.name):
            return
        group = groups.make(program.group) / "cgroup.procs"
        enter = ["/bin/sh", "-c", f'echo $$ >{group} && exec "$@"', program.name]
        # Not `ip netns exec`: it mounts /sys anew and would hide the control groups from kubelet and containerd.
        command = ["nsenter", f"--net=/run/netns/{program.namespace}", "--", *enter, *program.command]
        log = os.open(self.log(program.name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            process = os.posix_spawnp(
                "nsenter",
                command,
                {**_environment(), **program.environment},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, nothing, 0),
                    (os.POSIX_SPAWN_DUP2, log, 1),
                    (os.POSIX_SPAWN_DUP2, log, 2),
                    *((os.POSIX_SPAWN_CLOSE, number) for number in _inherited()),
                ],
                setsid=True,
            )
        finally:
            os.close(log)
            os.close(nothing)
        known = Running(process, begun(process))
        self._write(f"{program.name}.pid", json.dumps(asdict(known)))

    def _write(self, name: str, text: str) -> None:
        """Whole at any moment: others read it without the lock."""
        half = self._folder.processes / f"{name}.half"
        half.write_text(text, encoding="utf-8")
        half.replace(self._folder.processes / name)

    def start_again(self, name: str) -> None:
        """Start a component as it was started before."""
        self.start(self.program(name))

    def forget(self, name: str) -> None:
        """One that is stopped and is no part of the bed any more."""
        for ending in ("json", "pid", "stopped"):
            (self._folder.processes / f"{name}.{ending}").unlink(missing_ok=True)

    def send(self, name: str, number: signal.Signals) -> bool:
        """Signal one; False where it does not run."""
        process = self.running(name)
        if process:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        return bool(process)

    def stop(self, name: str, limit_s: float = STOP_LIMIT_S) -> None:
        """SIGTERM, and SIGKILL after `limit_s`; it stays stopped until it is started."""
        self.mark_stopped([name])
        self.send(name, signal.SIGCONT)
        if not self.send(name, signal.SIGTERM):
            return
        try:
            until(f"end of {name}", lambda: not self.running(name), limit_s)
        except BedError:
            self.send(name, signal.SIGKILL)
            until(f"end of {name} after SIGKILL", lambda: not self.running(name))
