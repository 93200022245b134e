"""`primus` as a person types it against the lab's hosts, with a home of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.ledger.ledger import Ledger
from tasks.settings import Settings
from tests.support.running.waiting import patience
from workflows.model.bootstrap import Stage

Json = dict[str, Any]
COMMAND_S = patience(900.0)
LOOK_S = 0.05


class Commands:
    """Commands on one cluster; a ledger that knows nothing at first."""

    def __init__(self, home: Path, profile: Path, limit_s: float = COMMAND_S) -> None:
        self.profile, self.limit_s = profile, limit_s
        self.went_on_s = 0.0
        """Seconds from the start of the command that was killed last until it had begun a step; 0: it did not."""
        self.begin_anew(home)

    def begin_anew(self, home: Path) -> None:
        """With a ledger that knows nothing."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("PRIMUS_")}
        self.home, self.environment = home, {**own, "PRIMUS_HOME": str(home)}
        self.ledger = Ledger(Settings.from_environment({"PRIMUS_HOME": str(home)}).ledger_url)

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "deployments.cli.main", "bootstrap", str(self.profile), *words, "--json"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env=self.environment, text=True, start_new_session=True, **pipes)  # pyright: ignore[reportCallIssue, reportArgumentType]

    def primus(self, *words: str, code: int = 0) -> str:
        """What another command prints."""
        command = [sys.executable, "-m", "deployments.cli.main", *words]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False, timeout=self.limit_s
        )
        assert done.returncode == code, f"{done.returncode}: {done.stderr[-3000:]}{done.stdout[-3000:]}"
        return done.stdout

    def run(self, *words: str, code: int = 0) -> Json:
        """The document that it prints."""
        return json.loads(self.ended(*words, code=code)[0])

    def ended(self, *words: str, code: int = 0) -> tuple[str, str]:
        """What it printed, and what it said beside."""
        process = self.start(*words)
        out, said = process.communicate(timeout=self.limit_s)
        assert process.returncode == code, f"{process.returncode}: {said[-3000:]}{out[-3000:]}"
        return out, said

    @property
    def kubeconfig(self) -> Path:
        """The administrator's, as it is kept."""
        return self.home / "clusters" / "made" / "kubeconfig"

    def other_profile(self, path: Path, **engine: Any) -> Path:
        """The lab's profile with other fields of its engine; objects are merged."""
        whole = yaml.safe_load(self.profile.read_text())
        own = whole["bootstrap"]["engine"]
        for name, value in engine.items():
            own[name] = {**own.get(name, {}), **value} if isinstance(value, dict) else value
        path.write_text(yaml.safe_dump(whole, sort_keys=False))
        return path

    def killed_once(self, stage: Stage, subject: str, *words: str, reached: Callable[[], bool] = lambda: True) -> float:
        """Start it, and SIGKILL it once this step stands in the ledger as begun; seconds until it stood there.

        `went_on_s` says afterwards when its first step began. `reached`: what must be so beside before it is killed.
        """
        before, self.went_on_s = sum(self.begun().values()), 0.0
        process, began, step = self.start(*words), time.monotonic(), f"{stage}/{subject}"
        deadline = time.monotonic() + self.limit_s
        while time.monotonic() < deadline:
            if not self.went_on_s and sum(self.begun().values()) > before:
                self.went_on_s = time.monotonic() - began
            record = self.ledger.bootstrap_steps("made").get(step)
            if record is not None and record.state == "began" and reached():
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return time.monotonic() - began
            if process.poll() is not None:
                out, said = process.communicate()
                pytest.fail(f"it ended with {process.returncode} before {step} began: {said[-3000:]}{out[-2000:]}")
            time.sleep(LOOK_S)
        pytest.fail(f"{step} never began")

    def begun(self) -> Counter[str]:
        """How often each step was begun, of all commands."""
        lines = [line for line in self.ledger.history() if line.kind == "bootstrap" and line.why.startswith("began: ")]
        return Counter(line.subject for line in lines)
