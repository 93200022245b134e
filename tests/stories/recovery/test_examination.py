"""Stories of failures that may be a node's fault: somebody looks, and what was found decides or at least is told."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import pytest

from profiles.vocabulary import Action, FaultClass, Mode, NodeAction, RunState
from tests.support.harness.stages import Stage, incident, outcomes, succeeded
from tests.support.trainers.last_words import DRIVER, FABRIC, XID, begin, examinations, say

pytestmark = pytest.mark.story


def wait_for_its_pod(scene: Stage) -> str:
    """The examination's pod, once it runs."""
    deadline = time.monotonic() + 60.0
    while True:
        for pod in examinations(scene, "Pod"):
            if pod.get("status", {}).get("phase") == "Running" and scene.cluster.pod_processes(pod["metadata"]["name"]):
                return str(pod["metadata"]["name"])
        assert time.monotonic() < deadline, scene.tell()
        time.sleep(0.01)


def test_a_suspect_that_is_found_healthy_is_told_and_the_run_goes_on(scene: Stage) -> None:
    suspect = begin(scene)
    story = say(scene, FABRIC).end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["fabric", "succeeded"], scene.tell()
    seen = incident(story)
    assert (seen.fault_class, seen.action) == (FaultClass.FABRIC, Action.NEW_ATTEMPT), scene.tell()
    told = [line for line in seen.evidence if line.startswith("examined ")]
    assert [line.partition(";")[0] for line in told] == [f"examined {suspect}: pass"], seen.evidence
    assert seen.culprits == (), "healthy, and nobody else is named"
    verdicts = [
        item for item in scene.ledger.verdicts(scene.resolved.cluster.name, suspect) if item.source == "story-a1-x1"
    ]
    assert [item.verdict for item in verdicts] == ["pass"]
    assert examinations(scene) == [], "cleared away with the attempt"
    scene.no_orphans()


def test_what_the_kernel_of_a_suspect_said_decides(scene: Stage) -> None:
    suspect = begin(scene)
    since_boot = time.clock_gettime(time.CLOCK_MONOTONIC)
    (scene.folder / "kernel" / f"{suspect}.log").write_text(f"<4>[{since_boot:12.6f}] {XID}\n")
    story = say(scene, DRIVER).end()
    assert succeeded(story), scene.tell()
    seen = incident(story)
    assert seen.fault_class is FaultClass.GPU_HARDWARE, scene.tell()
    assert seen.culprits == ((suspect, None),)
    assert any(f"examined {suspect}: pass; its kernel log has 1 line about faults" in line for line in seen.evidence)
    assert any(XID in line for line in seen.evidence), seen.evidence
    taken = [(item.target, item.state) for item in story.actions if item.kind == NodeAction.QUARANTINE]
    assert taken == [(suspect, "done")]
    assert suspect not in story.attempts[1].nodes
    scene.no_orphans()


def test_an_examination_that_is_killed_is_unknown_and_the_run_goes_on(scene: Stage) -> None:
    suspect = begin(scene)
    os.mkfifo(scene.folder / "kernel" / f"{suspect}.log")  # reading it takes as long as the check may take
    say(scene, FABRIC)
    pod = wait_for_its_pod(scene)
    killed: list[int] = []
    for process in scene.cluster.pod_processes(pod):
        with suppress(ProcessLookupError):  # it may end with the one before it
            os.kill(process, signal.SIGKILL)
            killed.append(process)
    assert killed
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["fabric", "succeeded"], scene.tell()
    seen = incident(story)
    assert any(line.startswith(f"examined {suspect}: unknown; ") for line in seen.evidence), seen.evidence
    assert seen.culprits == ()
    assert [item.kind for item in story.actions if item.target] == [], "unknown blames nobody"
    assert suspect in story.attempts[1].nodes
    scene.no_orphans()


def test_in_mode_observe_nobody_is_examined(scene: Stage) -> None:
    suspect = begin(scene)
    scene.ledger.set_mode("story", Mode.OBSERVE)
    say(scene, FABRIC)
    story = scene.until(lambda story: bool(story.actions), "a recorded decision")
    assert {action.state for action in story.actions} == {"recorded"}
    told = f"examined {suspect}: unknown; examination: mode observe: nothing is touched"
    assert told in incident(story).evidence, incident(story).evidence
    scene.until(lambda story: story.run.state is RunState.RECOVERING, "resting")
    assert examinations(scene) == examinations(scene, "Pod") == []
    scene.ledger.set_mode("story", Mode.ACT)
    assert succeeded(scene.end()), scene.tell()
