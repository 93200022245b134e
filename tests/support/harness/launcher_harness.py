"""A gang on loopback for tests: a real coordinator, real launchers, small trainers. It waits for events only."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.support.running.waiting import patience
from workflows.programs.runtime.http_client import Client, UnreachableError
from workflows.wire import Termination, from_json, from_line

DEADLINE_SECONDS = patience(30.0)
"""Generous: only a test that fails waits so long."""
MAIN = Path(__file__).parents[3] / "workflows" / "programs" / "main.py"
TOKEN = "of-this-test-alone"
PORT = 29400
_hosts = itertools.count(1)

TRAINER = """
import os, signal, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
last = int(os.environ.get("STEPS", "10"))
hold = int(os.environ.get("HOLD", "0"))
done = int(os.environ["PRIMUS_RESUME_STEP"] or 0)
def save(number, frame):
    print(f"saved after step {step}", flush=True)
    sys.exit(int(os.environ["SAVES"]))
step = done
if "SAVES" in os.environ:
    signal.signal(signal.SIGTERM, save)
elif "IGNORES" in os.environ:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("rank", rank, "of", world, flush=True)
for step in range(done + 1, last + 1):
    if rank == 0:
        print(f"step {step}/{last} | loss {9 - step / 10:.4f} | tokens/s 5 | step time 0.0100 s")
    if step == hold:
        while True:
            time.sleep(60)
    time.sleep(float(os.environ.get("PACE", "0.002")))
"""
"""Prints the demo trainer's lines from rank 0; stands still at step HOLD; ends after STEPS."""


