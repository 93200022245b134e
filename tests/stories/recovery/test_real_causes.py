"""Real faults, one process each: what the kernel, the network and Python print is read, named and acted upon.

What only a driver of the demo can cause (a lost node, silence, a roll-back) is told in the other stories.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from profiles.vocabulary import Action, FaultClass, RunState
from tests.support.harness.stages import Stage, incident

pytestmark = pytest.mark.story

F, A = FaultClass, Action
SCRIPT = Path(__file__).parents[2] / "support" / "trainers" / "real_causes.py"

CAUSES: dict[str, tuple[FaultClass, Action, str]] = {
    "memory_limit": (F.HOST_OOM, A.NEW_ATTEMPT, "MemoryError"),
    "disk_full": (F.STORAGE, A.NEW_ATTEMPT, "No space left on device"),
    "bus_error": (F.HOST_OOM, A.NEW_ATTEMPT, "signal 7"),
    "port_in_use": (F.RENDEZVOUS, A.NEW_ATTEMPT, "Address already in use"),
    "no_such_name": (F.RENDEZVOUS, A.NEW_ATTEMPT, "gaierror"),
    "reset_connection": (F.COLLECTIVE_TIMEOUT, A.NEW_ATTEMPT, "Connection reset by peer"),
    "user_exception": (F.USER_CODE, A.GIVE_UP, "IndexError"),
    "killed": (F.PROCESS_KILLED, A.NEW_ATTEMPT, "signal 9"),
    "terminated": (F.PROCESS_KILLED, A.NEW_ATTEMPT, "signal 15"),
    "missing_module": (F.CONFIG, A.GIVE_UP, "ModuleNotFoundError"),
    "truncated_checkpoint": (F.CHECKPOINT_CORRUPT, A.GIVE_UP, "pickle"),
    "not_a_number": (F.NUMERIC, A.ROLL_BACK, "not a number"),
    "segmentation_fault": (F.USER_CODE, A.NEW_ATTEMPT, "signal 11"),
    "wrong_argument": (F.CONFIG, A.GIVE_UP, "error: one of the arguments"),
}


def mounts_are_possible() -> bool:
    script = "mount -t tmpfs -o size=64k tmpfs /mnt"
    return subprocess.run(["unshare", "-Urm", "sh", "-c", script], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("cause", CAUSES)
def test_a_real_fault_is_named_and_acted_upon(scene: Stage, cause: str) -> None:
    if cause in ("disk_full", "bus_error") and not mounts_are_possible():
        pytest.skip("this machine lets nobody mount a small file system in a name space of its own")
    command = json.dumps(["python3", "{run_dir}/real_causes.py", cause])
    scene.open(overrides=(f"roles.trainer.command={command}", "steps=12", "recovery.max_attempts=2"))
    scene.folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(SCRIPT, scene.folder)
    story = scene.drive().end()
    fault_class, action, words = CAUSES[cause]
    seen = incident(story)
    assert seen.fault_class is fault_class, scene.tell()
    assert seen.action is action, scene.tell()
    assert words in " ".join(seen.evidence), seen.evidence
    # A second attempt can only meet the same fault again.
    assert story.run.state is RunState.FAILED, scene.tell()
    scene.no_orphans()
