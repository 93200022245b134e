"""`primus report --since 366d` of a year: 10,000 runs, 110,000 attempts, 100,000 incidents, beside a bare read of rows.

Run it by itself (`python -m tests.benchmarks.fleet [runs]`). The ledger is made as a year would leave it: a summary of
every run that ended, twenty runs that still live, and the steps in their packed batches, which nobody unpacks but those
of the living.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

from profiles.vocabulary import Action, Mode, RunState, Tile
from tasks.ledger.attempts import pack
from tasks.ledger.ledger import Ledger
from tasks.ledger.rows import to_row
from tasks.ledger.tables import ATTEMPTS, INCIDENTS, RUNS, STEP_BATCHES, SUMMARIES
from tests.support.builders.simulated_runs import FAULTS, PRICE, resolved
from workflows.model.records import AttemptRecord, IncidentRecord, RunRecord, StepRow

RUNS_MADE, ATTEMPTS_EACH, INCIDENTS_EACH, LIVING = 10_000, 11, 10, 20
LIVING_STEPS = 2000
YEAR, HOUR = 365 * 86400.0, 3600.0
SECONDS_GOAL, MEGABYTES_GOAL = 5.0, 1024
REPEATS = 3
NODES = 500
SUMMARY_STATES = {
    Tile.PRODUCTIVE: 0.86,
    Tile.CHECKPOINT_STALL: 0.02,
    Tile.QUEUE: 0.02,
    Tile.DETECT: 0.03,
    Tile.RESTART: 0.03,
    Tile.ROLLBACK: 0.04,
}
Rows = dict[Any, list[dict[str, Any]]]


def main() -> int:
    """Print each figure beside its goal; 1 where one is missed."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS_MADE
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        path = make(Path(folder), count)
        size = path.stat().st_size / 1e6
        print(f"a ledger of {count:,} runs, {size:.0f} MB, made in {time.perf_counter() - began:.0f} s")
        runs = [reported(Path(folder), count) for _ in range(REPEATS)]
        seconds, busy, megabytes = (
            min(run[0] for run in runs),
            min(run[1] for run in runs),
            max(run[2] for run in runs),
        )
        bare = min(read_bare(path) for _ in range(REPEATS))
        empty = min(nothing() for _ in range(REPEATS))
    print(
        f"  primus report --since 366d --json in {seconds:.2f} s (goal <= {SECONDS_GOAL} s), {busy:.2f} s of one core, "
        f"{megabytes:.0f} MB resident (goal <= {MEGABYTES_GOAL} MB); until Python has loaded pandas and SQLAlchemy "
        f"{empty:.2f} s"
    )
    print(f"  a loop that reads the same rows with sqlite3 alone: {bare:.2f} s, ratio {seconds / bare:.1f}")
    return 0 if seconds <= SECONDS_GOAL and megabytes <= MEGABYTES_GOAL else 1


def make(home: Path, count: int) -> Path:
    """The ledger of a year."""
    path = home / "ledger.sqlite"
    ledger = Ledger(f"sqlite:///{path}")
    ledger.runs()
    dice, now = random.Random(7), time.time()
    profile = {nodes: resolved(nodes, PRICE).model_dump(mode="json") for nodes in (2, 4, 8, 16)}
    for start in range(0, count, 500):
        rows: Rows = {table: [] for table in (RUNS, SUMMARIES, ATTEMPTS, INCIDENTS, STEP_BATCHES)}
        for number in range(start, min(count, start + 500)):
            _add_run(rows, number, dice, now, living=number < LIVING, profile=profile)
        with ledger.database.writing() as transaction:
            for table, mine in rows.items():
                transaction.insert_all(table, mine)
    ledger.close()
    return path