def until(found: Callable[[], Any], what: str) -> Any:
    """The first true answer of `found`.

    Raises:
        TimeoutError: none before the deadline.
    """
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        answer = found()
        if answer:
            return answer
        time.sleep(0.005)
    raise TimeoutError(what)


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Program:
    """One of our programs, with everything it prints."""

    def __init__(self, argv: list[str], environment: Mapping[str, str], python: str = sys.executable) -> None:
        command = [python, "-I", "-S", str(MAIN), *argv]
        self.process = subprocess.Popen(
            command,
            env=dict(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    @property
    def text(self) -> str:
        """All of it so far."""
        return "\n".join(self.lines)

    def says(self, text: str) -> str:
        """Wait for a line that contains `text`."""

        def found() -> str:
            line = next((line for line in list(self.lines) if text in line), "")
            assert line or self._reader.is_alive(), f"ended without {text!r}:\n{self.text}"
            return line

        try:
            return until(found, text)
        except TimeoutError as error:
            raise TimeoutError(f"no {text!r} in\n{self.text}") from error

    def reports(self) -> list[Any]:
        """Its structured lines."""
        return [report for report in map(from_line, list(self.lines)) if report is not None]

    def end(self) -> int:
        """Its exit code."""
        try:
            code = self.process.wait(DEADLINE_SECONDS)
        except subprocess.TimeoutExpired as error:
            self.process.kill()
            raise TimeoutError(f"still running:\n{self.text}") from error
        self._reader.join(DEADLINE_SECONDS)
        return code

    def close(self) -> None:
        """Kill it, where it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.end()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Unread(Program):
    """One whose standard output nobody reads until it has ended."""

    def _read(self) -> None:
        self.process.wait()
        super()._read()


class GangOnLoopback:
    """Addresses, folders and programs of one attempt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.net = f"127.{os.getpid() % 200 + 20}.{next(_hosts)}"
        self.run_dir = folder / "run"
        self.trainer = folder / "train.py"
        self.trainer.write_text(TRAINER)
        self.programs: list[Program] = []
        self.python = sys.executable
        self.program = Program
        self.environment = {
            "PATH": os.environ["PATH"],
            "PRIMUS_RUN": "r",
            "PRIMUS_ATTEMPT": "1",
            "PRIMUS_TOKEN_FILE": str(folder / "token"),
            "PRIMUS_RUN_DIR": str(self.run_dir),
            "PRIMUS_COORDINATOR_URL": f"http://coordinator:{PORT}",
            "PRIMUS_HOSTS_FILE": str(folder / "hosts"),
        }
        (folder / "token").write_text(TOKEN)
        (folder / "hosts").write_text(f"{self.net}.1 coordinator coordinator.gang  # as the cluster writes it\n")

    def start(self, argv: list[str], **environment: str) -> Program:
        """Any program, in this gang's environment."""
        program = self.program(argv, {**self.environment, **environment}, self.python)
        self.programs.append(program)
        return program

    def coordinate(self, pods: int = 1, processes: int = 1, restarts: int = 0, **environment: str) -> Program:
        """A coordinator that listens."""
        argv = ["coordinate", f"--pods={pods}", f"--processes-per-node={processes}", f"--port={PORT}"]
        argv.append(f"--restarts={restarts}")
        program = self.start(argv, PRIMUS_POD_IP=f"{self.net}.1", **environment)
        program.says("listening")
        return program

    def launch(
        self,
        index: int = 0,
        *flags: str,
        pods: int = 1,
        processes: int = 1,
        command: list[str] | None = None,
        **env: str,
    ) -> Program:
        """A launcher; without a command it runs the trainer."""
        argv = [
            "launch",
            "--role=trainer",
            f"--pods={pods}",
            f"--processes-per-node={processes}",
            f"--world-size={pods * processes}",
            "--framework=primus-demo",
            "--checkpoint-format=none",
            *flags,
            "--",
            *(command or [sys.executable, "-S", str(self.trainer)]),
        ]
        place = {
            "PRIMUS_POD": f"pod-{index}",
            "PRIMUS_NODE": f"node-{index}",
            "PRIMUS_POD_INDEX": str(index),
            "PRIMUS_POD_IP": f"{self.net}.{10 + index}",
            "PRIMUS_TERMINATION_LOG": str(self.folder / f"message-{index}"),
        }
        return self.start(argv, **place, **env)

    def alone(self, *flags: str, command: list[str] | None = None, **environment: str) -> Program:
        """One launcher without a coordinator."""
        return self.launch(0, *flags, command=command, PRIMUS_COORDINATOR_URL="", **environment)  # pyright: ignore[reportArgumentType] - variables are in capitals

    def folder_of(self, index: int) -> Path:
        """A pod's folder in the run's folder."""
        return self.run_dir / "a1" / f"trainer-{index}"

    def termination(self, index: int = 0) -> Termination:
        """The whole record of a pod's end."""
        return from_json(Termination, (self.folder_of(index) / "termination.json").read_text())

    def message(self, index: int = 0) -> Termination:
        """The termination message of a pod."""
        return from_json(Termination, (self.folder / f"message-{index}").read_text())

    def ask(self, path: str) -> dict[str, Any]:
        """The coordinator's answer; empty while there is none."""
        client = Client(f"http://{self.net}.1:{PORT}", TOKEN)
        try:
            return client.request("GET", path).body
        except UnreachableError:
            return {}
        finally:
            client.close()

    def tell(self, path: str, body: dict[str, Any]) -> int:
        """Post to the coordinator; the status."""
        client = Client(f"http://{self.net}.1:{PORT}", TOKEN)
        try:
            return client.request("POST", path, body).status
        finally:
            client.close()

    def ranks(self) -> dict[int, int]:
        """Processes of all ranks, once all launchers run."""
        members = until(
            lambda: (m := self.ask("/status").get("members")) and all(one["pids"] for one in m) and m, "running members"
        )
        return {int(rank): pid for member in members for rank, pid in member["pids"].items()}

    def steps(self, index: int = 0) -> list[int]:
        """What a pod recorded in `steps.jsonl`."""
        path = self.folder_of(index) / "steps.jsonl"
        return [json.loads(line)["step"] for line in path.read_text().splitlines()]

    def close(self) -> None:
        """End everything that was started here."""
        for program in self.programs:
            program.close()


def terminate(program: Program) -> None:
    """SIGTERM."""
    program.process.send_signal(signal.SIGTERM)
