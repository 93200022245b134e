"""Stories of `primus drill`: one thing of a living run is broken, and what follows is measured."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from typing import Any

import pytest
from prefect import State

from deployments.cli.drill import run_drill
from flows.drill import ASLEEP, BEGUN, RECOVERY_SECONDS, break_once, drill
from profiles.drill import parse_fault
from profiles.errors import ProfileError, Unavailable
from profiles.vocabulary import Action, FaultClass, VerdictWord
from tasks.context import session
from tasks.runs.faults import rank_process, words_of
from tests.support.harness.stages import Stage, beyond_noise, incident, outcomes, succeeded
from workflows.model.nodes import Node, node_of
from workflows.model.records import MarkRecord

pytestmark = pytest.mark.story
LONG = ("steps=100000",)
"""Whatever the machine is busy with, it does not end before the drill."""


def drilled(scene: Stage, capsys: pytest.CaptureFixture[str], fault: str, code: int = 0) -> dict[str, Any]:
    """What the drill reports; the fault stands in the ledger."""
    capsys.readouterr()
    before = faults(scene)
    assert run_drill(scene.run, fault, as_json=True) == code, scene.tell()
    assert len(faults(scene)) == len(before) + 1, "it fired"
    return json.loads(capsys.readouterr().out)


def asked_for(run: str, fault: str) -> State[Any]:
    """How the flow run of a drill ends."""
    flow: Any = drill
    return asyncio.run(flow(run, fault, return_state=True))


def faults(scene: Stage) -> list[str]:
    return [mark.detail for mark in scene.story.marks if mark.kind == "fault"]


def test_what_training_outlives_is_measured_by_its_next_step(scene: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """One run for all: none of them may leave a trace in it."""
    scene.start(overrides=LONG).at_step(10)
    step = 0
    for fault, least_seconds in (
        ("stop-rank:1,seconds=0.5", 0.5),
        ("kill-coordinator", 0.0),
        ("slow-rank:1,factor=4", 0.0),
    ):
        told = drilled(scene, capsys, fault)
        assert told["fault"] == fault.partition(",")[0]
        assert (told["recovered"], told["why"], told["attempts"]) == (True, "training went on by itself", 1)
        assert told["next_step_after_seconds"] > least_seconds, told
        assert told["next_step"] > step
        step = told["next_step"]
    assert beyond_noise(scene.story) == [], scene.tell()
    assert faults(scene) == ["stop-rank:1", "kill-coordinator", "slow-rank:1"]


def test_a_hung_rank_is_recovered_in_place(scene: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    scene.start(in_place=True, overrides=("steps=200",)).at_step(20)
    told = drilled(scene, capsys, "hang-rank:1,step=50")
    assert (told["recovered"], told["class"], told["action"]) == (True, FaultClass.HANG, Action.RESTART_IN_PLACE)
    assert told["culprits"][0]["rank"] == 1
    assert 0 < told["detected_after_seconds"] <= told["resumed_after_seconds"]
    assert succeeded(scene.end()), scene.tell()


def test_a_corrupt_checkpoint_is_told_to_be_asleep_and_a_resume_passes_it_over(
    scene: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.start(overrides=("steps=400", "checkpoint.interval_steps=100"))
    scene.until(lambda story: any(item.step == 200 for item in story.checkpoints), "a second checkpoint")
    began = time.monotonic()
    told = drilled(scene, capsys, "corrupt-checkpoint:newest")
    assert time.monotonic() - began < RECOVERY_SECONDS / 2, "it waits for nothing"
    assert (told["recovered"], told["why"]) == (None, ASLEEP["corrupt-checkpoint"])
    assert beyond_noise(scene.story) == [], scene.tell()
    again = drilled(scene, capsys, "kill-rank:0")
    assert (again["recovered"], again["action"]) == (True, Action.NEW_ATTEMPT)
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["process_killed", "succeeded"], scene.tell()
    assert incident(story).attempt == 1
    # Which one was the newest when it was damaged is the machine's matter.
    [corrupt] = {item.step for item in story.checkpoints if item.verdict is VerdictWord.FAIL}
    assert story.attempts[1].resumed_from_step == corrupt - 100, "the newest is corrupt: the next older proven one"


def test_a_drill_from_the_server_s_pages_breaks_one_thing_however_often_it_is_started(scene: Stage) -> None:
    scene.start(in_place=True, overrides=("steps=200",)).at_step(10)
    state = asked_for(scene.run, "kill-rank:1,step=20")
    assert state.is_completed(), state.message
    assert re.fullmatch(
        r"kill-rank:1: noticed after [\d.]+ s as process_killed, answered with restart-in-place, "
        r"training again after [\d.]+ s",
        state.message or "",
    )
    assert faults(scene) == ["kill-rank:1"]
    with session() as here:
        first = break_once("second drill", scene.run, parse_fault("kill-coordinator"), here)
        assert break_once("second drill", scene.run, parse_fault("kill-coordinator"), here) == pytest.approx(first)
        assert faults(scene) == ["kill-rank:1", "kill-coordinator"]
        here.ledger.add_marks(None, [MarkRecord(scene.run, 1, BEGUN, time.time(), "third drill")])
        here.ledger.add_marks(None, [MarkRecord(scene.run, 1, "fault", time.time(), "kill-flow")])  # of another drill
        with pytest.raises(Unavailable, match="by a process that died"):
            break_once("third drill", scene.run, parse_fault("kill-rank:0"), here)
    assert len(faults(scene)) == 3, "and the one that was only written down"
    assert succeeded(scene.end()), scene.tell()
    late = asked_for(scene.run, "kill-rank:1")
    assert late.is_failed()
    assert "ended before what was waited for" in (late.message or "")
    wrong = asked_for(scene.run, "kill-nobody:1")
    assert wrong.is_failed()
    assert (wrong.message or "").startswith("nothing was broken: --fault")


def node(scene: Stage, name: str) -> Node:
    found = scene.cluster.get("Node", name)
    assert found is not None
    return node_of(found)


def test_what_a_drill_did_to_a_node_is_put_back_at_its_end(scene: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """Twice in a row: a drilled node that never came back would be missing, and the brake would ask."""
    scene.start(overrides=LONG).at_step(10)
    for fault in ("lose-node", "preempt-node"):
        attempt = scene.story.attempts[-1]
        name = attempt.nodes[-1]
        told = drilled(scene, capsys, f"{fault}:{name}" + (",notice=1" if fault == "preempt-node" else ""))
        assert (told["recovered"], told["action"]) == (True, Action.NEW_ATTEMPT), told
        assert name in told["put_back"]
        found = node(scene, name)
        assert (found.ready, found.cordoned, found.quarantined) == (True, False, False), scene.tell()
    assert {item.state for item in scene.ledger.nodes("local")} <= {"schedulable"}
    assert run_drill(scene.run, put_back=True) == 0
    assert capsys.readouterr().out.count("has power, and nothing that a drill did stands on it\n") == 2


def test_a_drill_on_a_paused_run_ends_when_it_is_known_that_nothing_will_be_done(
    scene: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.start(overrides=LONG).at_step(10)
    scene.ledger.pause(scene.run, "a test")
    began = time.monotonic()
    told = drilled(scene, capsys, "kill-rank:0", code=3)
    assert time.monotonic() - began < RECOVERY_SECONDS / 4
    assert (told["recovered"], told["class"]) == (None, FaultClass.PROCESS_KILLED)
    assert told["waits_for"].startswith(f"`primus unpause {scene.run}`: paused")
    with pytest.raises(ProfileError, match="paused and nothing of it trains"):
        run_drill(scene.run, "kill-rank:0")


def test_a_rank_that_a_drill_holds_is_let_go_at_its_end(scene: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    scene.start(overrides=LONG).at_step(10)
    assert drilled(scene, capsys, "slow-rank:1,factor=8")["put_back"] == "rank 1 runs at full speed again"
    held = f"kill -STOP {rank_process(scene.scene(), 1)} "
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and held in str(words_of(int(pid)))]


def test_a_drill_whose_run_does_not_come_back_says_so(
    scene: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.drill.RECOVERY_SECONDS", 0.2)
    scene.start(overrides=LONG).at_step(10)
    told = drilled(scene, capsys, "stop-rank:1,seconds=3", code=1)
    assert told["recovered"] is False
    assert "did not come within 0.2 s" in told["why"]
