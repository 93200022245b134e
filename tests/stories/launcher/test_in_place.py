"""Ranks that are started again inside their pods: real launchers, a real coordinator, processes killed from outside."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness.launcher_harness import MAIN, GangOnLoopback, Program, alive, terminate, until
from workflows.wire import RankEnd

STEPS = 20
HOLD = 8
"""After this step trainers stand still until they are let go, however slow the machine."""
IN_PLACE = "--in-place=true"

HELD = """
import sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from workflows.programs.demo import checkpoint as demo_faults
from workflows.programs.demo import train as demo_train
due = demo_faults.due
def held(path, rank, steps_done):
    while steps_done == {hold} and not Path({let_go!r}).exists():
        time.sleep(0.01)
    return due(path, rank, steps_done)
demo_faults.due = held
sys.exit(demo_train.main(sys.argv[1:]))
"""
"""The demo trainer; where it asks before each step whether a fault is due, it waits."""


def train(gang: GangOnLoopback, *flags: str, pods: int = 2, processes: int = 2) -> list[Program]:
    """The demo trainer in every pod, saving each fifth step, until it holds."""
    checkpoints = gang.folder / "checkpoints"
    held = gang.folder / "held.py"
    held.write_text(HELD.format(root=str(MAIN.parents[2]), hold=HOLD, let_go=str(gang.folder / "let-go")))
    (gang.folder / "corpus.txt").write_text("the quick brown fox jumps over the lazy dog, again and again; " * 200)
    command = [
        sys.executable,
        str(held),
        f"--steps={STEPS}",
        "--save-every=5",
        f"--checkpoint-dir={checkpoints}",
        f"--corpus={gang.folder / 'corpus.txt'}",
    ]
    argv = ["--checkpoint-format=auto", f"--steps={STEPS}", "--resume-argument=--resume={resume_from}", *flags]
    return [
        gang.launch(
            index, *argv, pods=pods, processes=processes, command=command, PRIMUS_CHECKPOINT_DIR=str(checkpoints)
        )
        for index in range(pods)
    ]


def holding(gang: GangOnLoopback) -> None:
    """Wait until all hold, and the checkpoint before it is proven."""
    until(lambda: gang.ask("/status").get("last_checkpoint_step") == 5, "the proof of step 5")
    until(lambda: gang.ask("/status")["step"] == HOLD, f"step {HOLD}")


def let_go(gang: GangOnLoopback) -> None:
    """Train on."""
    (gang.folder / "let-go").touch()


def kill(gang: GangOnLoopback, rank: int, number: int = signal.SIGKILL) -> int:
    """The process that was killed, once all ranks run."""
    pid = gang.ranks()[rank]
    os.kill(pid, number)
    return pid


def restarts(gang: GangOnLoopback) -> list[dict[str, Any]]:
    return gang.ask("/status").get("restarts") or []


def weights(gang: GangOnLoopback) -> str:
    found = json.loads((gang.folder / "checkpoints" / f"step-{STEPS}" / "manifest.json").read_text())
    return str(found["meta"]["weights_sha256"])


@pytest.mark.story
def test_a_killed_rank_begins_again_in_its_pod_and_nothing_is_lost(tmp_path: Path, gang: GangOnLoopback) -> None:
    (tmp_path / "calm").mkdir()
    calm = GangOnLoopback(tmp_path / "calm")
    calm.coordinate(1, 4)
    let_go(calm)
    (undisturbed,) = train(calm, pods=1, processes=4)
    assert undisturbed.end() == 0
    calm.close()
    gang.coordinate(2, 2, restarts=3)
    pods = train(gang, IN_PLACE)
    holding(gang)
    before = gang.ranks()
    at = time.time()
    victim = kill(gang, 3)
    let_go(gang)
    assert [pod.end() for pod in pods] == [0, 0]
    assert weights(gang) == weights(calm)

    (restart,) = restarts(gang)
    print(f"killed -> ordered {restart['at'] - at:.3f} s -> first step {restart['first_step_at'] - at:.3f} s")
    assert (restart["number"], restart["incarnation"], restart["rank"], restart["node"]) == (1, 2, 3, "node-1")
    assert restart["why"] == "rank 3 of pod-1 ended with signal 9"
    assert (restart["step"], restart["resume_step"]) == (HOLD, 5)
    assert restart["first_step"] == restart["resume_step"] + 1
    assert restart["resume_from"].endswith(f"step-{restart['resume_step']}")
    status = gang.ask("/status")
    assert (status["right"]["restarts"], status["right"]["left"], status["incarnation"]) == (3, 2, 2)
    assert status["ended"]
    assert all(end["exit_code"] == 0 for end in status["ended"])
    assert not any(alive(pid) for pid in before.values())
    steps = gang.steps()
    assert steps[-1] == STEPS
    assert steps.count(restart["first_step"]) == 2

    record = gang.termination(1)
    assert (record.reason, record.first_failing_rank) == ("completed", None)
    assert {(end.rank, end.exit_code, end.incarnation) for end in record.ranks} == {(2, 0, 2), (3, 0, 2)}
    ends = [report for report in pods[1].reports() if isinstance(report, RankEnd)]
    assert [(end.rank, end.signal, end.requested) for end in ends if end.incarnation == 1] == [
        (3, 9, False),
        (2, 9, True),
    ]
    log = (gang.folder_of(1) / "rank-3.log").read_text()
    assert f"launcher: incarnation 2 begins after step {restart['resume_step']}" in log
    assert victim == before[3]


def stand_still(gang: GangOnLoopback, restarts: int) -> tuple[Program, list[Program]]:
    """A coordinator and two pods of one rank each, which stands still at step 3."""
    coordinator = gang.coordinate(2, 1, restarts=restarts)
    pods = [gang.launch(index, IN_PLACE, pods=2, HOLD="3") for index in (0, 1)]
    pods[0].says("step 3/")
    return coordinator, pods


def again(gang: GangOnLoopback, number: int) -> dict[int, int]:
    """The ranks' processes once the restart of this number has brought them back."""
    until(lambda: len(restarts(gang)) >= number and restarts(gang)[-1]["first_step"], f"restart {number}")
    return gang.ranks()


