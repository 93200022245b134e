"""The local Prefect server: one per home, in the background, on loopback."""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from deployments.processes import record, recorded, spawn, stop
from profiles.errors import Unavailable

START_SECONDS = 60.0
"""An empty home needs 8 to 10 s (migrations); a slow machine a few times that."""


def quiet_environment(home: Path) -> dict[str, str]:
    """The environment of every Prefect process of this home: its own data, no analytics, nothing from outside."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")}
    return {
        **kept,
        "PREFECT_HOME": str(home / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_LOGGING_LEVEL": "WARNING",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    }


def server_url(home: Path) -> str | None:
    """Address of the API: the one the environment names, else that of the living server of this home, else None."""
    named = os.environ.get("PREFECT_API_URL")
    if named:
        return named
    found = recorded(home / "server.json")
    return found.detail if found else None


def ensure_server(home: Path, started: Callable[[str], None] = lambda url: None) -> str:
    """Address of a server that answers; starts one where none is named and none lives.

    Args:
        home: PRIMUS_HOME.
        started: called with the address of a server that was just started, while it is still warming up.

    Raises:
        Unavailable: it does not answer; its log is named.
    """
    url = server_url(home)
    if url is None:
        home.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(home / "server.lock"):
            url = server_url(home)
            if url is None:
                url = _start(home)
                started(url)
    _wait(url, home)
    return url


def _start(home: Path) -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}/api"
    environment = {**quiet_environment(home), "PREFECT_UI_API_URL": url, "PREFECT_SERVER_API_PORT": str(port)}
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    pid = spawn(command, home / "logs" / "server.log", environment)
    record(home / "server.json", pid, url)
    return url


def _wait(url: str, home: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2.0):  # noqa: S310 - our own loopback address
                return
        except (urllib.error.URLError, OSError) as error:
            ours = recorded(home / "server.json")
            dead = "PREFECT_API_URL" not in os.environ and ours is None
            if dead or time.monotonic() > deadline:
                log = home / "logs" / "server.log"
                raise Unavailable(f"the Prefect server at {url} does not answer ({error}); see {log}") from error
        time.sleep(0.05)


def stop_server(home: Path) -> bool:
    """Stop the server of this home; True where one lived."""
    return stop(home / "server.json")


@contextmanager
def _one_at_a_time(path: Path) -> Generator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
