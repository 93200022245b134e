"""Grading a whole fleet by its past: 12,500 nodes, 60 checks, 30 days, from the ledger to the reasons.

Run it by itself (`python -m tests.benchmarks.grading [nodes]`). Readings come as the parsers give them, one object
each; what is measured, in seconds of a core, begins with the query and ends with the reasons as the ledger keeps them.
Beside it stand what nobody can do without: SQLite handing out the same bytes, and numpy reading the same arrays once.
One night is written as a test writes it, beside its bare JSON; the nights before are laid into the ledger packed.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from sqlalchemy import select

from flows.decisions.node_tests.grading.comparisons import DAYS, History, laid
from flows.decisions.node_tests.grading.grade import grade, records_of
from flows.decisions.node_tests.grading.history_arrays import DAY_SECONDS
from flows.decisions.node_tests.grading.model import (
    AtLeast,
    CheckRule,
    Depth,
    Drift,
    Fall,
    Limit,
    NodeGrade,
    NodeReadings,
    Peers,
)
from profiles.vocabulary import VerdictWord
from tasks.ledger.ledger import Ledger
from tasks.ledger.tables import LOOKS
from tasks.ledger.verdicts import shard_of
from workflows.model.verdict_history import Looks, pack
from workflows.programs.parsers.text import ParsedOutput, Reading

NODES, CHECKS = 12_500, 60
SECONDS_GOAL = 5.0
REPEATS = 3
LIMITS: tuple[Limit, ...] = (AtLeast(1500.0), Peers(), Fall(8.0), Drift(5.0))
USUAL, NOISE = 2000.0, 0.01
SLOW, DRIFTING = 20, 10
"""Nodes with one check far below their peers, and nodes that lost a tenth over the month."""
NOW = 1.8e9
CLUSTER = "fleet"
Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
T = TypeVar("T")


def main() -> int:
    """Print the figures beside their goals and limits; 1 where one is missed."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else NODES
    rules = [CheckRule(f"check-{n}", Depth.DEVICE, f"quantity-{n}", "GB/s", limits=LIMITS) for n in range(CHECKS)]
    names, before, today = made(count)
    readings = [node(rules, name, today[:, index].tolist()) for index, name in enumerate(names)]
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(f"sqlite:///{folder}/ledger.sqlite", lambda: NOW)
        fill(ledger, rules, names, before)
        gc.collect()
        gc.freeze()
        reading = [taken(lambda: past(ledger, rules, names)) for _ in range(REPEATS)]
        history = reading[0][1]
        grading = [taken(lambda: grade(rules, readings, history)) for _ in range(REPEATS)]
        bare = min(taken(lambda: bytes_of(ledger))[0] for _ in range(REPEATS))
        fine = say(grading, reading, (bare, min(taken(lambda: read(history, today))[0] for _ in range(REPEATS))))
        fine = write(ledger, rules, grading[0][1]) and fine
        ledger.close()
    return 0 if fine else 1


def say(
    grading: list[tuple[float, dict[str, NodeGrade]]], reading: list[tuple[float, History]], bare: tuple[float, float]
) -> bool:
    """Print what reading and grading took; whether it is within its goal and found what was hidden."""
    found = grading[0][1]
    words = [item.verdict for item in found.values()]
    again, told = sum(bool(item.repeat) for item in found.values()), sum(len(item.reasons) for item in found.values())
    read_s, grade_s = min(one for one, _ in reading), min(one for one, _ in grading)
    worst = max(one for one, _ in reading) + max(one for one, _ in grading)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"  {len(found):,} nodes x {CHECKS} checks x {DAYS} days read from the ledger in {read_s:.2f} s and graded in "
        f"{grade_s:.2f} s of one core: {read_s + grade_s:.2f} s, {told:,} reasons (goal <= {SECONDS_GOAL} s for "
        f"{NODES:,}; worst of {REPEATS}: {worst:.2f} s), {megabytes:.0f} MB resident"
    )
    print(f"  {words.count(VerdictWord.PASS):,} pass, {again} to be repeated, of {SLOW} slow and {DRIFTING} drifting")
    print(f"  SQLite handing out the same bytes: {bare[0]:.3f} s, ratio {read_s / bare[0]:.1f}")
    print(f"  numpy reading the same arrays once: {bare[1]:.3f} s, ratio {(read_s + grade_s) / bare[1]:.0f}")
    return read_s + grade_s <= SECONDS_GOAL and again >= SLOW + DRIFTING


