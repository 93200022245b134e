"""How many requests for flow runs, sent as docs/console.md shows, a home's own server refuses while a run trains.

Single requests and then eight clients at once, for later, so that the server alone is measured; then some that are due
at once: a driver takes each of them up and refuses it. None is sent twice, whatever is answered.

    python -m tests.benchmarks.flow_run_requests [--requests 2000] [--due 60]
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.support.harness.consoles import Console, console
from tests.support.harness.stages import PROFILE
from tests.support.running.waiting import until

CLIENTS = 8
LATER = "2199-01-01T00:00:00Z"
GOAL_REFUSED = 0
MADE = 201
WAIT_SECONDS = 120.0
"""Longer than the server waits for its own database."""
INSERTS = 200


@dataclass
class Answers:
    """What came back, by status, and how long each took."""

    statuses: Counter[int] = field(default_factory=Counter[int])
    seconds: list[float] = field(default_factory=list[float])
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def refused(self) -> int:
        """Answers that made no flow run."""
        return self.statuses.total() - self.statuses[MADE]


def ask(url: str, body: dict[str, Any], number: int, told: Answers) -> None:
    """So many requests one after the other, each over a connection of its own, as curl's."""
    for _ in range(number):
        began = time.monotonic()
        status = httpx.post(url, json=body, timeout=WAIT_SECONDS).status_code
        with told.lock:
            told.statuses[status] += 1
            told.seconds.append(time.monotonic() - began)


def asked(url: str, body: dict[str, Any], number: int, clients: int) -> Answers:
    """The answers to `number` requests by so many clients at once."""
    told = Answers()
    threads = [threading.Thread(target=ask, args=(url, body, number // clients, told)) for _ in range(clients)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return told


def bare_insert_seconds(folder: str) -> float:
    """Median of a row that SQLite writes on the same disk with nothing around it."""
    taken: list[float] = []
    with closing(sqlite3.connect(f"{folder}/bare.db")) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE t (x TEXT)")
        for _ in range(INSERTS):
            began = time.monotonic()
            with database:
                database.execute("INSERT INTO t VALUES ('x')")
            taken.append(time.monotonic() - began)
    return statistics.median(taken)


def tell(what: str, told: Answers) -> int:
    """Print a line of the result; how many were refused."""
    statuses = ", ".join(f"{number} x {status}" for status, number in sorted(told.statuses.items()))
    print(
        f"{what}: {told.refused} of {told.statuses.total()} refused ({statuses}); goal {GOAL_REFUSED}; "
        f"median {statistics.median(told.seconds):.3f} s, worst {max(told.seconds):.2f} s",
        flush=True,
    )
    return told.refused


def start_training(made: Console) -> None:
    """A run that goes on for as long as is measured."""
    made.primus("train", str(PROFILE), "--name", "beside", "--set", "steps=100000", "--detach")
    until("it trains", lambda: "step 1" in made.primus("status", "beside").stdout, made.told)


def main() -> int:
    """Print each figure beside its goal; 1 where one was missed."""
    reader = argparse.ArgumentParser()
    reader.add_argument("--requests", type=int, default=2000)
    reader.add_argument("--due", type=int, default=60)
    options = reader.parse_args()
    folders = tempfile.TemporaryDirectory(prefix="primus-bench-", ignore_cleanup_errors=True)
    with folders as folder, console(Path(folder)) as made:
        api = made.up()["api"]
        start_training(made)
        url = f"{api}/deployments/{made.deployment('train/local')['id']}/create_flow_run"
        later = {
            "parameters": {"request": {"profile": "demo"}},
            "state": {"type": "SCHEDULED", "state_details": {"scheduled_time": LATER}},
        }
        due = {"parameters": {"request": {"profile": "no-such-profile"}}}
        refused = tell("one at a time, for later", asked(url, later, options.requests, 1))
        refused += tell(f"{CLIENTS} at once, for later", asked(url, later, options.requests, CLIENTS))
        refused += tell("one at a time, due at once", asked(url, due, options.due, 1))
        print(f"a row that SQLite writes by itself: median {bare_insert_seconds(folder):.4f} s")
        made.primus("stop", "beside", code=None)
    return 1 if refused > GOAL_REFUSED else 0


if __name__ == "__main__":
    raise SystemExit(main())
