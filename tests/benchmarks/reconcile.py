"""Reconciling 1,000 runs on 12,500 nodes: seconds of a round, and how long it holds up a thread beside it.

The limit measured in the same run is parsing the same lists as JSON, which whoever reads them must do anyway. The
cluster gives its lists from memory in pages of 500, as the client gets them; the ledger is a real one in a file.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deployments.cli.monitor import SWITCH_SECONDS
from flows.watching.reconcile import Reconciler
from profiles.loading.load import load_cluster
from profiles.vocabulary import Mode, RunState
from tasks.cluster import Seen, using
from tasks.context import World, standing_in
from tasks.ledger.ledger import Ledger
from tasks.ledger.rows import to_row
from tasks.ledger.tables import ATTEMPTS, LEASES, RUNS
from tasks.observe.reconcile import Scope
from tasks.observe.reflector import JobSetWatch
from tasks.settings import Settings
from tests.attempt_plans import a_gpu_plan
from tests.ledgers import a_run
from workflows import labels
from workflows.attempt.training import gang
from workflows.model.manifest import Condition
from workflows.model.nodes import Node
from workflows.model.records import AttemptRecord

RUNS_COUNT, NODES, PAGE, ROUNDS = 1000, 12_500, 500, 10
SECONDS_GOAL = 0.5
"""A tenth of the time between two rounds."""
HELD_GOAL = 0.1
"""Longest time that another thread is held up, in seconds: a page is parsed in one piece."""


class Lists:
    """A cluster of lists: pages of JSON text by kind."""

    name = "local"

    def __init__(self, pages: dict[str, list[str]]) -> None:
        self.pages = pages

    def watch(self, kind: str, _labels: Any = None, *, since: Any = None, **_: Any) -> Iterator[Seen]:
        if since is not None:
            threading.Event().wait()  # nothing changes
        for page in self.pages.get(kind, []):
            for item in json.loads(page):
                yield Seen("ADDED", item, "1")

    def list(self, _kind: str, _labels: Any = None) -> list[Any]:
        return []


def pages_of(items: Sequence[Any]) -> list[str]:
    return [json.dumps(items[begin : begin + PAGE]) for begin in range(0, len(items), PAGE)]


def jobset(template: Any, number: int) -> Any:
    """The JobSet of one run's first attempt."""
    made = json.loads(json.dumps(template))
    run = f"run-{number}"
    made["metadata"] |= {"name": f"{run}-a1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    made["metadata"]["labels"] |= {labels.RUN: run, labels.ATTEMPT: "1"}
    made["status"] = {"replicatedJobsStatus": [{"name": "trainer", "ready": 1, "active": 1}]}
    return made


def fill(ledger: Ledger, now: float) -> None:
    """Every run is driven and trains."""
    runs = [to_row(a_run(f"run-{n}", state=RunState.RUNNING, created_at=now - 900)) for n in range(RUNS_COUNT)]
    one = AttemptRecord("", 1, now - 899, "first", submitted_at=now - 890, applied_at=now - 880)
    attempts = [to_row(replace(one, run=f"run-{n}", last_step_at=now + 3600)) for n in range(RUNS_COUNT)]
    holder = {"fencing": 1, "held": True, "host": "elsewhere", "pid": 1, "started_at": 1.0, "expires_at": now + 3600}
    leases = [{"run": f"run-{n}", **holder} for n in range(RUNS_COUNT)]
    with ledger.database.writing() as transaction:
        for table, rows in ((RUNS, runs), (ATTEMPTS, attempts), (LEASES, leases)):
            transaction.insert_all(table, rows)


def longest_gap(work: Callable[[], None]) -> float:
    """The longest time in which a thread that wants to run every millisecond did not, while `work` runs."""
    ended, gaps = threading.Event(), [0.0]

    def tick() -> None:
        last = time.perf_counter()
        while not ended.wait(0.001):
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    thread = threading.Thread(target=tick)
    thread.start()
    work()
    ended.set()
    thread.join()
    return max(gaps)


@dataclass(frozen=True)
class Measured:
    """Rounds of one scope."""

    seconds: float
    """The best of them."""
    held: float
    """The longest time another thread was held up meanwhile, in seconds."""

    @classmethod
    def of(cls, reconciler: Reconciler, scope: Scope) -> Measured:
        taken = list[float]()

        def rounds() -> None:
            for _ in range(ROUNDS):
                began = time.perf_counter()
                found = reconciler.take(scope)
                taken.append(time.perf_counter() - began)
                assert (found.handled, found.young, found.away) == ((), (), ()), found

        held = longest_gap(rounds)
        return cls(min(taken), held)


def measured(lists: Lists, folder: str) -> dict[str, Measured]:
    """Rounds by how their JobSets are come by, and with all nodes."""
    nodes = [Node(f"node-{n}", "p", conditions=(Condition("Ready", "True"),)) for n in range(NODES)]
    ledger = Ledger(f"sqlite:///{Path(folder)}/ledger.sqlite")
    fill(ledger, time.time())
    said = list[str]()
    reconciler = Reconciler(load_cluster("local"), Mode.ACT, lambda line: said.append(line.why))
    world = World(Settings.from_environment({"PRIMUS_HOME": folder}), ledger)
    cluster: Any = lists
    with standing_in(world), using(cluster), JobSetWatch(cluster, time.time) as watch:
        while isinstance(watch.all(), str):
            time.sleep(0.01)
        scopes = {
            "watched": Scope(workflows=False, pods=False, jobsets=watch.all),
            "wide": Scope(pods=False, jobsets=watch.all, nodes=lambda: nodes),
            "listed": Scope(workflows=False, pods=False),
        }
        found = {name: Measured.of(reconciler, scope) for name, scope in scopes.items()}
    ledger.close()
    assert said == [], said[:3]
    return found


def main() -> int:
    """Print each figure beside its goal; 1 where one is missed."""
    sys.setswitchinterval(SWITCH_SECONDS)
    [template] = [item for item in gang(a_gpu_plan(12)) if item["kind"] == "JobSet"]
    lists = Lists({"JobSet": pages_of([jobset(template, number) for number in range(RUNS_COUNT)])})
    idle = longest_gap(lambda: time.sleep(1.0))
    with tempfile.TemporaryDirectory() as folder:
        found = measured(lists, folder)
    began = time.perf_counter()
    size = sum(len(page) for page in lists.pages["JobSet"] if json.loads(page))
    parsed = time.perf_counter() - began
    best, held, listed = found["watched"].seconds, found["watched"].held, found["listed"]
    print(f"{RUNS_COUNT} runs, {size / 1e6:.1f} MB of JobSets, {NODES} nodes, best of {ROUNDS} rounds")
    print(f"  a round {best:.3f} s (goal <= {SECONDS_GOAL} s), with all nodes {found['wide'].seconds:.3f} s")
    print(f"  one that lists JobSets {listed.seconds:.3f} s; parsing these lists alone {parsed:.3f} s")
    print(f"  another thread waits {held * 1000:.1f} ms at most (goal <= {HELD_GOAL * 1000:.0f} ms)")
    print(f"  beside one that lists {listed.held * 1000:.1f} ms, beside nothing {idle * 1000:.1f} ms")
    return 0 if best <= SECONDS_GOAL and held <= HELD_GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
