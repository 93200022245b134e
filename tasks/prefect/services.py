"""The background processes of a home after `primus up`: the server, the flow runner, the monitor's loop.

Each is found by its pid file and started where it is missing, by the first process that notices: the loop looks after
server and runner, the minute's flow after the loop, any command after all of them. `primus down` removes the wish
first, so that nothing restarts what was just ended. `ask_runner` speaks to the server without Prefect's client, whose
import costs half a second.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from profiles.errors import Unavailable
from tasks.prefect.server import (
    CLIENT_PASSWORD,
    begin_own_server,
    named_server,
    one_at_a_time,
    opener,
    password_of,
    quiet_environment,
    server_url,
    stop_server,
    wait_for_server,
)
from tasks.processes import Recorded, last_words, record, recorded, spawn, stop
from tasks.settings import CLUSTER

WISH = "up.json"
READY = "runner-ready.json"
"""Written by the runner itself once its deployments are served."""
READY_SECONDS = 60.0
OUR_FOLDERS = ("profiles", "workflows", "tasks", "flows", "deployments")
STEADY_SECONDS = 30.0
"""What lived so long did not die at once: its next start is not held back."""
LONGEST_PAUSE_SECONDS = 60.0

ANSWER_SECONDS = 10.0
"""A new flow run costs a server on SQLite up to 2 s."""
BUSY, BUSY_SECONDS = (429, 503), (0.1, 0.3, 0.9, 2.0)
"""What it answers while its database is held by somebody else, and the pauses until it is asked again."""
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "CRASHED")


class Service(StrEnum):
    """The background processes of a home."""

    SERVER = "server"
    RUNNER = "runner"
    MONITOR = "monitor"


MODULES = {Service.RUNNER: "deployments.processes.runner", Service.MONITOR: "deployments.processes.monitor_loop"}
"""What `python -m` starts; the server is Prefect's own."""


@dataclass(frozen=True)
class Wish:
    """What `primus up` was asked for, until `primus down`."""

    cluster: str
    """Name or path of the cluster profile that is served and watched."""
    api_url: str = ""
    """Address of the API of somebody else's server, which is not ours to keep alive; "": this home's own."""


def code_stamp() -> str:
    """Identifies one state of the code: the interpreter and the newest change of any of our sources."""
    top = Path(__file__).resolve().parents[2]
    newest = max(path.stat().st_mtime_ns for name in OUR_FOLDERS for path in (top / name).rglob("*.py"))
    return f"{sys.executable} {newest}"


