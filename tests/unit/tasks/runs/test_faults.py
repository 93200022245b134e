"""Faults that drills cause: they find what they break by what the profile says, whoever trains."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from profiles.drill import parse_fault
from profiles.errors import NotFound
from profiles.request import TrainRequest
from tasks.runs.faults import Scene, cause
from tasks.runs.open import checkpoint_folder, resolve_request
from tasks.settings import Settings
from tests.support.trainers.own_trainer import PROFILE
from workflows.model.records import AttemptRecord


def test_the_newest_checkpoint_of_any_trainer_is_corrupted(settings: Settings) -> None:
    """Not only the demo's, whose folders are called `checkpoints/step-20`."""
    moved = ("checkpoint.directory={run_dir}/models",)
    resolved = resolve_request(TrainRequest(profile=str(PROFILE), overrides=moved), settings)
    marks: list[Any] = []
    ledger = cast("Any", SimpleNamespace(add_marks=lambda _, more: marks.extend(more)))
    scene = Scene(settings, ledger, cast("Any", None), resolved, AttemptRecord("vw-1", 1, 0.0, "first"))
    fault = parse_fault("corrupt-checkpoint:newest")
    with pytest.raises(NotFound, match=r"no checkpoint to corrupt in .*/models"):
        cause(fault, scene)
    folder = checkpoint_folder(resolved, "vw-1")
    folder.mkdir(parents=True)
    for step in (8, 9, 10):
        (folder / f"model.{step}").write_bytes(b"state" * step)
    (folder / "model.11.writing").write_bytes(b"half")
    cause(fault, scene)
    changed = {path.name for path in folder.iterdir() if path.read_bytes().strip(b"state") not in (b"", b"half")}
    assert changed == {"model.10"}
    assert [mark.detail for mark in marks] == ["corrupt-checkpoint"]
