"""Grading a whole fleet: 12,500 nodes, 60 checks, 30 days of history, beside numpy reading the same arrays once.

Run it by itself (`python -m tests.benchmarks.grading [nodes]`). Readings come as the parsers give them, one object
each; what is measured, in seconds of a core, ends with the reasons as the ledger keeps them. Each check has all kinds
of limits.
"""

from __future__ import annotations

import gc
import resource
import sys
import time

import numpy as np

from flows.decisions.grading.grade import grade
from flows.decisions.grading.history import DAYS, OUTCOMES, History
from flows.decisions.grading.model import AtLeast, CheckRule, Depth, Drift, Fall, Limit, NodeGrade, NodeReadings, Peers
from profiles.vocabulary import VerdictWord
from workflows.programs.readings import Parsed, Reading

NODES, CHECKS = 12_500, 60
SECONDS_GOAL = 5.0
REPEATS = 3
LIMITS: tuple[Limit, ...] = (AtLeast(1500.0), Peers(), Fall(8.0), Drift(5.0))
USUAL, NOISE = 2000.0, 0.01
SLOW, DRIFTING = 20, 10
"""Nodes with one check far below their peers, and nodes that lost a tenth over the month."""


def main() -> int:
    """Print the figure beside its goal and the bare read; 1 where it is missed."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else NODES
    rules = [CheckRule(f"check-{n}", Depth.DEVICE, f"quantity-{n}", "GB/s", limits=LIMITS) for n in range(CHECKS)]
    history, today = made(count)
    readings = [node(rules, history.nodes[index], today[:, index].tolist()) for index in range(count)]
    gc.collect()
    gc.freeze()
    taken: list[float] = []
    found: dict[str, NodeGrade] = {}
    for _ in range(REPEATS):
        found = {}
        began = time.process_time()
        found = grade(rules, readings, history)
        taken.append(time.process_time() - began)
    bare = min(read(history, today) for _ in range(REPEATS))
    words = [item.verdict for item in found.values()]
    again = sum(bool(item.repeat) for item in found.values())
    told = sum(len(item.reasons) for item in found.values())
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"  {count:,} nodes x {CHECKS} checks x {DAYS} days graded in {min(taken):.2f} s of one core, {told:,} reasons "
        f"(goal <= {SECONDS_GOAL} s for {NODES:,}; worst of {REPEATS}: {max(taken):.2f} s), {megabytes:.0f} MB resident"
    )
    print(f"  {words.count(VerdictWord.PASS):,} pass, {again} to be repeated, of {SLOW} slow and {DRIFTING} drifting")
    print(f"  numpy reading the same arrays once: {bare:.3f} s, ratio {min(taken) / bare:.0f}")
    return 0 if min(taken) <= SECONDS_GOAL and again >= SLOW + DRIFTING else 1


def made(count: int) -> tuple[History, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """A healthy fleet with a few that are not, and today's figures [checks, nodes]."""
    dice = np.random.default_rng(7)
    own = USUAL * (1 + NOISE * dice.standard_normal((CHECKS, 1, count)))
    series = own * (1 + NOISE * dice.standard_normal((CHECKS, DAYS + 1, count)))
    series[0, -1, :SLOW] = 0.85 * USUAL
    series[1, :, SLOW : SLOW + DRIFTING] *= np.linspace(1.0, 0.9, DAYS + 1)[:, np.newaxis]
    values = series[:, :-1].copy()
    values[dice.random(values.shape) < 0.02] = np.nan
    outcomes = np.ones((CHECKS, OUTCOMES, count), dtype=np.int8)
    names = tuple(f"node-{index}" for index in range(count))
    return History(names, tuple(f"check-{n}" for n in range(CHECKS)), values, outcomes), series[:, -1].copy()


def node(rules: list[CheckRule], name: str, figures: list[float]) -> NodeReadings:
    """What the tools told of one node."""
    told = {
        rule.name: (Parsed((Reading(rule.quantity, figure, rule.unit, line=f"{rule.quantity}: {figure:.1f} GB/s"),)),)
        for rule, figure in zip(rules, figures, strict=True)
    }
    return NodeReadings(name, "mi300x", told)


def read(history: History, today: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    """Seconds to sum every figure."""
    assert history.values is not None
    assert history.outcomes is not None
    began = time.process_time()
    float(np.nansum(history.values) + today.sum() + history.outcomes.sum())
    return time.process_time() - began


if __name__ == "__main__":
    sys.exit(main())
