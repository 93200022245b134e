"""A DistributedDataParallel script that knows torchrun's environment and nothing of us: killed, hung, and back.

Needs a Python with torch: PRIMUS_TEST_TORCH_PYTHON, else the environment that `make bench-peers` makes, else this one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from profiles.vocabulary import Action, FaultClass
from tests.support.harness.stages import Stage, stage, succeeded
from workflows.model.records import IncidentRecord

pytestmark = pytest.mark.story
ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "tests" / "peers" / "scripts"
MODULES = ["torch", "torch._dynamo", "torch.distributed", "torch.nn.parallel"]
STEPS = 60
LIMITS = ("recovery.hang.step_floor_seconds=2", "recovery.hang.init_seconds=60")
"""A first kernel of a process on a GPU waits for the driver and for libraries of gigabytes."""


def python_with_torch() -> str:
    """Its path; "": there is none."""
    named = os.environ.get("PRIMUS_TEST_TORCH_PYTHON", "")
    made = ROOT / "build" / "peers" / "venv" / "bin" / "python"
    own = sys.executable if importlib.util.find_spec("torch") else ""
    return named or (str(made) if made.exists() else own)


needs_torch = pytest.mark.skipif(not python_with_torch(), reason="NO TORCH HERE: an unchanged script is not tried")


def profile(folder: Path, *more: str, script: str = "plain_ddp.py") -> Path:
    """The script as somebody would write it down who has only ever used torchrun."""
    command = [python_with_torch(), str(SCRIPTS / script), "--steps", "{steps}", "--save-every", "{interval_steps}"]
    command += ["--checkpoints", "{checkpoint_dir}", "--record", "{run_dir}/record.jsonl", *more]
    trainer = {"name": "trainer", "command": command, "preload": MODULES, "environment": {"OMP_NUM_THREADS": "1"}}
    told: dict[str, Any] = {
        "extends": "demo",
        "name": "unchanged",
        "steps": STEPS,
        "roles": [trainer],
        "checkpoint": {
            "format": "pattern",
            "pattern": r"^step-(?P<step>\d+)\.pt$",
            "interval_steps": 5,
            "resume_argument": [],
        },
        "progress": {"framework": "regex", "pattern": r" step (?P<step>\d+)/\d+ \| loss (?P<loss>\S+)"},
    }
    path = folder / "unchanged.yaml"
    path.write_text(yaml.safe_dump(told))
    return path


def weights(scene: Stage) -> set[str]:
    """What the ranks said of their weights at the end."""
    lines = (scene.folder / "record.jsonl").read_text().splitlines()
    return {event["weights"] for event in map(json.loads, lines) if "weights" in event}


def weights_of_a_calm_run(api_url: str, folder: Path, *more: str) -> set[str]:
    """Of a run to which nothing happened."""
    with stage(api_url) as made:
        written = str(profile(folder, *more))
        assert succeeded(made.start("unfailed", written, in_place=True, overrides=LIMITS).end()), made.tell()
        found = weights(made)
        assert len(found) == 1, "both ranks have the same"
        return found


@pytest.fixture(scope="module")
def unfailed(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    return weights_of_a_calm_run(prefect_server, tmp_path_factory.mktemp("profile"))


def begun_again(scene: Stage, restarts: int) -> IncidentRecord:
    """The run reached its goal in one attempt after so many restarts in place; the newest trouble."""
    story = scene.end()
    assert succeeded(story), scene.tell()
    [attempt] = story.attempts
    assert attempt.restarts_in_place == len(story.troubles) == restarts, scene.tell()
    assert {trouble.action for trouble in story.troubles} == {Action.RESTART_IN_PLACE}, scene.tell()
    return story.troubles[-1]


@needs_torch
@pytest.mark.parametrize(
    ("fault", "fault_class"),
    [("kill-rank:1,step=28", FaultClass.PROCESS_KILLED), ("hang-rank:1,step=33", FaultClass.HANG)],
)
def test_it_comes_back_without_a_changed_line(
    scene: Stage, tmp_path: Path, unfailed: set[str], fault: str, fault_class: FaultClass
) -> None:
    scene.start(profile=str(profile(tmp_path)), in_place=True, overrides=LIMITS).fault(fault)
    seen = begun_again(scene, 1)
    assert seen.fault_class == fault_class, scene.tell()
    if fault_class is FaultClass.HANG:
        assert [rank for _, rank in seen.culprits] == [1], scene.tell()
        assert "1 of 2 ranks are stopped" in " ".join(seen.evidence), scene.tell()
    assert weights(scene) == unfailed


def parked(scene: Stage) -> bool:
    """Whether ranks of every pod would be forked now."""
    logs = list(scene.folder.glob("a1/trainer-*/launcher.log"))
    return len(logs) == 2 and all("are forked from process" in log.read_text(errors="replace") for log in logs)


def stuck_once(scene: Stage, folder: Path, *more: str, forked: bool = True) -> IncidentRecord:
    """A run whose rank 1 waits for what does not come; `forked`: it is killed first, so that both ranks are forked."""
    written = profile(folder, "--step-seconds", "0.5", *more, script="stuck_ddp.py")
    scene.start(profile=str(written), in_place=True, overrides=LIMITS)
    if forked:
        scene.until(lambda story: story.attempt is not None and parked(scene), "a process is parked in each pod")
        scene.fault("kill-rank:1")
        scene.until(lambda story: any(trouble.resumed_at for trouble in story.troubles), "training again")
    else:
        scene.until(lambda story: story.attempt is not None and bool(story.attempt.first_step_at), "a first step")
    (scene.folder / "get-stuck").touch()
    hung = begun_again(scene, 2 if forked else 1)
    assert hung.fault_class == FaultClass.HANG, scene.tell()
    assert "get_stuck" in " ".join(hung.evidence), scene.tell()
    assert hung.culprits == (), "of two ranks either may wait for the other"
    return hung


@needs_torch
@pytest.mark.parametrize("forked", [True, False], ids=["forked", "started-plainly"])
def test_what_it_waits_for_is_named(scene: Stage, tmp_path: Path, unfailed: set[str], forked: bool) -> None:
    stuck_once(scene, tmp_path, forked=forked)
    assert weights(scene) == unfailed
