"""The flow is stopped after every single task and started again: same end, one attempt per number, nothing twice."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from typing import Any

import pytest
from prefect import Task

import flows.failover
from profiles.resolve import Resolved
from profiles.vocabulary import NodeAction
from tests.support.harness.stages import Stage, numbers_are_unique, outcomes, stage, succeeded
from tests.support.trainers.last_words import FABRIC, examinations, open_run, say
from workflows import labels

pytestmark = pytest.mark.story


class Stopped(BaseException):
    """The flow was stopped here, as a signal would; nothing of ours may catch it."""


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the task runs after which the flow was stopped: each task once, the first time it is run."""
    stopped: list[str] = []
    call = Task.__call__

    def once(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = call(self, *args, **kwargs)
        bound = inspect.signature(self.fn).bind(*args, **kwargs)
        name = str(self.task_run_name).format(**bound.arguments)
        if name not in stopped:
            stopped.append(name)
            raise Stopped(name)
        return result

    monkeypatch.setattr(Task, "__call__", once)
    return stopped


@pytest.fixture
def scene(prefect_server: str) -> Iterator[Stage]:
    with stage(prefect_server) as made:
        yield made


def live_until_done(scene: Stage) -> int:
    """Start the flow as often as it takes; the number of its lives."""
    for life in range(1, 100):
        thread = scene.drive().thread
        thread.join(90.0)
        assert not thread.is_alive(), scene.tell()
        if scene.error is None:
            return life
        assert isinstance(scene.error, Stopped), scene.tell()
    raise AssertionError(scene.tell())


def submissions(scene: Stage) -> list[str]:
    """Every JobSet that was ever created for the run, by its attempt."""
    jobsets = scene.cluster.list("JobSet", {labels.RUN: scene.run})
    return sorted(item["metadata"]["labels"][labels.ATTEMPT] for item in jobsets)


def sayings(stops: list[str]) -> set[str]:
    """The tasks' names without where they act."""
    return {name.partition(" on ")[0] for name in stops}


def test_a_clean_run(scene: Stage, stops: list[str]) -> None:
    scene.open(overrides=("steps=20",))
    lives = live_until_done(scene)
    story = scene.story
    assert succeeded(story), scene.tell()
    assert lives == len(stops) + 1
    assert {"submits attempt 1", "watches attempt 1"} <= sayings(stops)
    assert outcomes(story) == ["succeeded"]
    assert story.troubles == ()
    assert submissions(scene) == ["1"]
    launched = sorted(path.parent.name for path in scene.folder.glob("a1/trainer-*/launcher.log"))
    assert launched == ["trainer-0", "trainer-1"]
    scene.no_orphans()


@pytest.mark.parametrize("overlapping", [False, True])
def test_a_run_that_loses_a_node(
    scene: Stage, stops: list[str], monkeypatch: pytest.MonkeyPatch, overlapping: bool
) -> None:
    def ends_slowly(_: Resolved) -> bool:
        return overlapping

    monkeypatch.setattr(flows.failover, "ends_slowly", ends_slowly)
    scene.open(overrides=("steps=30",))
    lost = ""
    for _ in range(100):
        thread = scene.drive().thread
        if not lost and "submits attempt 1" in sayings(stops):
            with scene.held_at(12):
                lost = scene.story.attempts[0].nodes[1]
                scene.fault(f"lose-node:{lost}")
        deadline = time.monotonic() + 90.0
        thread.join(90.0)
        assert time.monotonic() < deadline, scene.tell()
        if scene.error is None:
            break
        assert isinstance(scene.error, Stopped), scene.tell()
    story = scene.story
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["node_lost", "succeeded"], scene.tell()
    assert numbers_are_unique(story.attempts)
    assert len(story.troubles) == 1
    taken = [item for item in story.actions if item.kind == NodeAction.QUARANTINE]
    assert [(item.target, item.state) for item in taken] == [(lost, "done")]
    assert any(name.startswith("decides new-attempt") for name in stops), stops
    assert {"submits attempt 2", "clears attempt 1 away"} <= sayings(stops), stops
    assert ("begins to clear attempt 1 away" in sayings(stops)) is overlapping
    scene.no_orphans()


def test_a_run_whose_suspect_is_examined(scene: Stage, stops: list[str]) -> None:
    say(open_run(scene), FABRIC)
    found: set[str] = set()
    for _ in range(100):
        scene.drive().thread.join(90.0)
        found |= {item["metadata"]["uid"] for item in examinations(scene)}
        if scene.error is None:
            break
        assert isinstance(scene.error, Stopped), scene.tell()
    story = scene.story
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["fabric", "succeeded"], scene.tell()
    assert numbers_are_unique(story.attempts)
    [seen] = story.troubles
    [suspect] = [name.removeprefix("examines ") for name in stops if name.startswith("examines ")]
    assert len([line for line in seen.evidence if line.startswith(f"examined {suspect}: pass")]) == 1, seen.evidence
    assert len(found) == 1, "the examination of the flow's earlier life was read, none was made anew"
    assert examinations(scene) == []
    scene.no_orphans()
