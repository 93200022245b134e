"""Playing many runs, some at once, each in a process of its own: what one leaves behind disturbs no other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from tests.campaign.judge import differing
from tests.campaign.outcome import RunOutcome, from_json, unplayed
from tests.campaign.plan import RunPlan
from tests.support.running.waiting import patience

RUN_LIMIT_SECONDS = patience(420.0)
"""For one run: longer than any of its waits."""
ROOT = Path(__file__).parent.parent.parent
Told = Callable[[RunOutcome], None]


def play_all(
    plans: Sequence[RunPlan], count: int, api_url: str, workers: int, told: Told = lambda _: None
) -> list[RunOutcome]:
    """Play these runs; the one to which nothing happens must be among them.

    Args:
        plans: of one campaign.
        count: faults of the whole campaign.
        api_url: of a Prefect server.
        workers: runs at once.
        told: hears of each run as soon as it has ended.
    """

    def one(plan: RunPlan) -> RunOutcome:
        outcome = play_apart(plan, count, api_url)
        told(outcome)
        return outcome

    with ThreadPoolExecutor(workers) as pool:
        outcomes = list(pool.map(one, plans))
    return compared(plans, outcomes)


def compared(plans: Sequence[RunPlan], outcomes: Sequence[RunOutcome]) -> list[RunOutcome]:
    """The outcomes with what is wrong with their weights."""
    expected = next(one.weights for one in outcomes if one.number == 0)
    goal = {plan.number for plan in plans if plan.ending is None}
    return [
        replace(one, violations=(*one.violations, *differing(one.weights, expected))) if one.number in goal else one
        for one in outcomes
    ]


def play_apart(plan: RunPlan, count: int, api_url: str) -> RunOutcome:
    """Play one run in a process."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        path = Path(folder) / "outcome.json"
        words = ["--seed", str(plan.seed), "--faults", str(count), "--run", str(plan.number), "--outcome", str(path)]
        with (Path(folder) / "said.txt").open("w+b") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.campaign", *words],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env={**os.environ, "PREFECT_API_URL": api_url},
                start_new_session=True,
            )
            why = _ended(process)
        if path.exists() and not why:
            return replace(from_json(json.loads(path.read_text())), seconds=time.monotonic() - began)
        words_of_it = (Path(folder) / "said.txt").read_text(errors="replace")[-6000:]
        return unplayed(plan, why or "its player told nothing", time.monotonic() - began, words_of_it)


def _ended(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(RUN_LIMIT_SECONDS + 60.0)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return "its player did not come to an end"
    return "" if code in (0, 1) else f"its player ended with {code}"
