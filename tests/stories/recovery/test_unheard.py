"""A coordinator that is not heard: the launchers' own logs are the second path to how far the gang is."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from deployments.cli.why import read_run
from flows.decisions.explain.why import explain
from profiles.vocabulary import Action, FaultClass, RunState
from tests.support.harness.stages import PROFILE, Stage, beyond_noise, incident, outcomes, stage, succeeded
from tests.support.trainers.plain_ranks import weights_of_plain_ranks
from workflows import labels
from workflows.model.attempt import Signal
from workflows.model.records import UNHEARD, Story

pytestmark = pytest.mark.story
STEP_COUNT = 300
SOON = (f"steps={STEP_COUNT}", "recovery.observer_silence_seconds=1")
"""Fifteen seconds of training; a second of silence is one."""


@pytest.fixture
def scene(prefect_server: str) -> Iterator[Stage]:
    with stage(prefect_server) as made:
        yield made


def coordinator(scene: Stage) -> int:
    """Pid of the coordinator's own process."""
    for pod in scene.scene().pods(labels.COORDINATOR_ROLE):
        for pid in scene.cluster.pod_processes(pod):
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if b"coordinate" in file.read().split(b"\0")[:6]:
                    return int(pid)
    raise AssertionError(scene.tell())


def state_of(pid: int) -> str:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(") ")[2][0]


@contextmanager
def stopped(scene: Stage) -> Iterator[int]:
    """The coordinator of the run does nothing for a while; that it stands still is looked at."""
    pid = coordinator(scene)
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + scene.ground.deadline_seconds
    while state_of(pid) != "T":
        assert time.monotonic() < deadline, state_of(pid)
        time.sleep(0.01)
    try:
        yield pid
    finally:
        with suppress(ProcessLookupError):  # its attempt was cleared away
            os.kill(pid, signal.SIGCONT)


def unheard(story: Story) -> bool:
    return story.run.goes_on


def test_training_goes_on_unheard_and_the_run_says_so(scene: Stage, tmp_path_factory: pytest.TempPathFactory) -> None:
    scene.start(overrides=SOON).at_step(20)
    with stopped(scene) as pid:
        told = scene.until(unheard, "what the logs say")
        assert told.run.state is RunState.RUNNING
        said = told.run.waits_for
        assert said.startswith("the coordinator has not been heard for "), told.run.why
        assert said.endswith(" by its own log: training continues"), told.run.why
        heard = max(row.step for row in scene.ledger.steps(scene.run, 1))
        later = scene.until(lambda story: (story.attempts[0].last_step or 0) > heard, "a step that only logs told")
        assert beyond_noise(later) == [], scene.tell()
        [reason, *_] = explain(read_run(scene.run, scene.settings, scene.ledger)).reasons
        assert said in reason.sentence
        assert state_of(pid) == "T", "it stood still the whole time"
    scene.until(lambda story: not unheard(story) or story.run.state is RunState.SUCCEEDED, "it is heard again")
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["succeeded"], scene.tell()
    assert beyond_noise(story) == [], scene.tell()
    history = [line.why for line in scene.ledger.history(scene.run) if UNHEARD in line.why]
    assert len(set(history)) == 1, "said once"
    steps = {row.step for row in scene.ledger.steps(scene.run, 1)}
    assert steps == set(range(1, 301)), "what was reported meanwhile came later"
    assert scene.weights() == weights_of_plain_ranks(tmp_path_factory, PROFILE, STEP_COUNT)


def test_a_run_whose_coordinator_never_comes_back_reaches_its_end(scene: Stage) -> None:
    scene.start(overrides=("steps=200", *SOON[1:])).at_step(20)
    with stopped(scene):
        scene.until(unheard, "what the logs say")
        story = scene.until(lambda story: story.run.state is RunState.SUCCEEDED, "the end")
        assert beyond_noise(story) == [], scene.tell()
        assert story.attempts[0].last_step == 200


def test_a_gang_that_hangs_unheard_is_a_new_attempt(scene: Stage) -> None:
    """Nobody but the logs can tell: two paths say nothing of a step, for longer than any phase may take."""
    limits = (
        "recovery.hang.init_seconds=6",
        "recovery.hang.checkpoint_seconds=6",
        "recovery.hang.step_floor_seconds=6",
    )
    scene.start(overrides=("steps=120", *SOON[1:], *limits)).at_step(20)
    with stopped(scene):
        scene.fault("hang-rank:1")
        story = scene.until(lambda story: bool(beyond_noise(story)), "the hang")
        seen = incident(story)
        assert (seen.signal, seen.attempt) == (Signal.HANG, 1), scene.tell()
        assert seen.seen.startswith("no progress by either path: the coordinator has not been heard for "), seen
        scene.until(lambda story: len(story.attempts) > 1, "the next attempt")
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["hang", "succeeded"], scene.tell()
    [seen] = beyond_noise(story)
    assert (seen.fault_class, seen.action, seen.culprits) == (FaultClass.HANG, Action.NEW_ATTEMPT, ())
    assert not [action for action in story.actions if action.target], "nobody is taken out"
    assert story.attempts[1].resumed_from_step is not None
