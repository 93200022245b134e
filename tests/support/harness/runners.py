"""A flow runner in a process of its own, as in its pod, and the Prefect server as users speak to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from deployments.processes.offers import offers_of
from profiles.loading.load import load_cluster
from tasks.prefect.deployments import Offer
from tasks.processes import process_start
from tests.support.running.waiting import LIMIT_SECONDS, until

LIMIT_S = LIMIT_SECONDS
BUSY = 503
"""What a server on SQLite answers where another writer holds its file: nothing was written."""
Json = dict[str, Any]


def posted(client: httpx.Client, path: str, body: Json) -> httpx.Response:
    """What a server answers; it is asked again while another one writes to its database."""

    def answered() -> httpx.Response | None:
        answer = client.post(path, json=body)
        return None if answer.status_code == BUSY else answer

    return until(f"POST {path}", answered)


def train_offer(name: str) -> Offer:
    """The deployment of training runs under another name, in no cluster's family."""
    return replace(offers_of(load_cluster("local"))[0], name=name, tags=("primus", "train"))


class Runner:
    """`python -m deployments.processes.runner` with a home; its log is kept over many of its lives."""

    def __init__(self, home: Path, api_url: str, **environment: str) -> None:
        self.log = home / "runner.log"
        self._environment = {**os.environ, "PRIMUS_HOME": str(home), "PREFECT_API_URL": api_url, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Runner:
        with self.log.open("ab") as sink:
            command = [sys.executable, "-m", "deployments.processes.runner"]
            self._process = subprocess.Popen(command, stdout=sink, stderr=sink, env=self._environment)
        return self

    def serving(self) -> Runner:
        """Wait until it serves."""
        served = self.told().count("serves train/")
        self.start()
        until("the runner serves", lambda: self.told().count("serves train/") > served, self.told)
        return self

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def told(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def drivers(self) -> list[int]:
        """Pids of the drivers that it ever told of and that live."""
        pids = [int(line.rpartition(" ")[2]) for line in self.told().splitlines() if ": driven by process " in line]
        return [pid for pid in pids if process_start(pid) is not None]

    def terminate(self) -> int:
        """As a kubelet does it; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT_S)

    def kill(self) -> None:
        """As the end of its pod does it: everything at once, without a word."""
        drivers = self.drivers()
        self.process.kill()
        for pid in drivers:
            os.kill(pid, signal.SIGKILL)
        self.process.wait(LIMIT_S)
        until("its drivers are gone", lambda: not self.drivers(), self.told)

    def strike(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


@contextmanager
def runner(home: Path, api_url: str, **environment: str) -> Generator[Runner]:
    made = Runner(home, api_url, **environment)
    try:
        yield made
    finally:
        made.strike()


class Asking:
    """A person or program that asks for runs through the server's API."""

    def __init__(self, api_url: str, deployment: str, headers: dict[str, str] | None = None) -> None:
        self._client = httpx.Client(base_url=api_url, headers=headers or {}, timeout=LIMIT_S)
        self.deployment: Json = self._client.get(f"/deployments/name/{deployment}").raise_for_status().json()

    def ask(self, key: str = "", **request: Any) -> httpx.Response:
        """POST create_flow_run; the answer as it is."""
        body: Json = {"parameters": {"request": request}}
        if key:
            body["idempotency_key"] = key
        path = f"/deployments/{self.deployment['id']}/create_flow_run"

        def answered() -> httpx.Response | None:
            answer = self._client.post(path, json=body)
            return None if answer.status_code == BUSY else answer

        return until("the server takes the request", answered)

    def asked(self, key: str = "", **request: Any) -> str:
        """The id of the flow run that was made."""
        return str(self.ask(key, **request).raise_for_status().json()["id"])

    def flow_run(self, identity: str) -> Json:
        return self._client.get(f"/flow_runs/{identity}").raise_for_status().json()

    def ended(self, identity: str) -> Json:
        """Its state once it has ended."""

        def end() -> Json | None:
            state = self.flow_run(identity)["state"]
            return state if state["type"] in ("COMPLETED", "FAILED", "CANCELLED", "CRASHED") else None

        return until(f"the end of flow run {identity}", end, lambda: str(self.flow_run(identity)))

    def cancel(self, identity: str) -> None:
        """As the button of the pages does it."""
        body = {"state": {"type": "CANCELLING", "name": "Cancelling"}}
        self._client.post(f"/flow_runs/{identity}/set_state", json=body).raise_for_status()

    def pause(self, identity: str) -> None:
        """As the button of the pages does it."""
        details = {"pause_timeout": "2100-01-01T00:00:00Z", "pause_reschedule": True, "pause_key": identity}
        body = {"state": {"type": "PAUSED", "name": "Suspended", "state_details": details}}
        self._client.post(f"/flow_runs/{identity}/set_state", json=body).raise_for_status()

    def delete(self, identity: str) -> None:
        """The same with Delete."""
        self._client.delete(f"/flow_runs/{identity}").raise_for_status()

    def claimed(self, identity: str) -> None:
        """As a runner does it that dies next."""
        body = {"state": {"type": "PENDING", "name": "Pending"}}
        self._client.post(f"/flow_runs/{identity}/set_state", json=body).raise_for_status()

    def of_deployment(self) -> list[Json]:
        body = {"deployments": {"id": {"any_": [self.deployment["id"]]}}}
        return self._client.post("/flow_runs/filter", json=body).raise_for_status().json()

    def close(self) -> None:
        self._client.close()


@contextmanager
def worker_pod(home: Path, api_url: str, flow_run: str) -> Generator[subprocess.Popen[bytes]]:
    """What a worker of a Prefect work pool starts for a flow run, in its pod."""
    environment = {**os.environ, "PRIMUS_HOME": str(home), "PREFECT_API_URL": api_url, "PREFECT__FLOW_RUN_ID": flow_run}
    command = [sys.executable, "-m", "deployments.processes.flow_run", "prefect", "flow-run", "execute"]
    with (home / "worker.log").open("ab") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait(LIMIT_S)
