"""Checkpoint folders as other people's programs leave them: the newest whole one is taken, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from profiles.vocabulary import FaultClass
from tests.support.harness.stages import Stage, incident, outcomes, succeeded

pytestmark = pytest.mark.story
SCRIPT = Path(__file__).parents[2] / "support" / "trainers" / "odd_saver.py"
STEPS = 20


def profile(folder: Path, way: str, loads_itself: bool) -> str:
    """The trainer as somebody writes it down who has read the first page."""
    command = [sys.executable, str(SCRIPT), "--directory={checkpoint_dir}", "--steps={steps}", f"--way={way}"]
    told: dict[str, Any] = {
        "extends": "demo",
        "name": "odd",
        "steps": STEPS,
        "roles": [{"name": "trainer", "replicas": 1, "processes_per_node": 1, "command": command, "preload": []}],
        "checkpoint": {"format": "auto", "resume_argument": [] if loads_itself else ["--resume={resume_from}"]},
        "progress": {"framework": "regex", "pattern": r"^step (?P<step>\d+) loss (?P<loss>\S+)"},
    }
    path = folder / "odd.yaml"
    path.write_text(yaml.safe_dump(told))
    return str(path)


@pytest.mark.parametrize(
    ("way", "loads_itself", "taken"),
    [
        ("overwritten", True, "ckpt.pt"),
        ("overwritten", False, "ckpt.pt"),
        ("loss-in-the-name", False, "epoch=0-step=10-val_loss=0.0909.ckpt"),
        ("left-overs", False, "model_000010.pt"),
    ],
)
def test_a_killed_rank_goes_on_from_the_newest_whole_one(
    scene: Stage, way: str, loads_itself: bool, taken: str
) -> None:
    story = scene.start(profile=profile(scene.home, way, loads_itself)).end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["process_killed", "succeeded"], scene.tell()
    assert incident(story).fault_class is FaultClass.PROCESS_KILLED
    second = story.attempts[1]
    # A name without a step has that of the last report that was read before it was written: on a busy machine 9.
    assert second.resumed_from_step in ((9, 10) if way == "overwritten" else (10,)), scene.tell()
    assert second.first_step == 11, scene.tell()
    assert Path(second.resume_path) == scene.folder / "checkpoints" / taken
    scene.no_orphans()


@pytest.mark.parametrize("way", ["own-latest", "own-latest-link", "own-latest-tracker"])
def test_one_that_looks_for_its_newest_by_itself_does_not_find_the_damaged_one(scene: Stage, way: str) -> None:
    story = scene.start(profile=profile(scene.home, way, loads_itself=True)).end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["process_killed", "succeeded"], scene.tell()
    second = story.attempts[1]
    assert (second.resumed_from_step, second.first_step) == (10, 11), scene.tell()
    assert (scene.folder / ".put-aside" / "model_000015.pt").stat().st_size == 500, "nothing is deleted"
    assert (scene.folder / "checkpoints" / "model_000015.pt").stat().st_size > 500, "saved again"
    [note] = [item for item in story.incidents if item.signal == "put-aside"]
    assert "model_000015.pt" in note.why
    scene.no_orphans()


def test_what_nobody_recognises_is_a_note_long_before_it_is_needed(scene: Stage) -> None:
    scene.start(profile=profile(scene.home, "unknown", loads_itself=True))
    scene.until(lambda story: any(item.signal == "no-checkpoint" for item in story.incidents), "the note")
    (scene.folder / "go-on").touch()
    story = scene.end()
    assert succeeded(story), scene.tell()
    [note] = [item for item in story.incidents if item.signal == "no-checkpoint"]
    assert "is a checkpoint that is known: set checkpoint.format or checkpoint.pattern" in note.why
    assert note.went_on