def _add_run(
    rows: Rows, number: int, dice: random.Random, now: float, *, living: bool, profile: dict[int, Any]
) -> None:
    name, nodes = f"run-{number:05d}", dice.choice((2, 4, 8, 16))
    length = dice.uniform(2 * HOUR, 20 * HOUR)
    begin = now - length if living else now - YEAR + dice.random() * (YEAR - length)
    end, state = (None, RunState.RUNNING) if living else (begin + length, RunState.SUCCEEDED)
    record = RunRecord(name, state, "", "demo", profile[nodes], f"d{nodes}", "local", Mode.ACT, begin, ended_at=end)
    rows[RUNS].append(to_row(record))
    each = length / ATTEMPTS_EACH
    classes: dict[str, float] = {}
    for attempt in range(1, ATTEMPTS_EACH + 1):
        at = begin + (attempt - 1) * each
        last = attempt == ATTEMPTS_EACH
        over = None if living and last else at + each * 0.97
        held = AttemptRecord(
            name, attempt, at, "first", tuple(f"node-{i}" for i in range(nodes)), applied_at=at + 20, ended_at=over
        )
        rows[ATTEMPTS].append(to_row(held))
        rows[STEP_BATCHES].append(_batch(name, attempt, at, LIVING_STEPS // ATTEMPTS_EACH if living else 16, each))
        if not last:
            fault = dice.choice(FAULTS)
            classes[fault.value] = classes.get(fault.value, 0.0) + each * 0.1
            rows[INCIDENTS].append(to_row(_incident(name, attempt, at + each * 0.95, fault, dice)))
    if end is not None:
        rows[SUMMARIES].append(_summary(name, begin, end, nodes, classes))


def _incident(run: str, attempt: int, at: float, fault: Any, dice: random.Random) -> IncidentRecord:
    return IncidentRecord(
        f"{run}-a{attempt}-i1",
        run,
        attempt,
        at,
        at + 5.0,
        "pod-failed",
        fault,
        0.9,
        ((f"node-{dice.randrange(NODES)}", dice.randrange(8)),),
        evidence=("x" * 200, "y" * 200),
        action=Action.NEW_ATTEMPT,
        why="other nodes, newest proven checkpoint",
    )


def _batch(run: str, attempt: int, at: float, count: int, each: float) -> dict[str, Any]:
    steps = [StepRow(attempt * 1000 + i, at + 60 + i * (each - 120) / count, None, 2.0) for i in range(count)]
    return {
        "run": run,
        "attempt": attempt,
        "count": count,
        "first_at": steps[0].at,
        "last_at": steps[-1].at,
        "packed": pack(steps),
    }


def _summary(run: str, begin: float, end: float, nodes: int, classes: dict[str, float]) -> dict[str, Any]:
    by_state = {state.value: (end - begin) * share for state, share in SUMMARY_STATES.items()}
    hours = int((end - begin) / HOUR) + 1
    piece = {name: value / hours for name, value in by_state.items()}
    width = (end - begin) / hours
    pieces = [(begin + i * width, begin + (i + 1) * width, piece, {}) for i in range(hours)]
    return {
        "run": run,
        "begin": begin,
        "end": end,
        "gpus": nodes * 8,
        "nodes": nodes,
        "price_per_gpu_hour": PRICE,
        "currency": "USD",
        "by_state": json.dumps(by_state),
        "lost_by_class": json.dumps(classes),
        "stretches": zlib.compress(json.dumps(pieces).encode(), 1),
    }


def reported(home: Path, count: int) -> tuple[float, float, float]:
    """Seconds, processor seconds and megabytes of the whole command; what it says must be right."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "deployments.cli.main", "report", "--since", "366d", "--json"]
    environment = {**os.environ, "PRIMUS_HOME": str(home)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        answer = json.loads(child.stdout.read())
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    assert answer["run_count"] == count, answer["run_count"]
    assert answer["failures"]["count"] == count * INCIDENTS_EACH, answer["failures"]
    assert 0.8 < answer["goodput"]["of_used"] < 1, answer["goodput"]
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def read_bare(path: Path) -> float:
    """Seconds of reading the same columns into tuples, nothing made of them."""
    began = time.perf_counter()
    connection = sqlite3.connect(path)
    for query in (
        'SELECT name, cluster, state, created_at, ended_at, begin, "end", gpus, nodes, price_per_gpu_hour, currency, '
        "by_state, lost_by_class FROM runs LEFT JOIN summaries ON run = name",
        "SELECT run, applied_at, ended_at FROM attempts",
        "SELECT run, detected_at, fault_class, action, culprits FROM incidents ORDER BY detected_at",
    ):
        connection.execute(query).fetchall()
    connection.close()
    return time.perf_counter() - began


def nothing() -> float:
    """Seconds until an interpreter has loaded what the command needs."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import pandas, sqlalchemy"], check=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
