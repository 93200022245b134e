"""Runs that were never trained: a clock, a die, and what the ledger would hold of them. For reports and benchmarks."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from profiles.resolve import Resolved
from profiles.vocabulary import Action, FaultClass, Mode, RunState, VerdictWord
from tasks.ledger.ledger import Ledger
from tasks.ledger.rows import to_row
from tasks.ledger.tables import ATTEMPTS, CHECKPOINTS, INCIDENTS, MARKS, RUNS
from tests.support.builders.attempt_plans import a_gpu_plan
from workflows.model.records import (
    AttemptRecord,
    CheckpointRecord,
    IncidentRecord,
    MarkRecord,
    RunRecord,
    StepRow,
    Story,
)

FAULTS = (
    FaultClass.NODE_LOST,
    FaultClass.GPU_HARDWARE,
    FaultClass.HANG,
    FaultClass.FABRIC,
    FaultClass.NUMERIC,
    FaultClass.PREEMPTED,
    FaultClass.STORAGE,
)
NOON = 1_790_000_000.0
"""When the first run is submitted: Unix seconds."""
PRICE = 2.5


def resolved(nodes: int = 4, price: float | None = None) -> Resolved:
    """A run on whole nodes of eight GPUs."""
    plain = a_gpu_plan(replicas=nodes).resolved
    pool = plain.pool.model_copy(update={"price_per_gpu_hour": price})
    cluster = plain.cluster.model_copy(update={"pools": (pool,)})
    return plain.model_copy(update={"pool": pool, "cluster": cluster})


@dataclass
class Simulation:
    """One run; times in Unix seconds."""

    name: str
    seed: int
    nodes: int = 4
    steps_to_do: int = 300
    step_seconds: float = 2.0
    save_every: int = 20
    save_seconds: float = 1.5
    mttf_seconds: float = 240.0
    begin: float = NOON
    price: float | None = PRICE
    losses: bool = True
    attempts: list[AttemptRecord] = field(default_factory=list[AttemptRecord])
    incidents: list[IncidentRecord] = field(default_factory=list[IncidentRecord])
    marks: list[MarkRecord] = field(default_factory=list[MarkRecord])
    checkpoints: list[CheckpointRecord] = field(default_factory=list[CheckpointRecord])
    steps: dict[int, list[StepRow]] = field(default_factory=lambda: {})
    record: RunRecord | None = None

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.now = self.begin
        self.done = 0
        self.saved = 0
        while not self._attempt():
            pass
        run = resolved(self.nodes, self.price)
        why, state = f"all {self.steps_to_do} steps are done", RunState.SUCCEEDED
        self.record = RunRecord(
            self.name,
            state,
            why,
            run.run.name,
            run.model_dump(mode="json"),
            f"digest-{self.nodes}",
            run.cluster.name,
            Mode.ACT,
            self.begin,
            ended_at=self.now,
        )

    @property
    def story(self) -> Story:
        """As the ledger would tell it."""
        assert self.record is not None
        parts = (self.attempts, self.incidents, self.checkpoints, self.marks)
        attempts, incidents, checkpoints, marks = (tuple(part) for part in parts)
        return Story(self.record, attempts, incidents, checkpoints=checkpoints, marks=marks)

    def _attempt(self) -> bool:
        """One attempt, until it fails or the run is done: then True."""
        number = len(self.attempts) + 1
        planned = self.now
        for low, high in ((0.2, 1.0), (3.0, 9.0), (5.0, 60.0) if number == 1 else (0.5, 3.0), (4.0, 12.0)):
            self.now += self.dice.uniform(low, high)
        names = list(range(self.nodes))
        if number > 1:
            names[1] = self.nodes + (number - 2) % 4  # one of four spares
        nodes = tuple(f"node-{index:02d}" for index in names)
        attempt = AttemptRecord(
            self.name,
            number,
            planned,
            "first" if number == 1 else f"new-attempt after {self.incidents[-1].fault_class}",
            nodes=nodes,
            submitted_at=planned + 0.2,
            applied_at=planned + (self.now - planned) * 0.4,
            running_at=planned + (self.now - planned) * 0.7,
            resumed_from_step=self.saved or None,
            resume_path=f"/runs/{self.name}/step-{self.saved}" if self.saved else "",
            resume_proof=VerdictWord.PASS if self.saved else None,
        )
        if self.saved:
            self._pause(number, "restore", self.dice.uniform(1.0, 4.0))
        rows = self._train(number, self.now + self.dice.expovariate(1 / self.mttf_seconds))
        self.steps[number] = rows
        if rows:
            first, last = rows[0], rows[-1]
            seen = {
                "first_step": first.step,
                "first_step_at": first.at,
                "last_step": last.step,
                "last_step_at": last.at,
            }
            attempt = replace(attempt, **seen)  # type: ignore[arg-type]
        over = self.done >= self.steps_to_do
        outcome = "succeeded" if over else str(self._fail(number, nodes))
        self.attempts.append(replace(attempt, ended_at=self.now, outcome=outcome))
        return over

    def _train(self, number: int, fails_at: float) -> list[StepRow]:
        rows: list[StepRow] = []
        self.done = self.saved
        while self.done < self.steps_to_do and self.now < fails_at:
            took = self.step_seconds * self.dice.uniform(0.97, 1.03) * (3.0 if self.dice.random() < 0.01 else 1.0)
            self.now += took
            self.done += 1
            value = 2.0 + 6.0 * math.exp(-self.done / 90) + self.dice.gauss(0, 0.05)
            rows.append(StepRow(self.done, self.now, took, value if self.losses else None))
            if self.done % self.save_every == 0:
                self._pause(number, "checkpoint", self.save_seconds)
                self.saved = self.done
                path = f"/runs/{self.name}/step-{self.done}"
                verdict = (VerdictWord.PASS, "every digest agrees", 3_000_000_000, "primus")
                self.checkpoints.append(CheckpointRecord(self.name, self.done, path, number, self.now, *verdict))
            if self.done % 97 == 0:
                self._pause(number, "evaluation", 5.0)
        return rows

    def _pause(self, number: int, word: str, seconds: float) -> None:
        self.marks.append(MarkRecord(self.name, number, f"{word}-begin", self.now))
        self.now += seconds
        self.marks.append(MarkRecord(self.name, number, f"{word}-end", self.now))

    def _fail(self, number: int, nodes: Sequence[str]) -> FaultClass:
        happened, fault = self.now, self.dice.choice(FAULTS)
        self.now += self.dice.uniform(0.5, 25.0)
        detected = self.now
        self.now += self.dice.uniform(0.5, 6.0)
        culprit = nodes[self.dice.randrange(len(nodes))]
        self.marks += [
            MarkRecord(self.name, number, "fault", happened),
            MarkRecord(self.name, number, "detected", detected),
            MarkRecord(self.name, number, "decided", self.now),
        ]
        self.incidents.append(
            IncidentRecord(
                f"{self.name}-a{number}-i1",
                self.name,
                number,
                happened,
                detected,
                "pod-failed",
                fault,
                round(self.dice.uniform(0.6, 0.99), 2),
                ((culprit, self.dice.randrange(8)),) if fault is not FaultClass.NUMERIC else (),
                step=self.done,
                evidence=(f"{culprit} kernel: something <bad> & long happened " + "x" * 60, "a second line"),
                action=Action.NEW_ATTEMPT,
                why=f"{fault} on {culprit}: other nodes, newest proven checkpoint",
                would_change="a second failure at the same step",
                charged=fault is FaultClass.HANG,
            )
        )
        return fault


def keep(ledger: Ledger, runs: Sequence[Simulation]) -> None:
    """Write runs as they would stand in a ledger."""
    with ledger.database.writing() as transaction:
        for table, rows in (
            (RUNS, [run.record for run in runs if run.record]),
            (ATTEMPTS, [item for run in runs for item in run.attempts]),
            (INCIDENTS, [item for run in runs for item in run.incidents]),
            (MARKS, [item for run in runs for item in run.marks]),
            (CHECKPOINTS, [item for run in runs for item in run.checkpoints]),
        ):
            records: list[Any] = list(rows)
            transaction.insert_all(table, [to_row(record) for record in records])
    for run in runs:
        for number, rows in run.steps.items():
            ledger.add_steps(run.name, number, rows)


def twenty(begin: float = NOON) -> list[Simulation]:
    """Twenty runs with faults, no two alike; the last ones are the odd ones."""
    found = [
        Simulation(
            f"run-{seed:02d}", seed, nodes=2 + seed % 5, begin=begin + 900.0 * seed, price=PRICE if seed % 2 else None
        )
        for seed in range(16)
    ]
    found += [
        Simulation("one-long-name-of-thirty-letters", 16, nodes=2, begin=begin, mttf_seconds=30, steps_to_do=200),
        Simulation("no-losses", 17, losses=False, begin=begin),
        Simulation("never-failed", 18, mttf_seconds=1e9, begin=begin),
        Simulation("many-nodes", 19, nodes=14, begin=begin, mttf_seconds=90, steps_to_do=900),
    ]
    return found
