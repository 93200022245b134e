"""Asking the living flow runner of a home to drive a run, without Prefect's client: its import costs half a second."""

from __future__ import annotations

import base64
import json
import os
import signal
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from profiles.errors import Unavailable
from tasks.prefect_server import CLIENT_PASSWORD, password_of, server_url
from tasks.services import Service, alive, serving

ANSWER_SECONDS = 10.0
"""A new flow run costs a server on SQLite up to 2 s."""
BUSY, BUSY_SECONDS = (429, 503), (0.1, 0.3, 0.9, 2.0)
"""What it answers while its database is held by somebody else, and the pauses until it is asked again."""
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "CRASHED")


def ask_runner(home: Path, run: str, why: str) -> bool:
    """Have the run driven by the runner of this home; False where none lives that serves.

    The flow run that the run had goes on, so that one page tells the whole run. Safe to repeat.

    Args:
        home: PRIMUS_HOME.
        run: its name; it stands in the ledger.
        why: what the flow run's state says.

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
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:  # noqa: S310 - our server
                return json.load(answer)
        except (OSError, ValueError) as error:  # urllib's own errors are of the first kind
            busy = isinstance(error, urllib.error.HTTPError) and error.code in BUSY
            if not busy or seconds is None:
                raise Unavailable(f"the Prefect server does not take the run: {error}") from error
            time.sleep(seconds)
    raise AssertionError("the last try returns or raises")
