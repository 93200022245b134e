"""Stories of the monitor's second path: what nobody saw, or nobody looks after any more, comes back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest

from flows.monitor import DEAD_SECONDS, monitor
from profiles.vocabulary import Mode, RunState
from tests.support.faults.node_faults import local, loop
from tests.support.harness.runners import Asking, runner
from tests.support.harness.stages import Stage, incident, numbers_are_unique, succeeded
from tests.support.running.waiting import until
from workflows.model.nodes import beat_of, watcher_of

pytestmark = pytest.mark.story
LONG, LONGEST = ("steps=100",), ("steps=600",)
"""For what must still train when the next driver comes, on a machine that is busy with other things."""


@pytest.fixture
def name() -> str:
    """One server for all stories: a key that was used once stays used."""
    return f"story-{uuid4().hex[:8]}"


def alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def reaped(pid: int) -> None:
    """A driver of ours is our child: nobody else waits for it."""
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        until("it is gone", lambda: not alive(pid))


def test_a_run_whose_driver_was_killed_comes_back_by_its_train_flow(scene: Stage, name: str) -> None:
    with runner(scene.home, scene.api_url) as served, closing_asking(scene, served) as asking:
        assert served.terminate() == 0, "its deployment stays, nobody serves it"
        scene.open(name, overrides=LONGEST)
        pid = scene.drive_in_process()
        scene.at_step(5)
        os.kill(pid, signal.SIGKILL)
        reaped(pid)
        assert scene.ledger.lease(name) is not None, "a killed driver gives nothing back"
        with loop(scene.settings, scene.cluster, local()) as lines:
            mine: Any = until("a flow run is asked for", lambda: of_run(asking, name), lambda: str(lines))
            # The server has the flow run a moment before the loop has said so.
            said: Any = until("two lines", lambda: [line.event for line in lines if line.subject == name][1:] and lines)
            assert [line.event for line in said if line.subject == name][:2] == ["found", "mended"]
            assert [one["state"]["type"] for one in mine] == ["SCHEDULED"], "no runner lives"
            served.start()
            scene.until(lambda story: story.lease is not None and story.lease.driver.pid != pid, "another driver")
            until("the finding is closed", lambda: not scene.ledger.findings("local"), lambda: str(lines))
            story = scene.end()
        assert succeeded(story), scene.tell()
        assert len(story.attempts) == 1, "training went on meanwhile"
        [found] = scene.ledger.findings("local", open_only=False)
        assert (found.kind, found.subject) == ("undriven", name)


class closing_asking(closing[Asking]):  # noqa: N801 - reads as a function
    """Whoever asks a runner that serves."""

    def __init__(self, scene: Stage, served: Any) -> None:
        served.serving()
        super().__init__(Asking(scene.api_url, "train/local"))


def of_run(asking: Asking, name: str) -> list[Any]:
    return [one for one in asking.of_deployment() if f"run:{name}" in one["tags"]]


def test_an_end_that_a_hung_driver_does_not_see_is_told_to_it(scene: Stage, name: str) -> None:
    scene.open(name, overrides=LONG)
    pid = scene.drive_in_process()
    scene.until(lambda story: story.attempt is not None and story.attempt.first_step_at is not None, "it looks on")
    os.kill(pid, signal.SIGSTOP)
    try:
        scene.cluster.delete("JobSet", f"{name}-a1", grace_seconds=0)
        with loop(scene.settings, scene.cluster, local()) as lines:
            scene.until(lambda story: bool(story.troubles), "an incident")
            first = incident(scene.story)
            assert first.evidence == ("its JobSet is gone; its driver did not tell",)
            assert (first.signal, first.action) == ("pods-gone", None)
            os.kill(pid, signal.SIGCONT)
            scene.until(lambda story: len(story.attempts) == 2, "the next attempt")
            until("the finding is closed", lambda: not scene.ledger.findings("local"), lambda: str(lines))
    finally:
        if alive(pid):
            os.kill(pid, signal.SIGCONT)
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert numbers_are_unique(story.attempts)
    assert len(story.troubles) == 1, scene.tell()
    assert [item.kind for item in story.requests if item.done_at is not None] == ["wake"]


def test_nothing_is_done_about_a_run_that_is_well(scene: Stage, name: str) -> None:
    scene.start(name)
    with loop(scene.settings, scene.cluster, local()) as lines:
        story = scene.end()
        beaten = until("a heartbeat", lambda: scene.ledger.cursor(beat_of("local")))
    assert succeeded(story), scene.tell()
    assert time.time() - beaten.at < DEAD_SECONDS
    assert [line for line in lines if line.event != "back"] == []
    assert scene.ledger.findings("local", open_only=False) == []


def test_a_dead_loop_is_told_and_its_lease_taken_over(scene: Stage) -> None:
    environment = {**os.environ, "PRIMUS_HOME": str(scene.home), "PREFECT_API_URL": scene.api_url}
    command = [sys.executable, "-m", "deployments.cli.main", "monitor"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until("it holds its lease", lambda: scene.ledger.lease(watcher_of("local")))
        until("its heart beats", lambda: scene.ledger.cursor(beat_of("local")))
        said = asyncio.run(monitor())
        assert said == "0 other findings, 0 acted on", "the loop's lease is no trouble"
        process.kill()
    scene.ledger.move_cursor(beat_of("local"), int(time.time()), time.time() - 31.0)
    said = asyncio.run(monitor())
    assert said.startswith("the loop has completed no round for 3")
    assert "6 nodes: 0 with a fault" in said
    [found] = scene.ledger.findings("local", open_only=False)
    assert found.kind == "lease"
    assert found.why.startswith("the monitor's loop is dead: process ")
    assert scene.ledger.lease(watcher_of("local")) is None, "taken over, and given back"


def test_a_run_that_is_paused_is_left_alone(scene: Stage, name: str) -> None:
    scene.open(name, overrides=LONGEST)
    scene.ledger.pause(name, "a person looks")
    with loop(scene.settings, scene.cluster, local(), Mode.ACT) as lines:
        until("it is found", lambda: [line.why for line in lines if line.subject == name], lambda: str(lines))
    assert [line.event for line in lines if line.subject == name] == ["found"]
    assert lines[0].why.endswith(f"none: paused: run {name}")
    assert scene.story.run.state is RunState.PENDING
    scene.ledger.set_run_state(name, None, RunState.STOPPED, "the end of the story", time.time())
