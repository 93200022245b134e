"""Stories of runs that must not go on by themselves: the right class, the right reason, nothing half done."""

from __future__ import annotations

import json
from typing import Any

import pytest

from profiles.errors import Conflict
from profiles.vocabulary import Action, FaultClass, Mode, NodeAction, RunState
from tasks.observe.objects import pool_selector
from tests.support.builders.ledgers import a_person
from tests.support.harness.stages import Stage, incident, outcomes, succeeded
from workflows.model.records import RequestRecord

pytestmark = pytest.mark.story


def test_an_exception_in_the_user_s_code_is_not_retried(scene: Stage) -> None:
    scene.start().fault("exception-rank:1,step=12")
    story = scene.end()
    assert story.run.state is RunState.FAILED, scene.tell()
    seen = incident(story)
    assert (seen.fault_class, seen.action) == (FaultClass.USER_CODE, Action.GIVE_UP), scene.tell()
    assert outcomes(story) == ["user_code"]
    assert any("Error" in line for line in seen.evidence), seen.evidence
    scene.no_orphans()


def test_the_same_failure_at_the_same_step_twice_is_the_code(scene: Stage) -> None:
    def fails_at(step: int) -> None:
        (scene.folder / "fault.json").write_text(json.dumps({"rank": 1, "fault": "exception", "step": step}))

    scene.open(overrides=("recovery.retry_user_code=true", "recovery.same_failure_limit=2"))
    scene.folder.mkdir(parents=True)
    fails_at(20)
    scene.drive()
    scene.until(lambda story: bool(story.troubles), "the first failure")
    fails_at(20)
    story = scene.end()
    assert story.run.state is RunState.FAILED, scene.tell()
    assert outcomes(story) == ["user_code", "user_code"], "it was tried again once"
    assert [item.action for item in story.troubles] == [Action.NEW_ATTEMPT, Action.GIVE_UP]
    assert story.troubles[0].fingerprint == story.troubles[1].fingerprint != ""
    assert "same failure 2 times" in story.run.why, story.run.why


def test_all_checkpoints_corrupt(scene: Stage) -> None:
    with scene.start(overrides=("checkpoint.interval_steps=20",)).held_at(21):
        for folder in (scene.folder / "checkpoints").glob("step-*"):
            for path in folder.glob("shard-*"):
                path.write_bytes(b"\0" * 16)
        scene.fault("kill-rank:0")
    story = scene.end()
    assert story.run.state is RunState.FAILED, scene.tell()
    assert [str(item.fault_class) for item in story.troubles] == ["process_killed", "checkpoint_corrupt"], scene.tell()
    assert story.troubles[-1].action is Action.GIVE_UP
    scene.no_orphans()


def test_a_resume_that_starts_over_is_stopped(scene: Stage) -> None:
    # A trainer that ignores its resume argument: the profile gives it one that it does not understand as such.
    scene.start(overrides=('checkpoint.resume_argument=["--seed", "{resume_step}"]',)).fault("kill-rank:0,step=12")
    story = scene.end()
    assert story.run.state is RunState.FAILED, scene.tell()
    assert story.troubles[-1].fault_class is FaultClass.STARTED_OVER, scene.tell()
    second = story.attempts[1]
    assert second.first_step == 1
    assert second.resumed_from_step is not None


def test_a_bad_image(scene: Stage) -> None:
    scene.start(overrides=("roles.trainer.image=registry.invalid/no-such:1",))
    story = scene.end()
    seen = incident(story)
    assert (seen.fault_class, seen.action) == (FaultClass.CONFIG, Action.GIVE_UP), scene.tell()
    assert "registry.invalid/no-such:1" in " ".join(seen.evidence), seen.evidence


def test_a_gang_that_finds_no_room(scene: Stage) -> None:
    scene.open(overrides=("recovery.pending_timeout_seconds=1",))
    for node in scene.cluster.list("Node", pool_selector(scene.resolved))[1:]:
        scene.cluster.patch("Node", node["metadata"]["name"], {"spec": {"unschedulable": True}})
    story = scene.drive().end()
    seen = incident(story)
    assert seen.fault_class is FaultClass.SCHEDULING, scene.tell()
    assert story.run.state is RunState.FAILED
    assert "unschedulable" in " ".join(seen.evidence), seen.evidence
    scene.no_orphans()


def test_no_spare_node_left(scene: Stage) -> None:
    small = scene.home / "small.yaml"
    pool = "  - name: cpu\n    hardware: cpu\n    nodes: 2\n    spares: 0\n    node_prefix: node-\n"
    small.write_text(f"extends: local\nname: small\npools:\n{pool}")
    with scene.start(cluster=str(small), overrides=("recovery.pending_timeout_seconds=1",)).held_at(12):
        scene.fault(f"lose-node:{scene.story.attempts[0].nodes[1]}")
    story = scene.end()
    assert story.run.state is RunState.FAILED, scene.tell()
    assert [str(item.fault_class) for item in story.troubles] == ["node_lost", "scheduling"], scene.tell()


def nodes_as_written(scene: Stage) -> dict[str, Any]:
    """What people and we write about nodes: marks, taints, cordons. Their status is their own agents' business."""
    nodes = {item["metadata"]["name"]: item for item in scene.cluster.list("Node")}
    return {name: (item["metadata"].get("labels"), item.get("spec")) for name, item in nodes.items()}


