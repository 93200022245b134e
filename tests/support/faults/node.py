"""A node that is made up: fake tools on its PATH, files in place of /proc and /sys, and the real program that looks.

The program and every probe are processes as in a pod, or run in the test's process where processes are not the matter
(`fault_here.py`). They differ from a pod's in where `/` is and in time: what a probe waits for on purpose is over at
once, and counters grow meanwhile where a node says so (`fault_stand_ins.py`). Tools are scripts that print files.
"""

from __future__ import annotations

import contextlib
import json
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from profiles.checks.check import Check
from profiles.hardware import HardwareProfile
from tests.support.faults.here import ProgramsHere
from tests.support.faults.stand_ins import MadeUp
from workflows.node_tests.preflight import calls_of
from workflows.programs.parsers.text import ParsedOutput
from workflows.programs.probes.call import to_json
from workflows.programs.probes.run import Options, unpack_answers

ROOT = Path(__file__).resolve().parents[3]
START = """
import json, os, sys
sys.path.insert(0, os.environ["NODE_CODE"])
from tests.support.faults.stand_ins import answer_of, give, stand_ins
made_up = json.loads(os.environ["NODE_MADE_UP"])
answer = answer_of(made_up, sys.argv[1:])
if answer:
    give(answer)
from workflows.programs import main
from workflows.programs.probes import call
call.entry_path = lambda: os.path.abspath(sys.argv[0])  # probes are started by this file, too
for where, name, instead in stand_ins(made_up, os.environ["NODE_ROOT"]):
    setattr(where, name, instead)
sys.exit(main.main(sys.argv[1:]))
"""
"""What stands for the programs' archive on such a node."""


@dataclass(frozen=True)
class Said:
    """What a program does when it is called."""

    text: str = ""
    code: int = 0
    signal: int = 0
    """It ends by that signal once it has printed; 0: by itself."""
    hangs: bool = False


@dataclass
class VirtualNode:
    """One node in a folder of its own."""

    folder: Path
    probes: Said | None = None
    """What our own probes do instead of looking; None: they look."""
    answers: dict[str, Said] = field(default_factory=dict[str, Said])
    """Name of a probe -> what it tells: those that compute on GPUs, of which there are none here."""
    grows: dict[str, int] = field(default_factory=dict[str, int])
    """Path of a counter -> by how much it grows whenever a probe waits."""
    names_are_lost: bool = False
    greeting: str = "SSH-2.0-OpenSSH_9.6\r\n"
    """What its SSH server says; "": nobody listens."""
    used_percent: tuple[float, float] = (40.0, 10.0)
    """Of the disk: space, inodes."""
    memlock_gib: float = 0.0
    """Limit of locked memory; 0: none."""
    skew_seconds: float = 0.0
    """So far its clock goes ahead of the storage's."""

    @property
    def bin(self) -> Path:
        """The only folder of its PATH."""
        return self.folder / "bin"

    def write(self, path: str, text: str) -> None:
        """A file of the node."""
        file = self.folder / "root" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def tool(self, name: str, answers: Mapping[str, Said]) -> None:
        """A fake: what it does by its arguments; `*` stands for all others. Without it: wrong use, exit 2."""
        self.bin.mkdir(parents=True, exist_ok=True)
        lines = ["#!/bin/sh", 'case "$*" in']
        for index, (arguments, said) in enumerate(answers.items()):
            printed = self.folder / f"{name}-{index}.txt"
            printed.write_bytes(said.text.encode("utf-8", "surrogateescape"))
            pattern = "*" if arguments == "*" else f"'{arguments}'"
            ends = "exec /bin/sleep 600" if said.hangs else f"exit {said.code}"
            ends = f"kill -{said.signal} $$" if said.signal else ends
            lines.append(f"{pattern}) /bin/cat '{printed}'; {ends} ;;")
        script = self.bin / name
        script.write_text("\n".join([*lines, '*) echo "$0: wrong use: $*"; exit 2 ;;', "esac", ""]), encoding="utf-8")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)

    def ask(
        self,
        checks: Sequence[Check],
        hardware: HardwareProfile,
        deadline_seconds: float = 60.0,
        as_processes: bool = True,
    ) -> dict[str, tuple[ParsedOutput, ...]]:
        """Run the real program for these checks; what each attempt told, by check."""
        calls = calls_of(checks)
        options = Options(
            calls=to_json(calls.calls),
            gpus=hardware.gpus_per_node,
            path=str(self.folder / "storage"),
            peer="127.0.0.1",
            deadline_seconds=deadline_seconds,
        )
        self.bin.mkdir(parents=True, exist_ok=True)
        argv = ["probe", *options.argv()]
        with _greets(self.greeting) as port:
            printed = self._run(argv, port) if as_processes else self._run_here(argv, port)
        told = unpack_answers(json.loads(printed.splitlines()[-1])["answers"])
        return {name: tuple(told[number]) for name, number in calls.number_of.items()}

    def _run(self, argv: Sequence[str], ssh_port: int) -> str:
        start = self.folder / "programs.pyz"
        start.write_text(START, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(start), *argv],
            env={
                **self._environment,
                "NODE_CODE": str(ROOT),
                "NODE_ROOT": str(self.folder / "root"),
                "NODE_MADE_UP": json.dumps(self._made_up(ssh_port)),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=120.0,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _run_here(self, argv: Sequence[str], ssh_port: int) -> str:
        return ProgramsHere(self._made_up(ssh_port), str(self.folder / "root")).run(argv, self._environment)

    @property
    def _environment(self) -> dict[str, str]:
        return {"PATH": str(self.bin), "PRIMUS_NODE": "node-0", "HOME": str(self.folder)}

    def _made_up(self, ssh_port: int) -> MadeUp:
        return {
            "probes": asdict(self.probes) if self.probes is not None else {},
            "answers": {name: asdict(said) for name, said in self.answers.items()},
            "grows": self.grows,
            "names_are_lost": self.names_are_lost,
            "ssh_port": ssh_port,
            "used_percent": self.used_percent,
            "memlock_gib": self.memlock_gib,
            "skew_seconds": self.skew_seconds,
        }


@contextlib.contextmanager
def _greets(text: str) -> Generator[int]:
    """A port of this machine whose server greets with `text`; "": nobody listens there."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        if not text:
            yield port
            return
        server.listen()

        def greet() -> None:
            with contextlib.suppress(OSError):
                while True:
                    caller, _ = server.accept()
                    with caller:
                        caller.sendall(text.encode())

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        try:
            yield port
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(10.0)
