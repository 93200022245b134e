"""A checkpoint is looked at once more before ranks begin again from it inside their pods."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from workflows.programs.checkpoints import proofs
from workflows.programs.launcher.lifecycle import LauncherFailed
from workflows.programs.launcher.options import Options, Rendezvous, parse_place
from workflows.programs.launcher.saves import why_changed, why_not_resumable
from workflows.wire import FileRecord, Proof


def proven(run: Path) -> Path:
    """A checkpoint of two files, and its proof."""
    folder = run / "checkpoints" / "step-10"
    folder.mkdir(parents=True)
    records: list[FileRecord] = []
    for name in ("a.bin", "b.bin"):
        (folder / name).write_bytes(b"12345")
        now = (folder / name).stat()
        records.append(FileRecord(name, now.st_size, now.st_mtime_ns, now.st_ino, ""))
    proofs.write_proof(str(run), Proof(10, str(folder), "primus", "pass", "", records, 5.0))
    return folder


def untouched(folder: Path) -> None:
    """Nothing happens to it."""


def cut(folder: Path) -> None:
    (folder / "b.bin").write_bytes(b"1")


def same_size(folder: Path) -> None:
    path = folder / "b.bin"
    path.write_bytes(b"54321")
    os.utime(path, ns=(1, 1))


def put_in_its_place(folder: Path) -> None:
    path, other = folder / "b.bin", folder / "other"
    was = path.stat()
    other.write_bytes(b"54321")
    os.utime(other, ns=(was.st_atime_ns, was.st_mtime_ns))
    os.replace(other, path)


def deleted(folder: Path) -> None:
    (folder / "b.bin").unlink()


@pytest.mark.parametrize(
    ("hurt", "said"),
    [
        (untouched, ""),
        (cut, "b.bin has changed"),
        (same_size, "b.bin has changed"),
        (put_in_its_place, "b.bin has changed"),
        (deleted, "b.bin is gone"),
    ],
)
def test_what_has_changed_since_the_proof(tmp_path: Path, hurt: object, said: str) -> None:
    folder = proven(tmp_path)
    assert callable(hurt)
    hurt(folder)
    found = why_changed(str(tmp_path), str(folder))
    why = f"the checkpoint {folder} is not what was proven: {said}"
    assert found == (LauncherFailed(why, "checkpoint-changed", unstarted=True) if said else None)


def test_without_a_proof_nothing_is_said(tmp_path: Path) -> None:
    assert why_changed(str(tmp_path), str(tmp_path / "checkpoints" / "step-5")) is None


@pytest.mark.parametrize(
    ("incarnation", "pod", "groups", "looks"), [(1, 0, 1, False), (2, 0, 1, True), (2, 1, 1, False), (2, 2, 2, True)]
)
def test_one_pod_of_a_gang_looks_when_ranks_begin_again(
    tmp_path: Path, incarnation: int, pod: int, groups: int, looks: bool
) -> None:
    folder = proven(tmp_path)
    cut(folder)
    place = replace(parse_place({}), run_dir=str(tmp_path), resume_from=str(folder), pod_index=pod)
    options = Options("trainer", pods=4, world_size=4, replica_groups=groups)
    assert bool(why_not_resumable(options, place, Rendezvous(incarnation, "127.0.0.1", 1, pod))) == looks
