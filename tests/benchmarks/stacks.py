"""Stacks of the demo's ranks while they train: how long the launcher looks, beside asking one of them by hand."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.support.fakes.scripted_coordinator import ScriptedCoordinator
from tests.support.harness.launcher_harness import MAIN, GangOnLoopback
from workflows.programs.stacks.collect import ANSWER_SECONDS, LIMIT_SECONDS, ask_faulthandler
from workflows.programs.stacks.values import from_json

TRIALS = 20
RANKS = 2
GOAL_SECONDS = 0.5


def measured(folder: Path, trials: int) -> tuple[list[float], list[float]]:
    """Seconds of looks at all ranks, as launchers tell them, and of asking one rank's handler by hand."""
    (folder / "corpus.txt").write_text("the quick brown fox jumps over the lazy dog, again and again; " * 200)
    gang = GangOnLoopback(folder)
    coordinator = ScriptedCoordinator(gang)
    looks: list[float] = []
    asked: list[float] = []
    try:
        words = ["demo-train", "--steps=100000", "--step-seconds=0.02", f"--corpus={folder / 'corpus.txt'}"]
        pod = gang.launch(0, processes=RANKS, command=[sys.executable, str(MAIN), *words])
        pod.says("step 3/")
        for number in range(1, trials + 1):
            coordinator.order({"number": number, "order": "stacks", "why": "measured", "id": str(number)})
            dump = from_json(coordinator.posted(number)[-1]).dump
            assert all(one.threads for one in dump.processes if one.top)
            looks.append(dump.seconds)
            began = time.perf_counter()
            assert ask_faulthandler(dump.processes[0].pid, ANSWER_SECONDS)
            asked.append(time.perf_counter() - began)
    finally:
        gang.close()
        coordinator.close()
    return looks, asked


def main() -> int:
    """Print them; 1 where the goal was missed."""
    with tempfile.TemporaryDirectory() as place:
        looks, asked = measured(Path(place), TRIALS)
    row = f"median {statistics.median(looks):.3f} s, worst {max(looks):.3f} s, {len(looks)} trials"
    print(f"stacks of {RANKS} ranks: {row}; goal {GOAL_SECONDS} s, given up after {LIMIT_SECONDS:g} s")
    print(f"one rank's handler asked by hand: median {statistics.median(asked):.3f} s, worst {max(asked):.3f} s")
    return 0 if max(looks) <= GOAL_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
