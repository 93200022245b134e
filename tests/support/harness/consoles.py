"""A home where `primus up` was said, as people have it: commands in processes of their own, the server by its API."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from tasks.processes import process_start
from tests.support.harness.runners import LIMIT_S
from tests.support.running.waiting import until

Json = dict[str, Any]
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "CRASHED")


class Console:
    """Use `console()`."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.home = home
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")}
        self.environment = {**kept, "PRIMUS_HOME": str(home), **environment}
        self.password = ""
        """`user:password` of its server; "": the one in the home, if there is any."""
        self._client: httpx.Client | None = None

    def primus(self, *words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """A command to its end."""
        command = [sys.executable, "-m", "deployments.cli.main", *words]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=4 * LIMIT_S, check=False
        )
        assert code is None or done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def up(self, *words: str) -> Json:
        """`primus up --json`, and from then on `api` speaks to that server."""
        done = self.primus("up", "--json", *words, code=None)
        assert done.returncode == 0, done.stderr + self.told()
        said: Json = json.loads(done.stdout)
        if self._client is not None:
            self._client.close()
        auth = self.home / "prefect-auth"
        known = self.password or (auth.read_text().strip() if auth.exists() else "")
        user, _, password = known.partition(":")
        self._client = httpx.Client(base_url=said["api"], timeout=LIMIT_S, auth=(user, password) if user else None)
        return said

    @property
    def api(self) -> httpx.Client:
        assert self._client is not None
        return self._client

    def post(self, path: str, body: object = None) -> Any:
        """What the server answers, which refuses nobody because its database is busy; it may be away in between."""

        def answered() -> httpx.Response | None:
            try:
                return self.api.post(path, json=body if body is not None else {})
            except httpx.TransportError:
                return None

        answer = until(f"POST {path}", answered, self.told).raise_for_status()
        return answer.json() if answer.content else None

    def deployment(self, name: str) -> Json:
        """`flow/deployment` as the server has it."""
        return self.api.get(f"/deployments/name/{name}").raise_for_status().json()

    def ask(self, deployment: str, parameters: Json, key: str = "", at: str = "") -> str:
        """Id of the flow run that was asked for, to begin now or at a time."""
        body: Json = {"parameters": parameters} | ({"idempotency_key": key} if key else {})
        if at:
            body["state"] = {"type": "SCHEDULED", "state_details": {"scheduled_time": at}}
        return str(self.post(f"/deployments/{self.deployment(deployment)['id']}/create_flow_run", body)["id"])

    def flow_runs(self, deployment: str) -> list[Json]:
        """Of a deployment, the oldest first."""
        wanted = {"deployments": {"id": {"any_": [self.deployment(deployment)["id"]]}}, "limit": 200}
        return sorted(self.post("/flow_runs/filter", wanted), key=lambda one: one["expected_start_time"])

    def ended(self, identity: str) -> Json:
        """The state of a flow run once it has ended."""

        def end() -> Json | None:
            try:
                state = self.api.get(f"/flow_runs/{identity}").raise_for_status().json()["state"]
            except (httpx.TransportError, httpx.HTTPStatusError):
                return None  # the server may be away in the middle of a story
            return state if state["type"] in ENDED else None

        return until(f"the end of flow run {identity}", end, self.told)

    def pid(self, service: str) -> int | None:
        """Of a living background process."""
        try:
            found = json.loads((self.home / f"{service}.json").read_text())
        except (OSError, ValueError):
            return None
        return found["pid"] if process_start(found["pid"]) == found["started_at"] else None

    def kill(self, service: str) -> int:
        """Without a word, and only it; the pid it had."""
        pid = self.pid(service)
        assert pid is not None, f"{service} does not live\n{self.told()}"
        os.kill(pid, signal.SIGKILL)
        until(f"{service} is dead", lambda: process_start(pid) is None)
        return pid

    def living_again(self, service: str, was: int) -> int:
        """Its new pid, once somebody started it again."""
        return until(
            f"{service} lives again", lambda: pid if (pid := self.pid(service)) not in (None, was) else None, self.told
        )

    def processes(self) -> dict[int, str]:
        """Every living process that knows this home, by its environment or its words: pid and command."""
        mark, found = str(self.home).encode(), dict[int, str]()
        for path in Path("/proc").glob("[0-9]*"):
            try:
                words = (path / "cmdline").read_bytes()
                if int(path.name) != os.getpid() and (mark in (path / "environ").read_bytes() or mark in words):
                    found[int(path.name)] = words.replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
        return found

    def told(self) -> str:
        """The ends of all logs."""
        logs = sorted((self.home / "logs").glob("*.log"))
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}" for path in logs)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


@contextmanager
def console(home: Path, **environment: str) -> Generator[Console]:
    """Whatever runs in the background of the home is ended afterwards."""
    made = Console(home, **environment)
    try:
        yield made
    finally:
        made.primus("down", code=None)
        made.close()
        # What a story left where it failed: its pods, and whoever starts them again.
        while left := made.processes():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
