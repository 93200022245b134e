"""Faults that drills cause: they find what they break by what the profile says, whoever trains."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from profiles.drill import parse_fault
from profiles.errors import NotFound
from profiles.request import TrainRequest
from tasks.runs import faults, put_back
from tasks.runs.faults import Scene, cause
from tasks.runs.open import checkpoint_folder, resolve_request
from tasks.settings import Settings
from tests.support.trainers.own_trainer import PROFILE
from workflows.model.records import AttemptRecord

MOVED = ("checkpoint.directory={run_dir}/models",)


def test_a_disk_is_filled_and_freed_where_the_profile_keeps_its_checkpoints(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = resolve_request(TrainRequest(profile=str(PROFILE), overrides=MOVED), settings)
    full: list[str] = []

    def in_mounts_of(_: int, command: list[str]) -> Any:
        full.append(command[-1]) if command[0] == "mount" else full.remove(command[-1])
        return SimpleNamespace(returncode=0)

    cluster = cast("Any", SimpleNamespace(pod_processes=lambda _: [7]))
    scene = Scene(settings, cast("Any", None), cluster, resolved, AttemptRecord("vw-1", 1, 0.0, "first"))
    monkeypatch.setattr(Scene, "pods", lambda *_: ["a-pod"])
    monkeypatch.setattr(faults, "rank_process", lambda *_: 7)
    for module in (faults, put_back):
        monkeypatch.setattr(module, "in_mounts_of", in_mounts_of)
    monkeypatch.setattr(put_back, "_is_covered", lambda _, target: target in full)
    spec = parse_fault("disk-full")
    faults._CAUSES["disk-full"](spec, scene)
    assert full == [str(checkpoint_folder(resolved, "vw-1"))] * resolved.world_size
    assert put_back._PUT_BACK["disk-full"](spec, scene, cluster)
    assert full == []


def test_the_newest_checkpoint_of_any_trainer_is_corrupted(settings: Settings) -> None:
    """Not only the demo's, whose folders are called `checkpoints/step-20`."""
    resolved = resolve_request(TrainRequest(profile=str(PROFILE), overrides=MOVED), settings)
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
