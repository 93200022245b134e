"""Runs on a simulated cluster: the real flow, decisions and ledger, told in a fraction of a second.

What real processes do is told by the stories of the same names (`tests/stories/recovery/test_comes_back.py`,
`tests/stories/recovery/test_gives_up.py`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from profiles.vocabulary import Action, FaultClass, NodeAction, RunState
from tests.support.harness.stages import incident, numbers_are_unique, outcomes, succeeded
from tests.support.simulated.gang import Fate
from tests.support.simulated.stage import SimulatedStage, simulation
from workflows import labels

STEPS = 60


def living(scene: SimulatedStage) -> list[str]:
    """Pods that have not ended."""
    pods = scene.cluster.list("Pod", {labels.RUN: scene.run})
    return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] in ("Pending", "Running")]


def test_a_clean_run(tmp_path: Path) -> None:
    with simulation(tmp_path) as scene:
        story = scene.drive()
        assert succeeded(story), story.run.why
        assert outcomes(story) == ["succeeded"]
        assert story.incidents == ()
        [attempt] = story.attempts
        assert (attempt.first_step, attempt.last_step, attempt.resumed_from_step) == (1, STEPS, None)
        assert [row.step for row in scene.ledger.steps(scene.run, 1)] == list(range(1, STEPS + 1))
        assert [item.step for item in story.checkpoints] == list(range(5, STEPS + 1, 5))
        assert living(scene) == []
        assert scene.cluster.list("Secret", {labels.RUN: scene.run}) == []


def test_a_lost_node(tmp_path: Path) -> None:
    with simulation(tmp_path, {1: Fate(12, pod=1, kind="power")}) as scene:
        story = scene.drive()
        assert succeeded(story), story.run.why
        assert outcomes(story) == ["node_lost", "succeeded"]
        assert numbers_are_unique(story.attempts)
        first, second = story.attempts
        [lost] = [node for node in first.nodes if node not in second.nodes]
        assert (incident(story).fault_class, incident(story).action) == (FaultClass.NODE_LOST, Action.NEW_ATTEMPT)
        assert [(item.target, item.state) for item in story.actions if item.kind == NodeAction.QUARANTINE] == [
            (lost, "done")
        ]
        assert (second.resumed_from_step, second.first_step, second.last_step) == (10, 11, STEPS)
        taints = (scene.cluster.get("Node", lost) or {})["spec"]["taints"]
        assert labels.QUARANTINE_TAINT in [taint["key"] for taint in taints]
        assert living(scene) == []


def test_an_exception_in_the_users_code(tmp_path: Path) -> None:
    with simulation(tmp_path, {1: Fate(12, pod=1)}) as scene:
        story = scene.drive()
        assert story.run.state is RunState.FAILED
        seen = incident(story)
        assert (seen.fault_class, seen.action) == (FaultClass.USER_CODE, Action.GIVE_UP)
        assert any("a batch of no shape" in line for line in seen.evidence), seen.evidence
        assert outcomes(story) == ["user_code"]
        assert [item for item in story.actions if item.target] == []
        assert scene.cluster.list("JobSet", {labels.RUN: scene.run}) == []
        assert living(scene) == []


ENDS = {
    "killed by a signal": (
        Fate(12, 1, last_lines=("step 12",), exit_code=None, signal=9),
        "process_killed",
        "succeeded",
    ),
    "a collective that timed out": (
        Fate(
            12,
            1,
            last_lines=(
                "[rank1]:[E ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: "
                "WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) "
                "ran for 600029 milliseconds before timing out.",
            ),
            exit_code=None,
            signal=6,
        ),
        "collective_timeout",
        "succeeded",
    ),
    "a full disk": (
        Fate(12, 1, last_lines=("OSError: [Errno 28] No space left on device: '/data/step-10.pt'",)),
        "storage",
        "succeeded",
    ),
    "no GPU memory": (
        Fate(
            12,
            1,
            last_lines=(
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
                "79.11 GiB of which 1.11 GiB is free.",
            ),
        ),
        "gpu_oom",
        "failed",
    ),
    "a wrong argument": (
        Fate(12, 1, last_lines=("train.py: error: unrecognized arguments: --lerning-rate 3",), exit_code=2),
        "config",
        "failed",
    ),
    "a checkpoint of another model": (
        Fate(
            12,
            1,
            last_lines=(
                "RuntimeError: Error(s) in loading state_dict for GPT:",
                "\tsize mismatch for lm_head.weight: copying a param with shape torch.Size([50304, 768]) from "
                "checkpoint, the shape in current model is torch.Size([50304, 1024]).",
            ),
        ),
        "checkpoint_mismatch",
        "failed",
    ),
}
"""By what a rank says at its end: its fate, the class, how the run ends."""


@pytest.mark.parametrize("name", ENDS)
def test_what_a_rank_says_at_its_end_decides(tmp_path: Path, name: str) -> None:
    fate, fault, end = ENDS[name]
    with simulation(tmp_path, {1: fate}) as scene:
        story = scene.drive()
        assert story.run.state == end, story.run.why
        assert outcomes(story) == ([fault, "succeeded"] if end == "succeeded" else [fault])
        assert incident(story).fault_class == fault
        if end == "succeeded":
            assert story.attempts[1].resumed_from_step == 10
        assert living(scene) == []


KINDS = {
    "undisturbed": None,
    "a lost node": Fate(12, 1, "power"),
    **{name: fate for name, (fate, _, _) in ENDS.items()},
}


@pytest.mark.parametrize("name", KINDS)
def test_a_flow_that_is_stopped_after_each_task_comes_to_the_same_end(tmp_path: Path, name: str) -> None:
    """As one that never was: the same attempts, one incident, each action once, each JobSet made once."""
    fates = {1: fate} if (fate := KINDS[name]) is not None else {}
    with simulation(tmp_path / "plain", fates) as scene:
        plain = scene.drive()
        made_plainly = scene.cluster.made("JobSet")
    with simulation(tmp_path / "stopped", fates, stopping=True) as scene:
        story, lives = scene.drive_on()
        assert lives == len(scene.calls.stops) + 1
        assert {"submits attempt 1", "watches attempt 1"} <= {stop.partition(" on ")[0] for stop in scene.calls.stops}
        assert scene.cluster.made("JobSet") == made_plainly
        assert living(scene) == []
    assert (story.run.state, outcomes(story)) == (plain.run.state, outcomes(plain))
    assert numbers_are_unique(story.attempts)
    assert [item.resumed_from_step for item in story.attempts] == [item.resumed_from_step for item in plain.attempts]
    assert [(item.fault_class, item.action) for item in story.troubles] == [
        (item.fault_class, item.action) for item in plain.troubles
    ]
    assert [(item.kind, item.target, item.state) for item in story.actions] == [
        (item.kind, item.target, item.state) for item in plain.actions
    ]
