"""What the supervisor of a gang finds and what it leaves alone: two ranks on two launchers, steps of 0.1 s.

They save every five. Each fault comes three steps after a save, once hangs can be told from long steps. Nothing may be
killed that only was slow or stopped for a moment, and the weights at the end are those of a gang to which nothing
happened. `python -m tests.benchmarks.gang [trials] [kind]`
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.in_place import FLOORS, Bench, Case
from tests.support.harness.launcher_harness import GangOnLoopback, until

TRIALS = 20
SAVE_EVERY, FAULT_STEP, STEP_SECONDS = 5, 38, 0.1
AFTER = 10
"""Steps after a fault that is over at once."""
SLOW_STEPS, NAMED_STEPS = 30, 20
GANG_TIMES, RANK_TIMES = 3.0, 1.9
"""So much slower they must have been, or nothing was tried."""
DETECTED_SECONDS, RESUMED_SECONDS = 2.0, 3.0
BACK_SECONDS = 1.0
"""Until a coordinator that was started again answers with its memory."""
PAUSE_STEPS = 1.0
"""A dead coordinator may hold training up for so long at most."""
BEAT_SECONDS = 0.02
"""Of this a slowed process runs one, and stands still for as many as make it so many times slower."""
SLOW_GANG, SLOW_RANK = 4.0, 2.5
"""Beats to one that runs. The trainer waits for a part of each step, and that part passes in a stop as well: so many
make it 3 and 2 times slower, which is measured and must hold."""


@dataclass(frozen=True)
class Kind:
    """One thing that happens to gangs."""

    name: str
    goal: str
    steps: int
    hurt: Callable[[GangOnLoopback, Bench], dict[str, float]]
    """Figures of one trial; `good`: 1 where it went as it should, but for the weights."""
    shown: tuple[str, ...]
    """Figures that are told, each with median and worst."""


def status(gang: GangOnLoopback) -> dict[str, Any]:
    """The coordinator's word."""
    return gang.ask("/status")


def at(gang: GangOnLoopback, step: int) -> None:
    """Wait for a step, by the launcher's own record: the coordinator may be dead."""
    until(
        lambda: gang.steps()[-1:] >= [step] if (gang.folder_of(0) / "steps.jsonl").exists() else False, f"step {step}"
    )


def hang(gang: GangOnLoopback, _: Bench) -> dict[str, float]:
    """Rank 1 stands still for good."""
    at(gang, FAULT_STEP)
    victim, began = gang.ranks()[1], time.time()
    os.kill(victim, signal.SIGSTOP)
    until(lambda: any(one["first_step_at"] for one in status(gang).get("restarts", [])), "a step again")
    (found,) = status(gang)["restarts"]
    return {
        "detected": found["at"] - began,
        "resumed": found["first_step_at"] - began,
        "steps lost": found["step"] - (found["resume_step"] or 0),
        "good": (found["kind"], found["rank"], found["node"]) == ("hang", 1, "node-1"),
    }


def stopped(gang: GangOnLoopback, _: Bench) -> dict[str, float]:
    """Rank 1 stands still for a second."""
    at(gang, FAULT_STEP)
    before = gang.ranks()
    os.kill(before[1], signal.SIGSTOP)
    time.sleep(1.0)  # the fault itself
    os.kill(before[1], signal.SIGCONT)
    at(gang, FAULT_STEP + AFTER)
    return {"good": gang.ranks() == before and not status(gang)["restarts"]}


@contextmanager
def slowed(pids: Sequence[int], factor: float) -> Generator[None]:
    """The processes run for one beat in `factor` of them."""
    over = threading.Event()

    def beat() -> None:
        while not over.is_set():
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            over.wait(BEAT_SECONDS * (factor - 1))
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            over.wait(BEAT_SECONDS)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def slow_gang(gang: GangOnLoopback, _: Bench) -> dict[str, float]:
    """All ranks are three times slower for 30 steps."""
    at(gang, FAULT_STEP)
    before = gang.ranks()
    with slowed(list(before.values()), SLOW_GANG):
        at(gang, FAULT_STEP + SLOW_STEPS)
    at(gang, FAULT_STEP + SLOW_STEPS + AFTER)
    found = status(gang)
    slow, usual = (gaps(gang, *bounds) for bounds in ((FAULT_STEP + 1, FAULT_STEP + SLOW_STEPS), (10, FAULT_STEP)))
    times = statistics.median(slow) / statistics.median(usual)
    calm = gang.ranks() == before and not found["restarts"] and not found["stragglers"]
    return {"times slower": times, "good": calm and times >= GANG_TIMES}


def slow_rank(gang: GangOnLoopback, _: Bench) -> dict[str, float]:
    """Rank 1 is twice as slow."""
    at(gang, FAULT_STEP)
    before, early = gang.ranks(), status(gang)["stragglers"]
    with slowed([before[1]], SLOW_RANK):
        until(lambda: status(gang).get("stragglers"), "a straggler")
        told = status(gang)
    steps = told["step"] - FAULT_STEP
    named = [(one["rank"], one["node"]) for one in told["stragglers"]]
    right = named == [(1, "node-1")] and not early and not told["restarts"]
    times = told["stragglers"][0]["ratio"]
    return {"steps until named": steps, "times slower": times, "good": right and times >= RANK_TIMES}