@pytest.mark.story
@pytest.mark.parametrize(
    ("lent", "second", "why"),
    [(3, 1, "it is the second time on node-1"), (1, 0, "the right is used up (1 of 1)")],
)
def test_the_same_node_twice_or_a_right_that_is_used_up_ends_the_attempt(
    gang: GangOnLoopback, lent: int, second: int, why: str
) -> None:
    _, pods = stand_still(gang, lent)
    first = gang.ranks()
    kill(gang, 1)
    ranks = again(gang, 1)
    assert not set(first.values()) & set(ranks.values())
    os.kill(ranks[second], signal.SIGKILL)
    codes = [pod.end() for pod in pods]
    assert codes[second] == 137
    assert codes[1 - second] == 143
    culprit, victim = gang.message(second), gang.message(1 - second)
    assert (culprit.reason, culprit.first_failing_rank) == ("rank-failed", second)
    assert [(end.rank, end.signal, end.incarnation) for end in culprit.ranks] == [(second, 9, 2)]
    assert victim.reason == "told-to-stop"
    assert victim.detail == f"rank {second} of pod-{second} ended with signal 9; not restarted in place: {why}"
    assert len(restarts(gang)) == 1
    assert not any(alive(pid) for pid in (*first.values(), *ranks.values()))


@pytest.mark.story
def test_what_earlier_ranks_still_say_changes_nothing(gang: GangOnLoopback) -> None:
    _, pods = stand_still(gang, 3)
    kill(gang, 1)
    ranks = again(gang, 1)
    until(lambda: gang.ask("/status")["step"] == 3, "step 3 again")
    known = ("step", "first_step", "ended", "orders", "restarts", "right", "phase", "recent_steps")
    before = gang.ask("/status")
    late = [
        {"report": "StepSeen", "step": 9, "at": time.time(), "rank": 0, "incarnation": 1},
        {"report": "PhaseSeen", "phase": "checkpoint", "at": time.time(), "rank": 0, "incarnation": 1},
        {"report": "RankEnd", "rank": 0, "local_rank": 0, "at": time.time(), "signal": 9, "incarnation": 1},
    ]
    assert gang.tell("/v1/report", {"role": "trainer", "pod_index": 0, "reports": late, "state": "running"}) == 200
    after = gang.ask("/status")
    assert [after[name] for name in known] == [before[name] for name in known]
    assert all(alive(pid) for pid in ranks.values())
    for pod in pods:
        terminate(pod)
    assert [pod.end() for pod in pods] == [143, 143]


@pytest.mark.story
def test_a_coordinator_that_dies_during_a_restart_goes_on_with_it(gang: GangOnLoopback) -> None:
    coordinator, pods = stand_still(gang, 3)
    ranks = gang.ranks()
    os.kill(pods[0].process.pid, signal.SIGSTOP)
    os.kill(ranks[1], signal.SIGKILL)
    pods[1].says("joining: rank 1 of pod-1 ended with signal 9")
    (restart,) = restarts(gang)
    # The first pod's rank still lives: nobody may begin again.
    assert alive(ranks[0])
    assert restart["first_step"] is None
    assert not any(member["pids"] for member in gang.ask("/status")["members"])
    coordinator.process.kill()
    coordinator.end()
    os.kill(pods[0].process.pid, signal.SIGCONT)
    gang.coordinate(2, 1, restarts=3)
    later = again(gang, 1)
    assert not alive(ranks[0])
    assert all(alive(pid) for pid in later.values())
    status = gang.ask("/status")
    assert (status["incarnation"], status["right"]["left"]) == (2, 2)
    assert [order["order"] for order in status["orders"]] == ["restart"]
    assert gang.tell("/v1/stop", {"why": "enough", "save": False}) == 200
    assert [pod.end() for pod in pods] == [143, 143]


@pytest.mark.story
def test_sigterm_ends_a_pod_that_holds_for_an_order(gang: GangOnLoopback) -> None:
    coordinator, pods = stand_still(gang, 3)
    ranks = gang.ranks()
    os.kill(coordinator.process.pid, signal.SIGSTOP)
    os.kill(ranks[1], signal.SIGKILL)
    pods[1].says("holding: rank 1 was killed by signal 9")
    terminate(pods[1])
    assert pods[1].end() == 137
    record = gang.termination(1)
    assert (record.reason, record.first_failing_rank) == ("rank-failed", 1)
    os.kill(coordinator.process.pid, signal.SIGCONT)
    # It never heard that the pod is gone, and may order what nobody can complete; the cluster ends the other pods.
    terminate(pods[0])
    assert pods[0].end() == 143
    assert not any(alive(pid) for pid in ranks.values())


@pytest.mark.story
def test_an_exit_code_is_for_the_flow_to_diagnose(gang: GangOnLoopback) -> None:
    gang.coordinate(1, 2, restarts=3)
    gang.trainer.write_text("import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(3)\ntime.sleep(600)\n")
    pod = gang.launch(0, IN_PLACE, processes=2)
    assert pod.end() == 3
    assert (gang.message().reason, gang.message().first_failing_rank) == ("rank-failed", 1)
    status = gang.ask("/status")
    assert (status["restarts"], status["right"]["left"]) == ([], 3)
    assert status["orders"][0]["why"].endswith("no rank was killed")