def write(ledger: Ledger, rules: list[CheckRule], found: dict[str, NodeGrade]) -> bool:
    """Write the night's verdicts, and read which decide; whether both are within their goals."""
    records = [record for item in found.values() for record in records_of(item, rules, CLUSTER, NOW, "preflight")]
    writing, new = taken(lambda: ledger.add_verdicts(records))
    bare, _ = taken(lambda: [json.dumps(record.reasons) for record in records])
    print(
        f"  {new:,} verdicts of {CHECKS} checks written in {writing:.2f} s of one core (goal <= {SECONDS_GOAL} s for "
        f"{NODES:,}); their bare JSON: {bare:.2f} s, ratio {writing / bare:.1f}"
    )
    return writing <= SECONDS_GOAL and new == len(records)


def taken(what: Callable[[], T]) -> tuple[float, T]:
    """Seconds of a core, and what came out."""
    began = time.process_time()
    found = what()
    return time.process_time() - began, found


def made(count: int) -> tuple[tuple[str, ...], Array, Array]:
    """A healthy fleet with a few that are not: names, the past [checks, days, nodes] and today [checks, nodes]."""
    dice = np.random.default_rng(7)
    own = USUAL * (1 + NOISE * dice.standard_normal((CHECKS, 1, count)))
    series = own * (1 + NOISE * dice.standard_normal((CHECKS, DAYS + 1, count)))
    series[0, -1, :SLOW] = 0.85 * USUAL
    series[1, :, SLOW : SLOW + DRIFTING] *= np.linspace(1.0, 0.9, DAYS + 1)[:, np.newaxis]
    values = series[:, :-1].copy()
    values[dice.random(values.shape) < 0.02] = np.nan
    return tuple(f"node-{index}" for index in range(count)), values, series[:, -1].copy()


def fill(ledger: Ledger, rules: list[CheckRule], names: tuple[str, ...], before: Array) -> None:
    """Lay the past into the ledger as `add_verdicts` would have, one night after the other."""
    shards: dict[int, list[int]] = {}
    for index, name in enumerate(names):
        shards.setdefault(shard_of(name), []).append(index)
    checks = tuple((rule.name, rule.unit) for rule in rules)
    with ledger.database.writing() as transaction:
        for day in range(DAYS):
            at = NOW - (DAYS - day - 0.5) * DAY_SECONDS
            for shard, some in shards.items():
                figures = before[:, day, some]
                packed = pack(
                    Looks(
                        tuple(names[index] for index in some),
                        checks,
                        np.full(len(some), at).tobytes(),
                        figures.tobytes(),
                        np.isfinite(figures).astype(np.int8).tobytes(),
                    )
                )
                row = {"cluster": CLUSTER, "shard": shard, "last_at": at, "packed": packed}
                transaction.insert_all(LOOKS, [row])


def past(ledger: Ledger, rules: list[CheckRule], names: tuple[str, ...]) -> History:
    """The past as whoever grades reads it."""
    return laid(ledger.looks(CLUSTER, names, NOW - DAYS * DAY_SECONDS), rules, names, NOW)


def bytes_of(ledger: Ledger) -> int:
    """How many bytes of the past the database holds, each of them read."""
    with ledger.database.reading() as transaction:
        return sum(len(row[0]) for row in transaction.connection.execute(select(LOOKS.c.packed)))


def node(rules: list[CheckRule], name: str, figures: list[float]) -> NodeReadings:
    """What the tools told of one node."""
    told = {
        rule.name: (
            ParsedOutput((Reading(rule.quantity, figure, rule.unit, line=f"{rule.quantity}: {figure:.1f} GB/s"),)),
        )
        for rule, figure in zip(rules, figures, strict=True)
    }
    return NodeReadings(name, "mi300x", told)


def read(history: History, today: Array) -> float:
    """The sum of every figure."""
    assert history.values is not None
    assert history.outcomes is not None
    return float(np.nansum(history.values) + today.sum() + history.outcomes.sum())


if __name__ == "__main__":
    sys.exit(main())
