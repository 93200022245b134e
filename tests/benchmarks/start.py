"""From the shell to the first step, beside starting the trainer by hand; and how long `primus --help` takes."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tasks.programs_archive import programs_archive
from tests.benchmarks.by_hand import first_step_seconds
from tests.benchmarks.recovery import stop
from tests.benchmarks.scenes import command, shown, stage_of_a_user
from tests.support.harness.stages import Stage

REPEATS = 5
HELP_GOAL_SECONDS, FLOW_GOAL_SECONDS, SHELL_GOAL_SECONDS = 0.3, 1.5, 4.0


def timed(*words: str, home: Path) -> float:
    """Seconds of a whole command."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "deployments.cli.main", *words],
        env={**os.environ, "PRIMUS_HOME": str(home)},
        check=True,
        capture_output=True,
        cwd="/",
    )
    return time.perf_counter() - began


def first_step_at(stage: Stage) -> float:
    """When the first step was completed, from the launcher's own file."""
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        for path in stage.folder.glob("a1/*/steps.jsonl"):
            lines = path.read_text().splitlines()
            if lines:
                return float(json.loads(lines[0])["at"])
        time.sleep(0.005)
    raise RuntimeError(stage.tell())


def from_shell(stage: Stage, number: int) -> tuple[float, float]:
    """Seconds from the shell, and from the entry of the flow, to the first step."""
    stage.run = f"shell-{number}"
    began = time.time()
    words = ["train", "demo", "--name", stage.run, "--detach", "--set", command("--step-seconds", "0.1")]
    timed(*words, home=stage.home)
    at = first_step_at(stage)
    entered = stage.story.lease
    flow = at - _entered(stage) if entered is not None else float("nan")
    stop(stage)
    return at - began, flow


def _entered(stage: Stage) -> float:
    """When the flow took the run: its first line in the history after the submission by the shell."""
    lines = [line for line in stage.ledger.history(stage.run) if line.kind == "lease"]
    return lines[0].at


def main() -> int:
    """Print each figure beside its goal; 1 where one was missed."""
    with stage_of_a_user() as stage:
        helped = [timed("--help", home=stage.home) for _ in range(REPEATS)]
        bare = statistics.median(_bare_python() for _ in range(REPEATS))
        print(f"primus --help: {shown(helped)}; goal <= {HELP_GOAL_SECONDS} s; a bare Python {bare:.2f} s")
        pairs = [from_shell(stage, number) for number in range(REPEATS)]
        archive = programs_archive(stage.home)
        options = ["--steps", "1000", "--seed", "7", "--step-seconds", "0.1"]
        hand = statistics.median(first_step_seconds(archive, options, 2, stage.home) for _ in range(REPEATS))
    shell, flow = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    over = [seconds - hand for seconds in flow]
    print(
        f"flow entry -> first step: {shown(flow)}; by hand {hand:.2f} s; over it {shown(over)}; "
        f"goal <= {FLOW_GOAL_SECONDS} s"
    )
    print(
        f"shell -> first step, warm server: {shown(shell)}; goal <= {SHELL_GOAL_SECONDS} s; "
        f"ratio to by hand {statistics.median(shell) / hand:.1f}"
    )
    good = (
        statistics.median(helped) <= HELP_GOAL_SECONDS
        and statistics.median(over) <= FLOW_GOAL_SECONDS
        and statistics.median(shell) <= SHELL_GOAL_SECONDS
    )
    return 0 if good else 1


def _bare_python() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
