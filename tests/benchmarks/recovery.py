"""A lost node or rank until the first resumed step, beside starting the same ranks by hand from the same checkpoint."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from tasks.programs_archive import programs_archive
from tests.benchmarks.by_hand import first_step_seconds
from tests.benchmarks.scenes import command, shown, stage_of_a_user, wait_for_first_step, wide_cluster
from tests.support.harness.stages import Stage

STEP_SECONDS = 0.1
REPEATS = 10
STEPS_BETWEEN = 8
GOALS = {"condition known": (1.5, 2.5), "by silence only": (3.0, 5.0), "killed rank": (1.5, 2.5)}
"""Median and worst, seconds."""


def measure(stage: Stage, kind: str, repeats: int) -> list[float]:
    """Seconds from each fault to the completion of the first step of the next attempt."""
    name = kind.replace(" ", "-")
    stage.open(
        name=name,
        profile="demo",
        cluster=wide_cluster(stage.home, 2 * repeats + 6),
        overrides=(
            "steps=100000",
            "checkpoint.interval_steps=5",
            "recovery.restarts.tokens=1000",
            "recovery.no_progress_attempts=1000",
            command("--step-seconds", str(STEP_SECONDS)),
        ),
    )
    stage.drive_in_process()
    taken: list[float] = []
    for attempt in range(1, repeats + 1):
        wait_for_first_step(stage, attempt)
        first = stage.story.attempts[attempt - 1].first_step or 0
        stage.at_step(first + STEPS_BETWEEN)
        node = stage.story.attempts[attempt - 1].nodes[1]
        silent = ",silent" if kind == "by silence only" else ""
        at = stage.fault("kill-rank:1" if kind == "killed rank" else f"lose-node:{node}{silent}")
        taken.append(wait_for_first_step(stage, attempt + 1) - at)
    return taken


def stop(stage: Stage) -> None:
    """End the run and its driver."""
    from workflows.model.records import RequestRecord

    stage.ledger.request(RequestRecord(f"{stage.run}-stop", stage.run, "stop", 0.0, "measured"))
    stage.end()


def by_hand(stage: Stage) -> float:
    """The same two ranks from the newest checkpoint, started by hand: median of five."""
    folders = sorted(stage.folder.glob("checkpoints/step-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    newest = folders[-2]
    options = ["--steps", "100000", "--seed", "7", "--resume", str(newest), "--step-seconds", str(STEP_SECONDS)]
    archive: Path = programs_archive(stage.home)
    return statistics.median(first_step_seconds(archive, options, 2, stage.home) for _ in range(5))


def main() -> int:
    """Print each figure beside its goal and the limit; 1 where a goal was missed."""
    good = True
    with stage_of_a_user() as stage:
        for kind, (median_goal, worst_goal) in GOALS.items():
            taken = measure(stage, kind, REPEATS)
            limit = by_hand(stage)
            stop(stage)
            median, worst = statistics.median(taken), max(taken)
            met = median <= median_goal and worst <= worst_goal
            good = good and met
            print(
                f"{kind}: fault -> first resumed step {shown(taken)}; goal median <= {median_goal}, "
                f"worst <= {worst_goal}: {'met' if met else 'MISSED'}; restarting the ranks by hand takes "
                f"{limit:.2f} s, ratio {median / limit:.2f}",
                flush=True,
            )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
