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
from collections.abc import Callable, Iterable
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
from tasks.processes import (
    Recorded,
    end_services,
    last_words,
    no_room,
    record,
    recorded,
    remove,
    start_recorded,
    stop,
    write_whole,
)
from tasks.settings import CLUSTER

WISH, STARTS = "up.json", "starts.json"
"""What should run, and the last starts of what died."""
READY = "runner-ready.json"
"""Written by the runner itself once its deployments are served."""
READY_SECONDS = 60.0
OUR_FOLDERS = ("profiles", "workflows", "tasks", "flows", "deployments")
STEADY_SECONDS = 30.0
"""What lived so long did not die at once: its next start is not held back."""
LONGEST_PAUSE_SECONDS = 60.0
MOST_STARTS, SPENT_PAUSE_SECONDS = 10, 600.0
"""In a row, with the pauses above; and the pause once they are spent."""

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


def revive(home: Path, tries: Tries) -> list[str]:
    """Restart what should run in this home and died; returns what is to be told of it. A failed start is retried later.

    What can be started but dies again is held back longer each time; see `Tries`.
    """
    told = list[str]()
    wish = wish_of(home)
    tries.forget(service for service in Service if (found := alive(home, service)) and found.lived() > STEADY_SECONDS)
    if not (dead := _dead(home, wish)) or not any(tries.may(service) for service in dead):
        return told
    with one_at_a_time(home / "up.lock"):
        wish = wish_of(home)
        for service in _dead(home, wish):
            if wish is None or not tries.may(service):
                continue
            ended = no_room(home) or last_words(log_of(home, service))
            tries.note(service, ended)  # before it: a start that fails, or whose maker dies, counts as well
            try:
                url = wish.api_url or begin_own_server(home)
                begun = service is Service.SERVER or _start(home, service, url, wish.cluster)
            except Unavailable as error:
                told.append(f"{service}: {error}; {tries.next_in_words(service)}")
            else:
                told += [f"{service} ended ({ended}), started again; {tries.next_in_words(service)}"] if begun else []
    return told


def log_of(home: Path, service: Service) -> Path:
    """What it writes."""
    return home / "logs" / f"{service}.log"


def _dead(home: Path, wish: Wish | None) -> list[Service]:
    if wish is None:
        return []
    ours = [one for one in Service if one is not Service.SERVER or not wish.api_url]
    return [service for service in ours if alive(home, service) is None]


@dataclass(frozen=True)
class Start:
    """The last start of a service that had died, and how many there were in a row."""

    at: float
    """Unix seconds."""
    number: int
    why: str
    """How the one before it ended."""


@dataclass
class Tries:
    """When each service was started last: what dies at once is started after 1, 2, 4 … 60 s, ten times in a row.

    From then on once in ten minutes: what keeps it from living is seldom over sooner, and each start costs seconds of a
    processor and 170 MB. All who look after a home share one file; one who cannot write it remembers by himself.
    `primus up` begins anew.
    """

    home: Path
    clock: Callable[[], float] = time.time
    own: dict[Service, Start] = field(default_factory=dict[Service, Start])

    def may(self, service: Service) -> bool:
        """Whether it is time for the next start."""
        last = self.known().get(service)
        # A clock that was set back keeps nobody waiting for it to catch up.
        return last is None or not 0.0 <= self.clock() - last.at < pause_after(last.number)

    def note(self, service: Service, why: str) -> None:
        """It is started now."""
        known = self.known()
        last = known.get(service)
        self._write(known | {service: Start(self.clock(), 1 if last is None else last.number + 1, why)})

    def forget(self, services: Iterable[Service]) -> None:
        """They live."""
        known = self.known()
        if gone := known.keys() & set(services):
            self._write({service: start for service, start in known.items() if service not in gone})

    def next_in_words(self, service: Service) -> str:
        """Which start in a row it was, and when the next one may come."""
        last = self.known()[service]
        return f"start {last.number} in a row, the next one after {pause_after(last.number):g} s at the soonest"

    def known(self) -> dict[Service, Start]:
        """The last start of each, the newer one of what the file says and of what this process did."""
        found = dict(self.own)
        for name, row in _rows(self.home / STARTS).items():
            with suppress(TypeError, ValueError):
                service, start = Service(name), Start(**row)
                if service not in found or found[service].at <= start.at:
                    found[service] = start
        return found

    def _write(self, known: dict[Service, Start]) -> None:
        self.own = known
        with suppress(OSError):
            write_whole(self.home / STARTS, json.dumps({str(one): asdict(start) for one, start in known.items()}))


def _rows(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def pause_after(number: int) -> float:
    """Seconds between start number `number` in a row of a service and the next one."""
    return min(LONGEST_PAUSE_SECONDS, 2.0 ** min(number - 1, 10)) if number < MOST_STARTS else SPENT_PAUSE_SECONDS


def down(home: Path) -> list[str]:
    """End all of it, not the training, also what no pid file names; what lived. Safe to repeat.

    Raises:
        Unavailable: a process does not end.
    """
    if not home.exists():
        return []
    with one_at_a_time(home / "up.lock"):
        for name in (WISH, STARTS):
            remove(home / name)
        ended = [service.value for service in (Service.MONITOR, Service.RUNNER) if _stop(home, service)]
        remove(home / READY)
        return [*ended, Service.SERVER.value] if stop_server(home) else ended


def _stop(home: Path, service: Service) -> bool:
    """End every process of this service; True where one lived."""
    named = stop(home / f"{service}.json")
    return bool(end_services(home, [MODULES[service]])) or named


def _start(home: Path, service: Service, url: str, cluster: str) -> bool:
    """Start a runner or a loop unless the right one lives."""
    # One that was started before a password was asked for does not know it.
    door = "locked" if password_of(home) else "open"
    wanted, found = f"{url} {cluster} {door} {code_stamp()}", alive(home, service)
    if found is not None and found.detail == wanted:
        return False
    _stop(home, service)
    environment = {**quiet_environment(home), "PREFECT_API_URL": url, "PRIMUS_HOME": str(home), CLUSTER: cluster}
    start_recorded(home / f"{service}.json", MODULES[service], (), log_of(home, service), environment, wanted)
    return True


def _wait_until_serving(home: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not serving(home):
        log = log_of(home, Service.RUNNER)
        if alive(home, Service.RUNNER) is None:
            raise Unavailable(f"the flow runner ended at once: {no_room(home) or last_words(log)}; see {log}")
        if time.monotonic() > deadline:
            why = f" ({full})" if (full := no_room(home)) else ""
            raise Unavailable(f"the flow runner does not serve after {READY_SECONDS:g} s{why}; see {log}")
        time.sleep(0.05)


def _write_wish(home: Path, wish: Wish) -> None:
    if why := no_room(home):
        raise Unavailable(f"nothing is started: {why}", 5.0)
    write_whole(home / WISH, json.dumps(asdict(wish)))
    (home / STARTS).unlink(missing_ok=True)


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