def wish_of(home: Path) -> Wish | None:
    """What should run in this home; None: nothing was asked for, or it was ended."""
    try:
        return Wish(**json.loads((home / WISH).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def alive(home: Path, service: Service) -> Recorded | None:
    """The living process of a service, None where there is none."""
    return recorded(home / f"{service}.json")


def serving(home: Path, api_url: str | None = None) -> str:
    """Id of the `train` deployment that the living runner of this home serves; "" where none does.

    With an `api_url`, only a runner for the server at this address counts.
    """
    runner, ready = alive(home, Service.RUNNER), recorded(home / READY)
    if runner is None or ready is None or ready.pid != runner.pid:
        return ""
    return ready.detail if api_url is None or runner.detail.partition(" ")[0] == api_url else ""


def is_ready(home: Path, deployment: str) -> None:
    """Record that this process, the runner, serves the deployment with this id."""
    home.mkdir(parents=True, exist_ok=True)
    record(home / READY, os.getpid(), deployment)


def up(home: Path, cluster: str, told: Callable[[str], None]) -> str:
    """Start what does not run, and wait until all of it serves; the address of the API. Safe to repeat.

    A runner or a loop of an older state of the code, or of another cluster, is replaced: training goes on meanwhile.

    `told` gets a line for each process that is started.

    Raises:
        Unavailable: something does not start; its log is named.
        ProfileError: what the environment names is no API that lets us in; nothing was started.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    wish = Wish(cluster, named_server(home))  # before anything is started for it
    with one_at_a_time(home / "up.lock"):
        _write_wish(home, wish)
        begun = partial(_tell_server, told)
        url = wish.api_url or begin_own_server(home, begun)
        for service in MODULES:
            if _start(home, service, url, cluster):
                told(f"starting the {'flow runner' if service is Service.RUNNER else 'monitor'} of {cluster}")
    if not wish.api_url:
        wait_for_server(url, home)
    _wait_until_serving(home)
    return url


def revive(home: Path, tries: Tries) -> list[Service]:
    """Restart what should run in this home and died; returns what that was. A failed start is retried later.

    Raises:
        OSError: no process can be started.
    """
    started = list[Service]()
    if not _dead(home, wish_of(home)):
        return started
    with one_at_a_time(home / "up.lock"):
        wish = wish_of(home)
        for service in _dead(home, wish):
            if wish is None or not tries.may(service):
                continue
            url = wish.api_url or begin_own_server(home)
            if service is Service.SERVER or _start(home, service, url, wish.cluster):
                tries.note(service)
                started.append(service)
    return started


def _dead(home: Path, wish: Wish | None) -> list[Service]:
    if wish is None:
        return []
    ours = [one for one in Service if one is not Service.SERVER or not wish.api_url]
    return [service for service in ours if alive(home, service) is None]


@dataclass
class Tries:
    """When each service was started last: what dies at once is started after 1, 2, 4 … 60 s."""

    clock: Callable[[], float] = time.monotonic
    last: dict[Service, tuple[float, int]] = field(default_factory=dict[Service, tuple[float, int]])

    def may(self, service: Service) -> bool:
        """Whether it is time for the next start."""
        at, number = self.last.get(service, (-STEADY_SECONDS, 0))
        return self.clock() - at >= min(LONGEST_PAUSE_SECONDS, 2.0 ** min(number - 1, 10)) if number else True

    def note(self, service: Service) -> None:
        """It was started now."""
        at, number = self.last.get(service, (-STEADY_SECONDS, 0))
        steady = self.clock() - at > STEADY_SECONDS + LONGEST_PAUSE_SECONDS
        self.last[service] = (self.clock(), 1 if steady else number + 1)


def down(home: Path) -> list[str]:
    """End all of it, not the training; what lived. Safe to repeat.

    Raises:
        Unavailable: a process does not end.
    """
    if not home.exists():
        return []
    with one_at_a_time(home / "up.lock"):
        (home / WISH).unlink(missing_ok=True)
        ended = [service.value for service in (Service.MONITOR, Service.RUNNER) if stop(home / f"{service}.json")]
        (home / READY).unlink(missing_ok=True)
        return [*ended, Service.SERVER.value] if stop_server(home) else ended


def _start(home: Path, service: Service, url: str, cluster: str) -> bool:
    """Start a runner or a loop unless the right one lives."""
    # One that was started before a password was asked for does not know it.
    door = "locked" if password_of(home) else "open"
    wanted, found = f"{url} {cluster} {door} {code_stamp()}", alive(home, service)
    if found is not None and found.detail == wanted:
        return False
    stop(home / f"{service}.json")
    environment = {**quiet_environment(home), "PREFECT_API_URL": url, "PRIMUS_HOME": str(home), CLUSTER: cluster}
    pid = spawn([sys.executable, "-m", MODULES[service]], home / "logs" / f"{service}.log", environment)
    record(home / f"{service}.json", pid, wanted)
    return True


def _wait_until_serving(home: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not serving(home):
        log = home / "logs" / f"{Service.RUNNER}.log"
        if alive(home, Service.RUNNER) is None:
            raise Unavailable(f"the flow runner ended at once: {last_words(log)}; see {log}")
        if time.monotonic() > deadline:
            raise Unavailable(f"the flow runner does not serve after {READY_SECONDS:g} s; see {log}")
        time.sleep(0.05)


def _write_wish(home: Path, wish: Wish) -> None:
    draft = home / f"{WISH}.{os.getpid()}"
    draft.write_text(json.dumps(asdict(wish)))
    draft.replace(home / WISH)


def _tell_server(told: Callable[[str], None], url: str) -> None:
    told(f"starting the Prefect server at {url.removesuffix('/api')}")


def ask_runner(home: Path, run: str, why: str) -> bool:
    """Have the run driven by the runner of this home; False where none lives that serves.

    The flow run that the run had goes on, so that one page tells the whole run. Safe to repeat.

    The run stands in the ledger; `why` is what the flow run's state says.

    Raises:
        Unavailable: the server does not take it.
    """
    url = server_url(home)
    if url is None or not (deployment := serving(home, url)):
        return False
    body = {
        "parameters": {"request": {"name": run, "profile": ""}},
        "state": {"type": "SCHEDULED", "message": why},
        "name": f"train {run}",
        "tags": [f"run:{run}"],
        "idempotency_key": f"{run}@{deployment}",
    }
    made = _post(home, f"{url}/deployments/{deployment}/create_flow_run", body)
    state: dict[str, Any] = made.get("state") or {}
    if state.get("type") in ENDED:
        again = {"state": {"type": "SCHEDULED", "name": "TakenOver", "message": why}, "force": True}
        _post(home, f"{url}/flow_runs/{made['id']}/set_state", again)
    runner = alive(home, Service.RUNNER)
    if runner is not None:
        with suppress(ProcessLookupError):
            os.kill(runner.pid, signal.SIGUSR1)  # it looks now instead of within a second
    return True


def _post(home: Path, url: str, body: dict[str, Any]) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"}
    password = os.environ.get(CLIENT_PASSWORD) or password_of(home)
    if password:
        headers["Authorization"] = "Basic " + base64.b64encode(password.encode()).decode()
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")  # noqa: S310 - our server
    for seconds in (*BUSY_SECONDS, None):
        try:
            with opener(url).open(request, timeout=ANSWER_SECONDS) as answer:
                return json.load(answer)
        except (OSError, ValueError) as error:  # urllib's own errors are of the first kind
            busy = isinstance(error, urllib.error.HTTPError) and error.code in BUSY
            if not busy or seconds is None:
                raise Unavailable(f"the Prefect server does not take the run: {error}") from error
            time.sleep(seconds)
    raise AssertionError("the last try returns or raises")
