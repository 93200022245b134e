"""Stories of runs that lose something and come back. Each asserts that its fault did fire."""

from __future__ import annotations

import re
import time

import pytest

from deployments.cli.report import report_document, report_text
from profiles.vocabulary import Action, FaultClass, NodeAction, RunState, Tile, VerdictWord
from tests.support.harness.stages import PROFILE, Stage, incident, numbers_are_unique, outcomes, succeeded
from tests.support.trainers.plain_ranks import weights_of_plain_ranks
from workflows.model.attempt import Signal

pytestmark = pytest.mark.story


@pytest.fixture(scope="module")
def unfailed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Weights of ranks of the same seed to which nothing happened; tests/stories/recovery/test_in_place.py: whole runs
    have the same."""
    return weights_of_plain_ranks(tmp_path_factory, PROFILE)


def comes_back(scene: Stage, unfailed: str, klass: FaultClass, action: Action = Action.NEW_ATTEMPT) -> None:
    """The common end of these stories: one incident, the right class and action, a proven resume, nothing lost."""
    story = scene.end()
    assert succeeded(story), scene.tell()
    seen = incident(story)
    assert seen.fault_class is klass, scene.tell()
    assert seen.action is action, scene.tell()
    assert outcomes(story) == [klass.value, "succeeded"], scene.tell()
    assert numbers_are_unique(story.attempts)
    first, second = story.attempts
    assert second.resumed_from_step is not None, scene.tell()
    assert second.first_step == second.resumed_from_step + 1
    assert second.resume_proof is VerdictWord.PASS
    assert first.last_step is not None
    if klass is not FaultClass.NUMERIC:  # that one goes back on purpose
        # At most one interval of 5 steps, and one more where the newest checkpoint was being written.
        assert first.last_step - second.resumed_from_step <= 10, scene.tell()
    assert scene.weights() == unfailed
    scene.no_orphans()


def test_a_killed_rank(scene: Stage, unfailed: str) -> None:
    scene.start().fault("kill-rank:1,step=17")
    comes_back(scene, unfailed, FaultClass.PROCESS_KILLED)
    checkpoints_are_accounted_for(scene)
    the_account_is_kept(scene)


def the_account_is_kept(scene: Stage) -> None:
    """The driver left a summary that says what the report says, so nobody unpacks the steps again."""
    (kept,) = scene.ledger.window("", 0.0, time.time()).runs
    assert kept.summary is not None
    totals = report_document(scene.run, scene.ledger)["totals"]
    seconds = {state: value * totals["gpus"] for state, value in kept.summary.by_state.items()}
    assert seconds.pop("productive") == pytest.approx(totals["productive_gpu_seconds"], abs=1e-5)
    assert seconds == pytest.approx(totals["lost"], abs=1e-5)
    assert set(kept.summary.lost_by_class) == {"process_killed"}


def checkpoints_are_accounted_for(scene: Stage) -> None:
    """The report shows the seconds in which both attempts saved, and those in which the second one loaded."""
    document = report_document(scene.run, scene.ledger)
    seconds = {(tile["attempt"], tile["state"]): 0.0 for tile in document["tiles"]}
    for tile in document["tiles"]:
        seconds[tile["attempt"], tile["state"]] += tile["gpu_seconds"] / document["totals"]["gpus"]
    first, second = (said_of_rank_0(scene, number) for number in (1, 2))
    assert (1, Tile.RESTORE) not in seconds, scene.tell()
    assert seconds[2, Tile.RESTORE] == pytest.approx(sum(second["restore"]), abs=0.01), scene.tell()
    for number, said in ((1, first), (2, second)):
        assert len(said["checkpoint"]) >= 3
        # A save is a stall as far as its step took longer than the usual one, and steps are not equally long.
        assert 0 < seconds[number, Tile.CHECKPOINT_STALL] <= sum(said["checkpoint"]) + 0.01, scene.tell()
    text = report_text(document)
    assert re.search(r"^ *l +restore +\d", text, re.MULTILINE), text
    assert re.search(r"^ *c +checkpoint_stall +\d", text, re.MULTILINE), text
    last = [mark for mark in scene.story.marks if mark.kind == "checkpoint-end"][-1]
    assert "checkpoint step 60 saved to " in last.detail, "the save after the last step was heard of"


def said_of_rank_0(scene: Stage, attempt: int) -> dict[str, list[float]]:
    """The seconds that the attempt's rank 0 printed of its restore and its saves."""
    [log] = scene.folder.glob(f"a{attempt}/*/rank-0.log")
    said = re.findall(r" (restore|checkpoint) step .* in (\S+) s", log.read_text())
    return {kind: [float(seconds) for one, seconds in said if one == kind] for kind in ("restore", "checkpoint")}


