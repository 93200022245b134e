"""A program with replica groups: one group's rank is killed, and the others train on while it comes back."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.cli.report import report_document
from profiles.vocabulary import Action, FaultClass
from tests.support.harness.stages import Stage, beyond_noise, succeeded

pytestmark = pytest.mark.story
STEPS, SECONDS = 120, 0.05
SCRIPT = Path(__file__).parents[2] / "support" / "trainers" / "replicas_train.py"


def profile(folder: Path) -> str:
    command = ["python3", str(SCRIPT), "{steps}", str(SECONDS)]
    told: dict[str, Any] = {
        "extends": "demo",
        "name": "replicas",
        "steps": STEPS,
        "roles": [{"name": "trainer", "replicas": 2, "replica_groups": 2, "command": command, "preload": []}],
        "checkpoint": {"format": "none", "interval_steps": 0, "resume_argument": [], "bit_equal": False},
        "recovery": {"in_place_scope": "replica"},
    }
    path = folder / "replicas.yaml"
    path.write_text(yaml.safe_dump(told))
    return str(path)


def test_the_other_replica_trains_on(scene: Stage, tmp_path: Path) -> None:
    scene.start(profile=profile(tmp_path), in_place=True).fault("kill-rank:1,step=30")
    story = scene.end()
    assert succeeded(story), scene.tell()
    [attempt] = story.attempts
    [seen] = beyond_noise(story)
    assert (seen.fault_class, seen.action) == (FaultClass.PROCESS_KILLED, Action.RESTART_IN_PLACE)
    assert seen.why == "restart in place 1: rank 1 with its replica group (pods 1 to 1), from scratch"
    assert [rank for _, rank in seen.culprits] == [1]
    rows = [row.step for row in scene.ledger.steps(scene.run, 1)]
    assert rows == list(range(1, STEPS + 1)), "no step was lost, and none counts twice"
    times = [row.at for row in scene.ledger.steps(scene.run, 1)]
    assert max(later - earlier for earlier, later in pairwise(times)) < seen.resumed_at - seen.at + 20 * SECONDS  # type: ignore[operator]
    assert attempt.restarts_in_place == 1
    document = report_document(scene.run, scene.ledger)
    away = [tile for tile in document["tiles"] if "restart_gpu_seconds" in tile]
    assert away, document["tiles"]
    assert all(math.isclose(tile["restart_gpu_seconds"], tile["gpu_seconds"]) for tile in away), "half of the ranks"
    totals = document["totals"]
    whole = totals["productive_gpu_seconds"] + sum(totals["lost"].values())
    assert math.isclose(whole, totals["wall_seconds"] * totals["gpus"], rel_tol=1e-6)
