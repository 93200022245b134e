"""How often to save: measured while the gang trains, told to the next attempt where the profile allows it."""

from __future__ import annotations

import pytest

from tests.support.harness.stages import Stage, succeeded
from workflows.model.records import AttemptRecord

pytestmark = pytest.mark.story
SHORT = ("steps=120", "checkpoint.interval_steps=4", "recovery.in_place_restarts=0")


def advised(scene: Stage, *overrides: str) -> None:
    """A run that has measured its saves and lost a rank since."""
    scene.start(overrides=(*SHORT, *overrides)).until(
        lambda story: bool(story.attempts) and story.attempts[0].advised_steps is not None, "advice about saving"
    )
    scene.fault("kill-rank:1")
    assert succeeded(scene.end()), scene.tell()


def saved_by(scene: Stage, attempt: AttemptRecord) -> set[int]:
    """Steps that the attempt saved itself: it looks at those of the attempt before it too, if nobody had."""
    begins = attempt.first_step
    assert begins is not None, scene.tell()
    looked_at = {item.step for item in scene.story.checkpoints if item.attempt == attempt.number}
    saved = {step for step in looked_at if step >= begins}
    assert saved, scene.tell()
    return saved


def test_the_next_attempt_saves_as_often_as_is_best(scene: Stage) -> None:
    advised(scene, "checkpoint.follow_advice=true")
    first, second = scene.story.attempts
    assert first.interval_steps is None, "the first one does as the profile says"
    assert first.advised_steps is not None
    assert first.advised_steps > 16, "two nodes fail every few weeks, and a save costs milliseconds"
    assert second.interval_steps == 16, "four times the profile's at most"
    assert "saves every 16 steps as advised" in second.why
    assert {step % 16 for step in saved_by(scene, second) - {120}} == {0}, scene.tell()
    scene.no_orphans()


def test_a_profile_that_does_not_allow_it_is_only_advised(scene: Stage) -> None:
    advised(scene)
    first, second = scene.story.attempts
    assert first.advised_steps is not None
    assert second.interval_steps is None
    steps = saved_by(scene, second)
    assert {step % 16 for step in steps} > {0}, "as often as the profile says"
    assert {step % 4 for step in steps} == {0}