def test_a_lost_node(scene: Stage, unfailed: str) -> None:
    with scene.start().held_at(17):
        node = scene.story.attempts[0].nodes[1]
        scene.fault(f"lose-node:{node}")
    comes_back(scene, unfailed, FaultClass.NODE_LOST)
    first, second = scene.story.attempts
    assert node in first.nodes
    assert node not in second.nodes
    taken = [action for action in scene.story.actions if action.kind == NodeAction.QUARANTINE]
    assert [action.target for action in taken] == [node]
    assert incident(scene.story).culprits[0][0] == node


def test_a_node_lost_in_silence(scene: Stage, unfailed: str) -> None:
    with scene.start().held_at(17):
        node = scene.story.attempts[0].nodes[1]
        scene.fault(f"lose-node:{node},silent")
    comes_back(scene, unfailed, FaultClass.NODE_LOST)
    assert node not in scene.story.attempts[1].nodes


def test_a_killed_launcher(scene: Stage, unfailed: str) -> None:
    with scene.start().held_at(17):
        scene.fault(f"kill-launcher:{scene.story.attempts[0].nodes[1]}")
    comes_back(scene, unfailed, FaultClass.PROCESS_KILLED)


def test_a_preemption_with_notice_loses_no_step(scene: Stage, unfailed: str) -> None:
    with scene.start().held_at(17):
        node = scene.story.attempts[0].nodes[1]
        scene.fault(f"preempt-node:{node},notice=5")
    comes_back(scene, unfailed, FaultClass.PREEMPTED)
    first, second = scene.story.attempts
    assert second.resumed_from_step == first.last_step, scene.tell()
    assert node not in second.nodes
    assert not incident(scene.story).charged


def moved_away(scene: Stage, node: str) -> None:
    """The run left a node that somebody wants empty: before its pods had to go, and without losing a step."""
    story = scene.story
    first, second = story.attempts
    assert incident(story).signal == Signal.NODE_CORDONED, scene.tell()
    assert node in first.nodes
    assert node not in second.nodes
    assert second.resumed_from_step == first.last_step, scene.tell()
    assert not incident(story).charged
    assert not [action for action in story.actions if action.target], "nobody is to blame"


def test_a_drained_node(scene: Stage, unfailed: str) -> None:
    scene.start().at_step(17)
    node = scene.story.attempts[0].nodes[1]
    assert not scene.drained(node), "training is not thrown out"
    scene.until(lambda _: scene.drained(node), "an empty node")
    comes_back(scene, unfailed, FaultClass.PREEMPTED)
    moved_away(scene, node)


def test_a_cordoned_node_is_kept_while_there_is_no_other(scene: Stage) -> None:
    scene.start(overrides=("steps=400",)).at_step(5)
    node = scene.story.attempts[0].nodes[1]
    others = [item["metadata"]["name"] for item in scene.cluster.list("Node")]
    for name in [name for name in others if name not in scene.story.attempts[0].nodes]:
        scene.cluster.patch("Node", name, {"spec": {"unschedulable": True}})
    assert not scene.drained(node)
    scene.at_step(60)
    assert scene.story.troubles == (), scene.tell()
    [free] = others[-1:]
    assert free not in scene.story.attempts[0].nodes
    scene.cluster.patch("Node", free, {"spec": {"unschedulable": None}})
    assert succeeded(scene.end()), scene.tell()
    assert outcomes(scene.story) == [FaultClass.PREEMPTED.value, "succeeded"], scene.tell()
    moved_away(scene, node)
    assert free in scene.story.attempts[1].nodes


