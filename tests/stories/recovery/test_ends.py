"""Stories of ends: ranks that leave before the others, programs that do nothing, folders that cannot be made."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from profiles.vocabulary import Action, FaultClass, RunState
from tests.support.harness.stages import Stage, incident, outcomes, succeeded

pytestmark = pytest.mark.story

STEPS = 30
TRAINER = """
import os, sys, time
rank, first, folder = int(os.environ["RANK"]), os.environ["PRIMUS_ATTEMPT"] == "1", sys.argv[1]
LEFT, WAITS = int(sys.argv[2]), sys.argv[3] == "waits"
for step in range(1, 31):
    if first and step > LEFT:
        if rank == 1:
            sys.exit(0)
        while WAITS or not os.path.exists(os.path.join(folder, "go")):
            time.sleep(0.01)
    print(f"step {step}/30 | loss {9 - step / 10:.4f} | tokens/s 5 | step time 0.0100 s", flush=True)
    time.sleep(0.01)
"""
"""Rank 1 leaves after step LEFT of the first attempt. Rank 0 goes on once the file `go` is there, or waits for it."""


def trainer(scene: Stage, left: int, waits: str) -> tuple[str, ...]:
    shared = scene.home / "shared"
    shared.mkdir()
    (shared / "uneven.py").write_text(TRAINER)
    command = [sys.executable, "-S", str(shared / "uneven.py"), str(shared), str(left), waits]
    return (f"steps={STEPS}", "checkpoint.format=none", f"roles.trainer.command={json.dumps(command)}")


def test_a_rank_whose_data_end_first_leaves_the_others_training(scene: Stage) -> None:
    scene.start(overrides=trainer(scene, 5, "trains"))
    story = scene.until(lambda _: phases(scene)[1:] == ["Succeeded"], "the pod of rank 1 has ended")
    assert (phases(scene)[0], len(story.attempts)) == ("Running", 1)
    (scene.home / "shared" / "go").touch()
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert (outcomes(story), story.attempts[0].last_step) == (["succeeded"], STEPS), scene.tell()


def phases(scene: Stage) -> list[str]:
    """Of the gang's pods, by their ranks."""
    pods = scene.cluster.list("Pod", {"primus-flows.io/run": "story", "primus-flows.io/role": "trainer"})
    return [pod["status"]["phase"] for pod in sorted(pods, key=lambda pod: pod["metadata"]["name"])]


def test_who_waits_for_a_rank_that_left_hangs_and_the_one_who_left_is_named(scene: Stage) -> None:
    scene.start(overrides=(*trainer(scene, 25, "waits"), "recovery.hang.step_floor_seconds=1"))
    story = scene.end()
    assert succeeded(story), scene.tell()
    seen = incident(story)
    assert (seen.fault_class, seen.action) == (FaultClass.HANG, Action.NEW_ATTEMPT), scene.tell()
    assert [rank for _, rank in seen.culprits] == [1], scene.tell()
    assert "which has ended with exit code 0 after step 25" in " ".join(seen.evidence), seen.evidence


STARTS = """
import os, signal, sys, time
first = os.environ["PRIMUS_ATTEMPT"] == "1" and os.environ["RANK"] == "0"
if first and sys.argv[1] == "stopped":
    os.kill(os.getpid(), signal.SIGSTOP)
end = time.monotonic() + (14 if first else 0)
while time.monotonic() < end:
    sum(range(50_000))
    time.sleep(0.02)
for step in range(1, 31):
    print(f"step {step}/30 | loss {9 - step / 10:.4f} | tokens/s 5 | step time 0.0100 s", flush=True)
"""
"""Rank 0 of the first attempt is stopped at once, or computes for fourteen seconds before its first step."""


def starting(scene: Stage, how: str) -> tuple[str, ...]:
    shared = scene.home / "shared"
    shared.mkdir()
    (shared / "starts.py").write_text(STARTS)
    command = [sys.executable, "-S", str(shared / "starts.py"), how]
    hang = ("recovery.hang.init_seconds=8", "recovery.hang.step_floor_seconds=1")
    return (*hang, f"steps={STEPS}", "checkpoint.format=none", f"roles.trainer.command={json.dumps(command)}")


def test_a_rank_that_is_stopped_before_its_first_step_hangs_though_the_other_is_done(scene: Stage) -> None:
    story = scene.start(overrides=starting(scene, "stopped")).end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["hang", "succeeded"], scene.tell()
    assert "rank 0 is stopped, as by SIGSTOP" in " ".join(incident(story).evidence), incident(story).evidence


def test_a_first_step_that_takes_long_and_works_is_waited_for_though_the_other_rank_is_done(scene: Stage) -> None:
    story = scene.start(overrides=starting(scene, "works")).end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["succeeded"], scene.tell()


def a_file(path: Path) -> None:
    path.write_text("what was here before")


def a_dangling_link(path: Path) -> None:
    path.symlink_to(path.parent / "gone")


@pytest.mark.parametrize("put", [a_file, a_dangling_link])
def test_a_checkpoint_folder_that_cannot_be_made_is_told_at_once(scene: Stage, put: object) -> None:
    folder = scene.home / "shared" / "checkpoints"
    folder.parent.mkdir()
    assert callable(put)
    put(folder)
    scene.start(overrides=(f"checkpoint.directory={folder}",))
    story = scene.end()
    assert story.run.state is RunState.FAILED, scene.tell()
    assert outcomes(story) == ["config"], scene.tell()
    assert f"{folder} cannot be made: File exists" in story.run.why


def test_a_program_that_does_nothing_and_ends_well_is_not_tried_again(scene: Stage) -> None:
    scene.start(overrides=('roles.trainer.command=["true"]',))
    story = scene.end()
    assert story.run.state is RunState.FAILED, scene.tell()
    assert outcomes(story) == ["config"], scene.tell()
    assert "exit 0 without any step of the 60 planned ones" in story.run.why, story.run.why
