"""`primus bootstrap` as a person types it on the lab's hosts, and somebody who asks the API all the while."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.ledger.ledger import Ledger
from tasks.settings import Settings
from tests.lab.layout import VIRTUAL
from tests.support.running.waiting import patience

Json = dict[str, Any]
COMMAND_S = patience(900.0)
LOOK_S = 0.05
ASK_S = 0.1
"""Between two questions to the API."""


class Commands:
    """`primus bootstrap`, with a home of its own."""

    def __init__(self, home: Path, profile: Path) -> None:
        self.profile = profile
        self.begin_anew(home)

    def begin_anew(self, home: Path) -> None:
        """With a ledger that knows nothing."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("PRIMUS_")}
        self.home, self.environment = home, {**own, "PRIMUS_HOME": str(home)}
        self.ledger = Ledger(Settings.from_environment({"PRIMUS_HOME": str(home)}).ledger_url)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's, as it is kept."""
        return self.home / "clusters" / "made" / "kubeconfig"

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Begin it, in a session of its own."""
        command = [sys.executable, "-m", "deployments.cli.main", "bootstrap", str(self.profile), *words, "--json"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env=self.environment, text=True, start_new_session=True, **pipes)  # pyright: ignore[reportCallIssue, reportArgumentType]

    def run(self, *words: str, code: int = 0) -> Json:
        """The document that it prints."""
        out, said = self.ended(*words, code=code)
        assert out, said
        return json.loads(out)

    def ended(self, *words: str, code: int = 0) -> tuple[str, str]:
        """What it printed, and what it said beside."""
        process = self.start(*words)
        out, said = process.communicate(timeout=COMMAND_S)
        assert process.returncode == code, f"{process.returncode}: {said[-3000:]}{out[-3000:]}"
        return out, said

    def killed_once(
        self, step: str, *words: str, reached: Callable[[], bool] = lambda: True, limit_s: float = COMMAND_S
    ) -> float:
        """Start it, and SIGKILL it once this step stands in the ledger as begun; seconds until it stood there.

        `reached`: what must be so beside, before it is killed.
        """
        process, began = self.start(*words), time.monotonic()
        while time.monotonic() < began + limit_s:
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

    def other_profile(self, path: Path, **engine: Any) -> Path:
        """The lab's profile with other fields of its engine; objects are merged."""
        whole = yaml.safe_load(self.profile.read_text())
        own = whole["bootstrap"]["engine"]
        for name, value in engine.items():
            own[name] = {**own.get(name, {}), **value} if isinstance(value, dict) else value
        path.write_text(yaml.safe_dump(whole, sort_keys=False))
        return path


@dataclass
class Asked:
    """What somebody saw who asked the API at its address all the while."""

    times: int = 0
    longest_s: float = 0.0
    """Between two good answers."""
    silences: list[str] = field(default_factory=list[str])
    """Of more than a second, and when they ended."""


@contextmanager
def asking() -> Generator[Asked]:
    """Ask the API at its address for as long as this lasts."""
    found, over = Asked(), threading.Event()
    thread = threading.Thread(target=_ask, args=(found, over), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
        print(f"the API was asked {found.times} times, away for {found.longest_s:.1f} s at most: {found.silences}")


def _ask(found: Asked, over: threading.Event) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    last = time.monotonic()
    while not over.wait(ASK_S):
        try:
            with urllib.request.urlopen(f"https://{VIRTUAL}:6443/readyz", timeout=1.0, context=context) as answer:
                good = answer.status == 200
        except OSError:
            good = False
        found.times += 1
        now = time.monotonic()
        if good:
            if now - last > 1.0:
                found.silences.append(f"{now - last:.1f} s until {time.strftime('%H:%M:%S')}")
            found.longest_s, last = max(found.longest_s, now - last), now
    found.longest_s = max(found.longest_s, time.monotonic() - last)


def load() -> str:
    """How much else this machine does: what measured seconds stand beside."""
    return f"load {', '.join(f'{one:.1f}' for one in os.getloadavg())}"
