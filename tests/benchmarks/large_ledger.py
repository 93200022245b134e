"""A ledger as a year leaves it: 10,000 runs, 100,000 incidents, 12,500 nodes with several verdicts each.

The same seed gives the same rows. Every table tells the same story: an incident ends an attempt, the next attempt
answers it, its first step is when the run was back. `python -m tests.benchmarks.large_ledger FILE` writes one.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from sqlalchemy import Table

from profiles.loading.load import load_cluster, load_run, resolve
from profiles.vocabulary import Action, FaultClass
from tasks.ledger.attempts import BATCH, pack
from tasks.ledger.ledger import Ledger
from tasks.ledger.tables import (
    ACTIONS,
    APPROVALS,
    ATTEMPTS,
    CHANGES,
    CHECKPOINTS,
    HISTORY,
    INCIDENTS,
    NODE_STATES,
    RUNS,
    STEP_BATCHES,
    VERDICTS,
)
from workflows.model.records import StepRow

Row = dict[str, Any]
CHUNK = 500
DAY = 86400.0
CLASSES = (FaultClass.NODE_LOST, FaultClass.GPU_HARDWARE, FaultClass.FABRIC, FaultClass.PROCESS_KILLED, FaultClass.DATA)


@dataclass(frozen=True)
class Size:
    """How much there is."""

    runs: int = 10_000
    living: int = 100
    """How many of the runs, the newest ones, have not ended."""
    incidents: int = 100_000
    nodes: int = 12_500
    verdicts_per_node: int = 4
    waiting: int = 20
    """Questions that nobody answered yet."""
    days: float = 365.0
    steps_per_attempt: int = 0
    """Completed steps written for each attempt; 0: none."""
    cluster: str = "local"
    pool: str = "cpu"
    node_prefix: str = "node-"


@dataclass
class Rows:
    """What is to be written, by table."""

    size: Size
    end: float
    dice: random.Random
    resolved: str
    of: dict[str, list[Row]] = field(default_factory=dict[str, list[Row]])

    def add(self, table: Table, **row: Any) -> None:
        self.of.setdefault(table.name, []).append(row)

    def note(self, at: float, run: str, kind: str, subject: str, why: str) -> None:
        self.add(HISTORY, at=at, run=run, kind=kind, subject=subject, why=why, data="{}")


def make(url: str, size: Size = Size(), now: float | None = None, seed: int = 7) -> None:
    """Write such a ledger into an empty database."""
    end = time.time() if now is None else now
    ledger = Ledger(url, lambda: end)
    resolved = json.dumps(resolve(load_run("demo"), load_cluster("local")).model_dump(mode="json"))
    with ledger.database.writing() as transaction:
        for chunk in _chunks(_rows(Rows(size, end, random.Random(seed), resolved))):
            for table in (RUNS, ATTEMPTS, INCIDENTS, ACTIONS, APPROVALS, CHECKPOINTS, STEP_BATCHES, VERDICTS):
                transaction.insert_all(table, chunk.of.get(table.name, []))
            for table in (NODE_STATES, CHANGES):
                transaction.insert_all(table, chunk.of.get(table.name, []))
            history = sorted(chunk.of.get(HISTORY.name, []), key=lambda row: row["at"])
            if history:
                transaction.connection.execute(HISTORY.insert(), history)
    ledger.close()


def _chunks(rows: Iterator[Rows]) -> Iterator[Rows]:
    """Some runs or nodes at a time, so that memory does not grow with the ledger."""
    while some := list(islice(rows, CHUNK)):
        yield some[-1]
        some[-1].of.clear()


def _rows(rows: Rows) -> Iterator[Rows]:
    size, end, dice = rows.size, rows.end, rows.dice
    begin, left = end - size.days * DAY, size.incidents
    for index in range(size.runs):
        share = left // (size.runs - index)
        count = min(left, dice.randint(0, 2 * share) if index < size.runs - 1 else left)
        left -= count
        _run(rows, index, count, begin + (end - begin) * (index + 0.5) / size.runs)
        yield rows
    for number in range(size.nodes):
        _node(rows, number)
        yield rows


def _run(rows: Rows, index: int, incidents: int, start: float) -> None:
    size, end, dice, resolved = rows.size, rows.end, rows.dice, rows.resolved
    name, living = f"run-{index:05d}", index >= size.runs - size.living
    seconds = 300.0 + dice.random() * (min(end - start, 20 * 3600.0) - 300.0) if end - start > 400.0 else end - start
    length = seconds / (incidents + 1)
    state = "running" if living else dice.choice(("succeeded", "succeeded", "succeeded", "failed", "stopped"))
    waiting = living and index >= size.runs - size.waiting and incidents > 0
    row = {"name": name, "state": "waiting-for-approval" if waiting else state, "why": f"{state} as it should"}
    row |= {"profile": "demo", "digest": "d" * 64, "cluster": size.cluster, "mode": "act", "created_at": start}
    ended = None if living else start + seconds
    rows.add(RUNS, **row, ended_at=ended, paused=False, resumes=0, resumed_at=None, resolved=resolved)
    rows.add(CHANGES, run=name, number=incidents + 2)
    rows.note(start, name, "run", name, "submitted")
    for number in range(1, incidents + (1 if waiting else 2)):
        last = number == incidents + 1
        at = start + (number - 1) * length
        failed = str(dice.choices(CLASSES, (8, 5, 3, 3, 1))[0]) if not last else None
        outcome = failed or (None if living else state if state != "failed" else "user_code")
        _attempt(rows, name, number, at, length, outcome)
        if failed is not None:
            asks = waiting and number == incidents
            _incident(rows, name, number, at + 0.97 * length, _first_at(at + length, length), failed, asks)


def _first_at(at: float, length: float) -> float:
    return at + 0.05 * length


def _attempt(rows: Rows, run: str, number: int, at: float, length: float, outcome: str | None) -> None:
    size, dice = rows.size, rows.dice
    nodes = sorted({f"{size.node_prefix}{dice.randrange(max(1, size.nodes))}" for _ in range(2)})
    first_at, last_at = _first_at(at, length), at + 0.95 * length
    first = 1 + 100 * (number - 1)
    whole = {"run": run, "number": number, "planned_at": at, "why": "first" if number == 1 else "new-attempt"}
    whole |= {"nodes": json.dumps(nodes), "avoid_nodes": "[]", "max_resume_step": None, "excluded_checkpoints": "[]"}
    whole |= {"submitted_at": at + 0.001 * length, "applied_at": at + 0.01 * length, "running_at": at + 0.02 * length}
    whole |= {"ended_at": None if outcome is None else at + length, "outcome": outcome, "resume_path": ""}
    whole |= {"resumed_from_step": None if number == 1 else first - 1, "resume_proof": None, "restarts_in_place": 0}
    whole |= {"first_step": first, "first_step_at": first_at, "last_step": first + 120, "last_step_at": last_at}
    incident = "" if number == 1 else f"{run}-a{number - 1}-i1"
    rows.add(ATTEMPTS, **whole, loss=3.0 / (1 + number), incident=incident)
    rows.note(at, run, "attempt", f"{run}/{number}", str(whole["why"]))
    found = {"run": run, "step": first + 99, "path": f"/runs/{run}/step-{first + 99}", "attempt": number}
    rows.add(CHECKPOINTS, **found, at=last_at, verdict="pass", why="", bytes=1 << 30, format="dcp", tier="durable")
    if size.steps_per_attempt:
        _steps(rows, run, number, first, first_at, (last_at - first_at) / size.steps_per_attempt)


def _steps(rows: Rows, run: str, attempt: int, first: int, at: float, each: float) -> None:
    count = rows.size.steps_per_attempt
    steps = [StepRow(first + n, at + n * each, each, 3.0 / (1 + n)) for n in range(count)]
    for start in range(0, len(steps), BATCH):
        batch = steps[start : start + BATCH]
        times = {"count": len(batch), "first_at": batch[0].at, "last_at": batch[-1].at}
        rows.add(STEP_BATCHES, run=run, attempt=attempt, **times, packed=pack(batch))


def _incident(rows: Rows, run: str, number: int, at: float, back: float, fault: str, asks: bool) -> None:
    size, end, dice = rows.size, rows.end, rows.dice
    one, node = f"{run}-a{number}-i1", f"{size.node_prefix}{dice.randrange(max(1, size.nodes))}"
    action = Action.GIVE_UP if fault == FaultClass.DATA else Action.ASK if asks else Action.NEW_ATTEMPT
    why = f"{fault} on {node} ends the attempt; a spare takes its place"
    row = {"id": one, "run": run, "attempt": number, "at": at, "detected_at": at + dice.random() * 5.0}
    row |= {"signal": "pod-failed", "fault_class": fault, "confidence": round(0.5 + dice.random() / 2, 2)}
    row |= {"culprits": json.dumps([[node, dice.randrange(16)]]), "fingerprint": f"{fault}:{node}", "step": 100}
    row |= {"evidence": json.dumps([f"kernel of {node} said so", "exit code 137"]), "alternatives": "[]"}
    row |= {"action": str(action), "why": why, "would_change": "a second fault on the same node"}
    rows.add(INCIDENTS, **row, charged=True, resumed_at=None if asks else back, lost_nodes="[]")
    rows.note(at, run, "incident", one, why)
    carried_out = Action.NEW_ATTEMPT if asks else action
    done = {"id": f"{one}-{carried_out}", "run": run, "incident": one, "kind": str(carried_out), "target": ""}
    ended = {"state": "planned", "done_at": None} if asks else {"state": "done", "done_at": at + 1.0}
    rows.add(ACTIONS, **done, **ended, why=why, planned_at=at, detail="")
    rows.note(at, run, "action", f"{one}-{carried_out}", why)
    if asks or dice.random() < 0.05:
        asked = {"id": f"{one}-approval", "run": run, "incident": one, "question": f"new attempt without {node}?"}
        answered = None if asks else at + 60.0
        state, by = ("waiting", "") if asks else ("approved", "ops@console")
        times = {"asked_at": at, "expires_at": end + 3600.0, "answered_at": answered}
        rows.add(APPROVALS, **asked, **times, state=state, answered_by=by, why="" if asks else "go on")


def _node(rows: Rows, number: int) -> None:
    size, end, dice = rows.size, rows.end, rows.dice
    node, sick = f"{size.node_prefix}{number}", dice.random() < 0.02
    where = {"cluster": size.cluster, "node": node}
    reason = {"check": "gpu-count", "verdict": "fail", "measured": 7, "limit": 8, "unit": "GPUs", "evidence": "7 of 8"}
    for turn in range(size.verdicts_per_node):
        at = end - (size.verdicts_per_node - turn) * 6 * 3600.0 + dice.random() * 3600.0
        bad = sick and turn == size.verdicts_per_node - 1
        word = "fail" if bad else "pass"
        told = {"verdict": word, "depth": "gate", "at": at, "source": f"sweep-{turn}"}
        rows.add(VERDICTS, **where, **told, reasons=json.dumps([reason | {"verdict": word}]))
        rows.note(at, "", "verdict", f"{size.cluster}/{node}", f"gate: {word}")
    if sick or dice.random() < 0.1:
        at = end - 3000.0 * dice.random()
        first = {"state": "quarantined", "why": "gpu_hardware: 7 of 8 GPUs", "since": at, "incident": "i"}
        rows.add(NODE_STATES, **where, **first, pool=size.pool)
        if not sick:
            back = {"state": "schedulable", "why": "repaired", "since": at + 100.0, "incident": ""}
            rows.add(NODE_STATES, **where, **back, pool=size.pool)


if __name__ == "__main__":
    make(f"sqlite:///{sys.argv[1]}")
