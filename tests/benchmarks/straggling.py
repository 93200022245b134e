"""A decision on the local times of many ranks: `python -m tests.benchmarks.straggling`.

Processor time, so that what else runs on the machine does not count. The limit measured in the same run is one pass
over the same numbers (their sum in a Python loop).
"""

from __future__ import annotations

import random
import statistics
import time

from workflows.programs.coordinator.stragglers import STEPS_PER_WINDOW, Peers, StragglerLimits, Votes

RANKS = 100_000
GOAL_MS = 50.0


def decision_ms(ranks: int = RANKS, windows: int = 5, slow_rank: int | None = 7) -> tuple[float, float, bool]:
    """Median ms of the step that closes a window with its votes, ms of one pass, and whether the slow one was named."""
    dice = random.Random(1)
    times = [dice.lognormvariate(0, 0.02) for _ in range(ranks)]
    peers, votes, took = Peers(ranks, StragglerLimits()), Votes(), list[float]()
    for step in range(windows * STEPS_PER_WINDOW):
        for rank, seconds in enumerate(times):
            peers.add(rank, seconds * (2.0 if rank == slow_rank else 1.0))
        began = time.process_time()
        window = peers.close_step()
        if window is not None:
            votes = votes.with_window(window, StragglerLimits())
            named = votes.stragglers()
            took.append(1000 * (time.process_time() - began))
            if step + 1 == windows * STEPS_PER_WINDOW:
                return statistics.median(took), one_pass_ms(times), named == (() if slow_rank is None else (slow_rank,))
    raise ValueError(f"windows: must be at least 1, got {windows}")


def one_pass_ms(times: list[float]) -> float:
    """A loop over all of them."""
    began, total = time.process_time(), 0.0
    for seconds in times:
        total += seconds
    return 1000 * (time.process_time() - began)


def main() -> None:
    """Print the figures."""
    for who in (None, 7):
        found, floor, right = decision_ms(slow_rank=who)
        what = "nobody slow" if who is None else "one rank slow"
        told = f"stragglers among {RANKS:,} ranks, {what}: {found:.1f} ms, goal {GOAL_MS:g} ms, one pass {floor:.1f} ms"
        print(told if found <= GOAL_MS and right else f"{told}: MISSED")


if __name__ == "__main__":
    main()
