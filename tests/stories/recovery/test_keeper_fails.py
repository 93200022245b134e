"""Stories of a cluster that stands still because its keeper fails: training is left alone, and nothing is concluded."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tasks.embedded.runtime import processes
from tasks.embedded.start_keeper import keeper_lock
from tasks.embedded.store import locks
from tests.support.harness.stages import Stage, incident, outcomes, succeeded
from workflows.model.records import Story

pytestmark = pytest.mark.story


def break_keeper(scene: Stage) -> Path:
    """From now on no keeper can be started: a folder stands where it writes its log."""
    root: Path = scene.cluster.root
    pid = locks.holder(keeper_lock(str(root)))
    log = root / "keeper.log"
    if log.exists():
        log.rename(root / "keeper.log.before")
    log.mkdir()
    for process in [] if pid is None else [*processes.children(pid), pid]:
        os.kill(process, signal.SIGKILL)
    return log


def says_so(log: Path, story: Story) -> bool:
    return "waits, training is left alone: the embedded cluster stands still" in story.run.why and (
        f"see {log}" in story.run.why
    )


def last_step(story: Story) -> int:
    attempt = story.attempt
    return (attempt.last_step if attempt else None) or 0


def test_training_goes_on_while_the_keeper_fails(scene: Stage) -> None:
    scene.start(overrides=("steps=200", "recovery.pending_timeout_seconds=1")).at_step(8)
    log = break_keeper(scene)
    story = scene.until(lambda story: says_so(log, story), "the reason in the run's why")
    assert story.run.why.startswith("attempt 1 makes progress"), "why it is in its state is said too"
    before = last_step(story)
    scene.until(lambda story: last_step(story) > before + 10, "steps that the ledger hears of")
    assert scene.story.troubles == (), scene.tell()
    log.rmdir()
    story = scene.until(lambda story: not says_so(log, story), "a keeper that works")
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert story.troubles == (), scene.tell()
    assert outcomes(story) == ["succeeded"]
    assert "waits" not in story.run.why
    scene.no_orphans()


def test_a_run_is_not_given_up_because_its_cluster_stands_still(scene: Stage) -> None:
    scene.open(overrides=("steps=20", "recovery.pending_timeout_seconds=1"))
    log = break_keeper(scene)
    scene.drive()
    scene.until(lambda story: says_so(log, story), "the reason in the run's why")
    assert scene.story.troubles == (), scene.tell()
    log.rmdir()
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert story.troubles == (), scene.tell()
    assert outcomes(story) == ["succeeded"]
    scene.no_orphans()


def test_an_attempt_whose_workflow_file_is_lost_is_an_incident(scene: Stage) -> None:
    """A file of nothing but zeros, as a power failure leaves it: the run must not wait for it for ever."""
    scene.open(overrides=("steps=20",))
    scene.drive()
    name = "story-a1"
    root: Path = scene.cluster.root
    workflow = root / "objects" / "Workflow" / name
    scene.until(lambda _: workflow.exists() and b'"nodes":{"' in workflow.read_bytes(), "the attempt's workflow")
    log = break_keeper(scene)
    scene.until(lambda story: says_so(log, story), "the reason in the run's why")
    for kind in ("Workflow", "JobSet"):
        path = root / "objects" / kind / name
        if path.exists():
            path.write_bytes(bytes(64))
    log.rmdir()
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert "its file was broken" in incident(story).seen, scene.tell()
    assert len(story.attempts) == 2, scene.tell()
    assert (root / "broken" / "Workflow" / name).read_bytes() == bytes(64)
    scene.no_orphans()
