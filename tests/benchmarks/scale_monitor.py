"""The monitor as a user starts it, in a process of its own, and what the API server's audit log says of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.bed.commands import until
from tests.bed.options import REAL_LABEL
from tests.benchmarks.scale_load import TELLER
from tests.benchmarks.scale_plane import HOME, ScalePlane

Json = dict[str, Any]
LOOK_SECONDS = 0.02
IDLE_SHARE = 0.1
"""Of a core: what the loop needs for the heartbeats of others is far below, a first look at all nodes far above."""
RUNNER = f"system:serviceaccount:{HOME}:primus-runner"


def cluster_profile(home: Path, nodes: int) -> Path:
    """All played nodes as one pool, the brake opened."""
    path = home / "wide.yaml"
    path.write_text(
        "extends: bed\nname: wide\npools:\n  - name: cpu\n    hardware: cpu\n    spares: 0\n"
        f"    nodes: {nodes}\n    labels: {{{REAL_LABEL}: kwok}}\n"
        "brake:\n  max_quarantined_share: 1.0\n  max_evictions: 1000000\n"
    )
    return path


class Monitor:
    """`primus monitor` in the foreground, with the runner's rights. Use it in a `with` block."""

    def __init__(self, plane: ScalePlane, nodes: int, account: str = "runner") -> None:
        self._plane = plane
        self.home = Path(tempfile.mkdtemp(prefix="monitor-", dir=plane.folder.root))
        self.profile = cluster_profile(self.home, nodes)
        kubeconfig = str(plane.folder.account(account))
        self._environment = {**os.environ, "PRIMUS_HOME": str(self.home), "KUBECONFIG": kubeconfig}

    def __enter__(self) -> Monitor:
        self.log = (self.home / "lines").open("wb")
        began = self._plane.folder.audit.stat().st_size
        self._process = subprocess.Popen(self._command("--json"), env=self._environment, stdout=self.log)
        until("the watch of nodes", lambda: _watches(self._plane.folder.audit, began), 120, 0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)
        self.log.close()

    def _command(self, *options: str) -> list[str]:
        return [f"{Path(sys.executable).parent}/primus", "monitor", "--cluster", str(self.profile), *options]

    def once(self, *options: str) -> tuple[float, int, Json]:
        """One pass: seconds, largest resident set in KiB, its document."""
        began, largest = time.monotonic(), 0
        with (self.home / "once").open("w+b") as said:
            process = subprocess.Popen(self._command("--once", "--json", *options), env=self._environment, stdout=said)
            while process.poll() is None:
                largest = max(largest, largest_kib(process.pid))
                time.sleep(LOOK_SECONDS)
            took = time.monotonic() - began
            said.seek(0)
            return took, largest, json.load(said)

    def wait_idle(self) -> None:
        """Until everything was looked at that was there when it began: it uses no processor for a while."""
        until("the first look at all nodes", self._is_idle, 120, 0.1)

    def _is_idle(self) -> bool:
        before = self.processor_seconds
        time.sleep(1.0)
        return self.processor_seconds - before <= IDLE_SHARE

    def told(self, event: str, nodes: Iterable[str]) -> int:
        """Of how many of these nodes the loop has told the event."""
        found = (
            json.loads(line) for line in (self.home / "lines").read_text().splitlines(keepends=True) if "\n" in line
        )
        return len({line["node"] for line in found if line["event"] == event} & set(nodes))

    @property
    def resident_kib(self) -> int:
        """Now."""
        return _kib(self._process.pid, "VmRSS")

    @property
    def processor_seconds(self) -> float:
        """User and system time so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def largest_kib(process: int) -> int:
    """The largest resident set of a process so far; 0 where it is gone.

    `ru_maxrss` would not do: it keeps what the process was forked from.
    """
    return _kib(process, "VmHWM")


def _kib(process: int, field: str) -> int:
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    found = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) if found else 0


def _watches(audit: Path, begin: int) -> bool:
    seen = events(audit, begin)
    return any(event.verb == "watch" and event.user == RUNNER and event.resource == "nodes" for event in seen)


@dataclass(frozen=True)
class Event:
    """One line of the audit log."""

    verb: str
    user: str
    agent: str
    """The program, as it calls itself: KWOK has the same user as we."""
    stage: str
    resource: str
    """With its subresource, as in `nodes/status`."""
    name: str
    code: int
    at: float
    """When the API server was done with the stage, Unix seconds."""


def events(audit: Path, begin: int = 0) -> list[Event]:
    """Lines of the audit log from an offset on."""
    with audit.open("rb") as file:
        file.seek(begin)
        return [_event(json.loads(line)) for line in file if line.endswith(b"\n")]


def _event(said: Json) -> Event:
    about: Json = said.get("objectRef") or {}
    part = f"/{about['subresource']}" if about.get("subresource") else ""
    return Event(
        verb=said["verb"],
        user=said["user"]["username"],
        agent=said.get("userAgent", ""),
        stage=said["stage"],
        resource=f"{about.get('resource', '?')}{part}",
        name=about.get("name", ""),
        code=said.get("responseStatus", {}).get("code", 0),
        at=datetime.fromisoformat(said["stageTimestamp"]).timestamp(),
    )


def latencies(found: Sequence[Event]) -> dict[str, float]:
    """Node -> seconds from the answer to the patch of its status to that to the patch of its taint, by the server."""
    told: dict[str, float] = {}
    marked: dict[str, float] = {}
    for event in found:
        if (event.verb, event.resource, event.agent, event.code) == ("patch", "nodes/status", TELLER, 200):
            told.setdefault(event.name, event.at)
        elif (event.verb, event.resource, event.user, event.code) == ("patch", "nodes", RUNNER, 200):
            marked.setdefault(event.name, event.at)
    return {node: marked[node] - at for node, at in told.items() if node in marked}


def verbs(found: Sequence[Event], user: str) -> Counter[str]:
    """How many requests an account ended, by verb and resource."""
    return Counter(
        f"{event.verb} {event.resource}" for event in found if event.user == user and event.stage == "ResponseComplete"
    )


def patches(found: Sequence[Event]) -> Counter[str]:
    """How often the monitor patched each node, refusals included."""
    return Counter(event.name for event in found if event.user == RUNNER and event.verb == "patch")
