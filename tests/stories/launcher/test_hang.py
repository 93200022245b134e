"""Ranks that hang or lag: real launchers, a real coordinator, the demo trainer stopped from outside."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness.launcher_harness import MAIN, GangOnLoopback, Program, until

STEPS = 96
"""More than are done before a test has seen what it waits for, on a slow machine too."""
MEASURED = 36
"""By then twenty steps beside the saves have been measured, whatever the machine does."""
PACE_SECONDS = 0.05
SAVE_EVERY = 10


def coordinate(gang: GangOnLoopback, pods: int, processes: int, *flags: str) -> Program:
    argv = ["coordinate", f"--pods={pods}", f"--processes-per-node={processes}", "--port=29400", *flags]
    program = gang.start(argv, PRIMUS_POD_IP=f"{gang.net}.1")
    program.says("listening")
    return program


def train(gang: GangOnLoopback, pods: int = 2, processes: int = 1, pace: float = PACE_SECONDS) -> list[Program]:
    """The demo trainer in every pod, saving each tenth step."""
    checkpoints = gang.folder / "checkpoints"
    (gang.folder / "corpus.txt").write_text("the quick brown fox jumps over the lazy dog, again and again; " * 200)
    command = [
        *(sys.executable, str(MAIN), "demo-train", f"--steps={STEPS}", f"--save-every={SAVE_EVERY}"),
        *(f"--step-seconds={pace}", f"--checkpoint-dir={checkpoints}", f"--corpus={gang.folder / 'corpus.txt'}"),
    ]
    argv = ["--checkpoint-format=auto", f"--steps={STEPS}", "--resume-argument=--resume={resume_from}"]
    argv.append("--in-place=true")
    return [
        gang.launch(
            index, *argv, pods=pods, processes=processes, command=command, PRIMUS_CHECKPOINT_DIR=str(checkpoints)
        )
        for index in range(pods)
    ]


def weights(gang: GangOnLoopback) -> str:
    found = json.loads((gang.folder / "checkpoints" / f"step-{STEPS}" / "manifest.json").read_text())
    return str(found["meta"]["weights_sha256"])


def status(gang: GangOnLoopback) -> dict[str, Any]:
    return gang.ask("/status")


def at_step(gang: GangOnLoopback, step: int) -> None:
    until(lambda: (status(gang).get("step") or 0) >= step, f"step {step}")


def undisturbed(folder: Path, ranks: int) -> str:
    """Weights of a run that nothing happens to."""
    folder.mkdir()
    calm = GangOnLoopback(folder)
    coordinate(calm, 1, ranks)
    (pod,) = train(calm, 1, ranks, pace=0.0)
    assert pod.end() == 0
    calm.close()
    return weights(calm)


@pytest.mark.story
def test_a_rank_that_hangs_is_named_and_all_go_on_from_the_newest_checkpoint(
    tmp_path: Path, gang: GangOnLoopback
) -> None:
    expected = undisturbed(tmp_path / "calm", 2)
    coordinate(gang, 2, 1, "--restarts=3")
    pods = train(gang)
    at_step(gang, MEASURED)
    ranks = gang.ranks()
    at = time.time()
    os.kill(ranks[1], signal.SIGSTOP)
    (restart,) = until(lambda: status(gang).get("restarts"), "a restart in place")
    assert (restart["kind"], restart["rank"], restart["node"]) == ("hang", 1, "node-1")
    assert "stopped" in restart["stacks"]
    assert "all_reduce" in restart["stacks"]
    assert restart["resume_step"] >= SAVE_EVERY * (restart["step"] // SAVE_EVERY - 1)
    (restart,) = until(
        lambda: (found := status(gang)["restarts"]) and found[0]["first_step_at"] and found, "the first step again"
    )
    print(f"hang: detected after {restart['at'] - at:.2f} s, resumed after {restart['first_step_at'] - at:.2f} s")
    assert [pod.end() for pod in pods] == [0, 0]
    after = status(gang)
    assert (len(after["restarts"]), after["right"]["left"], after["hang"]) == (1, 2, None)
    assert weights(gang) == expected


@pytest.mark.story
def test_a_stop_of_a_second_restarts_nobody(gang: GangOnLoopback) -> None:
    coordinate(gang, 2, 1, "--restarts=3")
    pods = train(gang)
    at_step(gang, MEASURED)
    before = gang.ranks()
    os.kill(before[1], signal.SIGSTOP)
    time.sleep(1.0)  # the fault itself: a process that stands still for so long
    os.kill(before[1], signal.SIGCONT)
    at_step(gang, MEASURED + 15)
    assert gang.ranks() == before
    assert [pod.end() for pod in pods] == [0, 0]
    assert status(gang)["restarts"] == []


@pytest.mark.story
def test_without_the_right_a_hang_is_told_and_nobody_is_killed(gang: GangOnLoopback) -> None:
    coordinator = coordinate(gang, 2, 1)
    pods = train(gang)
    at_step(gang, MEASURED)
    before = gang.ranks()
    os.kill(before[0], signal.SIGSTOP)
    coordinator.says(": hung")
    told = status(gang)
    assert (told["hang"]["verdict"], told["hang"]["rank"], told["hang"]["node"]) == ("confirmed", 0, "node-0")
    assert (told["restarts"], [order["order"] for order in told["orders"]]) == ([], ["stacks"])
    os.kill(before[0], signal.SIGCONT)
    assert [pod.end() for pod in pods] == [0, 0]
    assert gang.steps()[-1] == STEPS
    assert status(gang)["hang"] is None


LAGGARD = """
import os, sys, time
rank = int(os.environ["RANK"])
work = 0.05 * (2 if rank == 1 else 1)
for step in range(1, 201):
    time.sleep(0.1)
    print(f"step {step}/200 | compute {work:.4f} s" if rank else
          f"step {step}/200 | loss 2.0000 | tokens/s 5 | step time 0.1000 s | compute {work:.4f} s", flush=True)
"""


@pytest.mark.story
def test_a_rank_that_takes_twice_as_long_is_named_with_what_it_costs(gang: GangOnLoopback) -> None:
    gang.trainer.write_text(LAGGARD)
    coordinate(gang, 1, 3)
    pod = gang.launch(0, processes=3)
    (slow,) = until(lambda: status(gang).get("stragglers"), "a straggler")
    step = status(gang)["step"]
    assert (slow["rank"], slow["node"], slow["ratio"]) == (1, "node-0", 2.0)
    assert step <= 3 + 20 + 15  # warm-up, four windows of four, and what is under way on a busy machine
    assert slow["cost_seconds"] == pytest.approx(0.05 * 16, rel=0.3)
    assert status(gang)["slower"] is None
    pod.close()
