"""Checkpoints that nobody needs go while the run lives, and never those that it comes back from."""

from __future__ import annotations

import pytest

from tests.support.harness.stages import Stage, outcomes, succeeded
from workflows.model.checkpoints import removed
from workflows.model.records import Story

pytestmark = pytest.mark.story
OFTEN = (
    "steps=180",
    "checkpoint.interval_steps=3",
    "checkpoint.keep=3",
    "checkpoint.remove_surplus=while_running",
    "recovery.hang.step_factor=1000",  # while it is held it makes no step
)


def test_sixty_saves_leave_a_handful_and_the_run_comes_back_from_the_newest_usable_one(scene: Stage) -> None:
    def stored() -> list[int]:
        return sorted(int(path.name.removeprefix("step-")) for path in (scene.folder / "checkpoints").glob("step-*"))

    def holds(wanted: list[int]) -> None:
        def told(story: Story) -> bool:
            return stored() == wanted and {one.step for one in removed(story.checkpoints)}.isdisjoint(wanted)

        scene.until(told, f"{wanted} are there, and no others")

    with scene.start(overrides=OFTEN).held_at(91):
        holds([84, 87, 90])
        scene.fault("kill-rank:1")
    with scene.held_at(151):
        holds([90, 144, 147, 150])
        scene.fault("corrupt-checkpoint:newest")
        scene.fault("kill-rank:1")
    with scene.held_at(179):
        holds([147, 150, 171, 174, 177])  # 150 was saved anew, but what the drill noted of it names it
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["process_killed", "process_killed", "succeeded"], scene.tell()
    assert [one.resumed_from_step for one in story.attempts] == [None, 90, 147], scene.tell()
    assert [one.first_step for one in story.attempts] == [1, 91, 148], scene.tell()
    left = stored()
    assert left in ([147, 150, *range(171, 181, 3)], [147, 150, *range(174, 181, 3)]), "the last proof comes late"
    gone = [one.step for one in removed(story.checkpoints)]
    assert len(gone) == len(set(gone))
    assert set(gone) | set(left) == set(range(3, 181, 3)), "each that went is told once"
    scene.no_orphans()