def test_a_host_out_of_memory_is_tried_once_more(scene: Stage, unfailed: str) -> None:
    scene.start().fault("oom-rank:1,step=12")
    comes_back(scene, unfailed, FaultClass.HOST_OOM)
    assert incident(scene.story).charged


def test_a_loss_that_is_no_number_is_rolled_back(scene: Stage, unfailed: str) -> None:
    scene.start().fault("nan-rank:1,step=17")
    comes_back(scene, unfailed, FaultClass.NUMERIC, Action.ROLL_BACK)
    nan = incident(scene.story).step
    assert nan is not None
    resumed = scene.story.attempts[1].resumed_from_step
    assert resumed is not None
    assert resumed < nan


def test_a_full_disk_while_saving(scene: Stage, unfailed: str) -> None:
    scene.start(overrides=("recovery.restarts.tokens=3",)).fault("disk-full,step=12")
    comes_back(scene, unfailed, FaultClass.STORAGE)


def test_a_corrupt_newest_checkpoint_is_passed_over(scene: Stage, unfailed: str) -> None:
    with scene.start().held_at(18):
        scene.until(lambda story: any(item.step >= 15 for item in story.checkpoints), "a proven checkpoint of step 15")
        corrupted = max(int(path.name.removeprefix("step-")) for path in (scene.folder / "checkpoints").glob("step-*"))
        scene.fault("corrupt-checkpoint:newest")
        scene.fault("kill-rank:0")
    story = scene.end()
    assert succeeded(story), scene.tell()
    second = story.attempts[1]
    assert second.resumed_from_step is not None
    assert second.resumed_from_step < corrupted, scene.tell()
    assert scene.weights() == unfailed


def test_stop_and_resume(scene: Stage, unfailed: str) -> None:
    from workflows.model.records import RequestRecord

    scene.start().at_step(12)
    scene.ledger.request(RequestRecord("stop-1", "story", "stop", 0.0, "enough for today"))
    story = scene.end()
    assert story.run.state is RunState.STOPPED, scene.tell()
    assert outcomes(story) == ["stopped"]
    scene.no_orphans()
    scene.ledger.resume_run("story", "a new day", story.run.ended_at or 0.0)
    story = scene.drive().end()
    assert succeeded(story), scene.tell()
    first, second = story.attempts
    assert second.resumed_from_step == first.last_step, scene.tell()
    assert scene.weights() == unfailed


def test_a_killed_driver_is_taken_over(scene: Stage, unfailed: str) -> None:
    scene.open().drive_in_process()
    with scene.held_at(10):
        scene.fault("kill-flow")
    story = scene.drive().end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["succeeded"], "the running pods were adopted"
    assert story.troubles == ()
    assert story.lease is None or story.lease.fencing >= 2
    assert scene.weights() == unfailed


def test_a_ledger_that_is_away_costs_nothing(scene: Stage, unfailed: str) -> None:
    scene.start().at_step(10)
    scene.fault("ledger-away:seconds=2")
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert story.troubles == (), scene.tell()
    saves = [mark for mark in story.marks if mark.kind == "checkpoint-end"]
    assert len(saves) == len(said_of_rank_0(scene, 1)["checkpoint"]), "those of that time were written down later"
    assert scene.weights() == unfailed


def test_a_control_plane_that_is_away_costs_nothing(scene: Stage, unfailed: str) -> None:
    scene.start().at_step(10)
    scene.fault("api-away:seconds=2")
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert story.troubles == (), scene.tell()
    assert scene.weights() == unfailed


def test_a_killed_coordinator_does_not_stop_the_training(scene: Stage, unfailed: str) -> None:
    scene.start().fault("kill-coordinator,step=10")
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["succeeded"], scene.tell()
    assert scene.weights() == unfailed