def test_mode_observe_touches_nothing(scene: Stage) -> None:
    scene.open().drive_in_process()
    with scene.held_at(10):
        scene.fault("kill-flow")
    scene.ledger.set_mode("story", Mode.OBSERVE)
    before = nodes_as_written(scene)
    scene.drive()
    scene.fault("kill-rank:1")
    story = scene.until(lambda story: bool(story.actions), "a recorded decision")
    assert incident(story).action is Action.NEW_ATTEMPT
    assert {action.state for action in story.actions} == {"recorded"}
    scene.until(lambda story: story.run.state is RunState.RECOVERING, "resting")
    assert len(story.attempts) == 1
    assert scene.cluster.get("JobSet", "story-a1") is not None
    assert scene.cluster.get("JobSet", "story-a2") is None
    assert nodes_as_written(scene) == before
    scene.ledger.set_mode("story", Mode.ACT)
    assert succeeded(scene.end()), scene.tell()


def test_mode_observe_does_what_a_person_asks_for_and_no_more(scene: Stage) -> None:
    before = nodes_as_written(scene.open(mode=Mode.OBSERVE))
    with scene.drive().held_at(8):
        scene.fault("kill-rank:1")
    story = scene.until(lambda story: bool(story.actions), "a recorded decision")
    assert (incident(story).action, story.actions[0].state) == (Action.NEW_ATTEMPT, "recorded"), scene.tell()
    scene.ledger.request(RequestRecord("stop-1", "story", "stop", 0.0, "seen enough"))
    story = scene.end()
    assert (story.run.state, story.run.why) == (RunState.STOPPED, "seen enough"), scene.tell()
    assert {action.state for action in story.actions} == {"recorded"}
    scene.ledger.resume_run("story", "a new day", story.run.ended_at or 0.0)
    story = scene.drive().end()
    assert succeeded(story), scene.tell()
    assert outcomes(story)[1:] == ["succeeded"], "the attempt after a resume is a person's wish too"
    assert nodes_as_written(scene) == before


def test_the_brake_asks_before_one_node_too_many(scene: Stage) -> None:
    tight = scene.home / "tight.yaml"
    tight.write_text("extends: local\nname: tight\nbrake:\n  max_evictions: 1\n")
    with scene.start(cluster=str(tight)).held_at(8):
        first = scene.story.attempts[0].nodes[1]
        scene.fault(f"lose-node:{first}")
    scene.until(lambda story: len(story.attempts) == 2 and story.attempts[1].first_step is not None, "attempt 2")
    scene.fault(f"lose-node:{scene.story.attempts[1].nodes[1]}")
    story = scene.until(lambda story: story.run.state is RunState.WAITING_FOR_APPROVAL, "a question")
    assert story.troubles[1].action is Action.ASK
    waiting = [item for item in story.approvals if item.state == "waiting"]
    assert "brake" in waiting[0].question
    assert [item.target for item in story.actions if item.kind == NodeAction.QUARANTINE and item.state == "done"] == [
        first
    ]
    scene.ledger.answer(waiting[0].id, True, a_person(), "we know", 0.0)
    assert succeeded(scene.end()), scene.tell()


def test_a_denied_question_leaves_the_run_stopped(scene: Stage) -> None:
    scene.start(mode=Mode.ASK, overrides=('recovery.ask_before=["new-attempt"]',)).fault("kill-rank:1,step=8")
    story = scene.until(lambda story: any(item.state == "waiting" for item in story.approvals), "a question")
    scene.ledger.answer(story.approvals[0].id, False, a_person(), "not today", 0.0)
    story = scene.end()
    assert story.run.state is RunState.STOPPED, scene.tell()
    assert "not today" in story.run.why
    assert len(story.attempts) == 1
    scene.no_orphans()


def test_a_pause_holds_what_was_decided(scene: Stage) -> None:
    with scene.start().held_at(8):
        scene.ledger.pause("story", "maintenance")
        scene.fault("kill-rank:1")
    scene.until(lambda story: bool(story.actions), "a decision")
    assert len(scene.story.attempts) == 1
    scene.ledger.unpause("story", "done")
    assert succeeded(scene.end()), scene.tell()


def test_two_drivers_of_one_run(scene: Stage) -> None:
    scene.open()
    pid = scene.drive_in_process()
    scene.at_step(5)
    scene.drive().thread.join(scene.ground.deadline_seconds)
    assert isinstance(scene.error, Conflict), scene.tell()
    assert str(pid) in str(scene.error), "the message names who drives it"
    scene.forget_thread()
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["succeeded"]


def test_one_profile_on_two_kinds_of_hardware(scene: Stage) -> None:
    seen: dict[str, set[str]] = {}
    for hardware in ("mi300x", "h200"):
        scene.start(
            name=hardware, profile="demo-gpus", cluster="local-gpus", overrides=(f'hardware=["{hardware}"]', "steps=10")
        )
        story = scene.end()
        assert succeeded(story), scene.tell()
        seen[hardware] = {
            scene.cluster.get("Node", node)["metadata"]["labels"]["primus-flows.io/pool"]
            for node in story.attempts[0].nodes
        }
    assert seen["mi300x"].isdisjoint(seen["h200"])