def nan(gang: GangOnLoopback, bench: Bench) -> dict[str, float]:
    """A loss is not a number; the gang that goes on from the newest good checkpoint shows what it costs."""
    at(gang, FAULT_STEP)
    (gang.folder / "fault.json").write_text(json.dumps({"fault": "nan", "rank": 1}))
    first = until(lambda: status(gang).get("first_nan_step"), "a NaN")
    row = next(one for one in records(gang) if one["loss"] is not None and not float(one["loss"]) < float("inf"))
    good = status(gang)["last_checkpoint_step"]
    gang.close()
    bench.begin(gang, resume_step=good)  # what the flow does: another attempt, from before the NaN
    return {"steps lost": first - good, "good": first == row["step"] and good < first}


def no_coordinator(gang: GangOnLoopback, _: Bench) -> dict[str, float]:
    """The coordinator is killed at a random moment and started again, as its Job does."""
    at(gang, FAULT_STEP)
    time.sleep(random.random())  # the moment; nothing is waited for
    coordinator = gang.programs[0]
    coordinator.process.kill()
    coordinator.end()
    began = time.monotonic()
    gang.coordinate(2, 1, 3)
    back = time.monotonic() - began
    last = gang.steps()[-1]
    at(gang, last + AFTER)
    pauses = [gap / STEP_SECONDS - 1 for gap in gaps(gang, FAULT_STEP, last + AFTER)]
    until(lambda: (status(gang).get("step") or 0) >= last + AFTER, "the new one hears")
    rows = {row[0] for row in gang.ask("/v1/steps?since=0")["steps"]}
    whole = rows >= set(range(1, last + AFTER + 1)) and len(status(gang)["members"]) == 2
    pause = max(pauses)
    good = whole and pause <= PAUSE_STEPS and back <= BACK_SECONDS
    return {"longest pause in steps": pause, "back": back, "good": good}


def records(gang: GangOnLoopback) -> list[dict[str, Any]]:
    """Rank 0's steps as its launcher wrote them down."""
    lines = (gang.folder_of(0) / "steps.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def gaps(gang: GangOnLoopback, first: int, last: int) -> list[float]:
    """Seconds between steps of that range, but for those with a save in between."""
    rows = [(one["step"], one["at"]) for one in records(gang) if first <= one["step"] <= last]
    return [until - since for (step, since), (_, until) in itertools.pairwise(rows) if step % SAVE_EVERY]


KINDS = (
    Kind("rank hangs", "detected <= 2 s, resumed <= 3 s", 48, hang, ("detected", "resumed", "steps lost")),
    Kind("rank stopped for 1 s", "nobody killed", 56, stopped, ()),
    Kind("all ranks 3x slower for 30 steps", "nobody killed, nobody named", 84, slow_gang, ("times slower",)),
    Kind("one rank 2x slower", "named within 20 steps, no other", 80, slow_rank,
         ("steps until named", "times slower")),
    Kind("NaN", "found at its own step", 46, nan, ("steps lost",)),
    Kind("coordinator killed", "no pause over 1 step, nothing lost", 65, no_coordinator,
         ("longest pause in steps", "back")),
)  # fmt: skip


def measured(kind: Kind, place: Path, trials: int) -> bool:
    """One row, printed; whether every trial went as it should."""
    bench = Bench(place, Case(kind.name, save_every=SAVE_EVERY, steps=kind.steps))
    calm, _ = bench.run("calm", None)
    found: list[dict[str, float]] = []
    equal = 0
    for number in range(trials):
        weights, told = bench.run(f"trial-{number}", kind.hurt)
        assert told is not None
        found.append(told)
        equal += weights == calm != ""
    right = sum(bool(one["good"]) for one in found)
    figures = "".join(
        f"{name} median {statistics.median(values):.2f}, worst {max(values):.2f}; "
        for name in kind.shown
        if (values := [one[name] for one in found])
    )
    met = right == trials and equal == trials and within(found)
    print(f"{kind.name}: {figures}right {right} of {trials}, weights as without a fault {equal} of {trials}; "
          f"goal: {kind.goal}: {'met' if met else 'MISSED'}", flush=True)  # fmt: skip
    if kind.hurt is hang:
        floor = statistics.median(bench.floors_forked(FLOORS))
        print(f"{kind.name}: floor of a restart (start, restore, one step) {floor:.3f} s", flush=True)
    return met


def within(found: list[dict[str, float]]) -> bool:
    """Whether hangs were found and over in time, and each slow rank; true for everything else."""
    if any(one.get("steps until named", 0) > NAMED_STEPS for one in found):
        return False
    limits = {"detected": DETECTED_SECONDS, "resumed": RESUMED_SECONDS}
    return all(statistics.median(values) <= limit for name, limit in limits.items()
               if (values := [one[name] for one in found if name in one]))  # fmt: skip


def main(trials: int, only: str = "") -> int:
    """Print them, or the kind that is named; 1 where a goal was missed."""
    kinds = [kind for kind in KINDS if only in kind.name]
    with tempfile.TemporaryDirectory(prefix="primus-bench-", ignore_cleanup_errors=True) as place:
        met = [measured(kind, Path(place) / f"kind-{index}", trials) for index, kind in enumerate(kinds)]
    return 0 if met and all(met) else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else TRIALS, *sys.argv[2:3]))
