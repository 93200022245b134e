"""A 2 GB checkpoint, 16 ranks, a program that needs 3 s to import: the ratio of a recovery to a restart by hand."""

from __future__ import annotations

import statistics
import sys

from tasks.programs_archive import programs_archive
from tests.benchmarks.by_hand import first_step_seconds
from tests.benchmarks.recovery import stop
from tests.benchmarks.scenes import command, shown, stage_of_a_user, wait_for_first_step, wide_cluster
from tests.support.harness.stages import Stage

MIB, RANKS, IMPORT_SECONDS = 2048, 16, 3.0
SAVED_EVERY = 60
"""Steps between two large checkpoints: long enough to save and prove one, as any real interval is."""
HEAVY = ("--checkpoint-mib", str(MIB))
SLOW = ("--import-seconds", str(IMPORT_SECONDS))


def measure(
    stage: Stage, name: str, ranks_per_node: int, options: tuple[str, ...], save_every: int
) -> tuple[float, float]:
    """Seconds after the fault, and by hand."""
    stage.open(
        name=name,
        profile="demo",
        cluster=wide_cluster(stage.home, 40),
        overrides=(
            "steps=100000",
            f"checkpoint.interval_steps={save_every}",
            f"roles.trainer.processes_per_node={ranks_per_node}",
            command("--step-seconds", "0.1", *options),
        ),
    )
    stage.drive_in_process()
    wait_for_first_step(stage, 1, 120.0)
    stage.until(lambda story: any(str(item.verdict) == "pass" for item in story.checkpoints), "a proven checkpoint")
    at = stage.fault(f"lose-node:{stage.story.attempts[0].nodes[1]}")
    taken = wait_for_first_step(stage, 2, 120.0) - at
    resumed = stage.story.attempts[1].resume_path
    stop(stage)
    words = ["--steps", "100000", "--seed", "7", "--resume", resumed, "--step-seconds", "0.1", *options]
    return taken, first_step_seconds(programs_archive(stage.home), words, 2 * ranks_per_node, stage.home)


def main() -> int:
    """Print the ratios. There is no goal but the truth: what we add to what the program itself needs."""
    cases = [
        (f"{MIB} MiB checkpoint", 1, HEAVY, SAVED_EVERY),
        (f"{RANKS} ranks", RANKS // 2, (), 5),
        (f"import takes {IMPORT_SECONDS:g} s", 1, SLOW, 5),
        ("all three together", RANKS // 2, HEAVY + SLOW, SAVED_EVERY),
    ]
    with stage_of_a_user() as stage:
        for index, (what, ranks, options, every) in enumerate(cases):
            pairs = [measure(stage, f"large-{index}-{turn}", ranks, options, every) for turn in range(3)]
            taken, hand = [pair[0] for pair in pairs], statistics.median(pair[1] for pair in pairs)
            print(
                f"{what}: fault -> first resumed step {shown(taken)}; by hand {hand:.2f} s, "
                f"ratio {statistics.median(taken) / hand:.2f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
