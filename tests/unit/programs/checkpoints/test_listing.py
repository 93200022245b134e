"""A look at a folder lists each thing once, and says what it could not look into."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.builders.checkpoint_samples import numbered_file, one_file, put
from workflows.programs.checkpoints import choose
from workflows.programs.checkpoints.listing import list_files
from workflows.programs.checkpoints.prover import Options, Prover


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "runs" / "r" / "checkpoints").mkdir(parents=True)
    return tmp_path / "runs" / "r"


def chosen(run: Path) -> choose.ResumeChoice:
    return choose.choose(choose.Options(str(run / "checkpoints"), str(run)))


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Folders of a name that cannot be listed, with the error: root can look into everything."""
    real, errors = os.scandir, dict[str, int]()

    def scandir(path: str) -> object:
        number = errors.get(os.path.basename(path))
        if number is not None:
            raise OSError(number, os.strerror(number), path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    return errors.__setitem__


def test_a_folder_of_root_is_left_out_and_told(run: Path, closed: Callable[[str, int], None]) -> None:
    put(run / "checkpoints", {**numbered_file(20), "lost+found/x": b""})
    closed("lost+found", 13)
    choice = chosen(run)
    assert (choice.verdict, choice.resume_step) == ("pass", 20)
    assert choice.why.endswith("; could not look into lost+found (Permission denied)")


def test_what_may_be_a_checkpoint_and_cannot_be_read_is_no_reason_to_begin_anew(
    run: Path, closed: Callable[[str, int], None]
) -> None:
    put(run / "checkpoints", {"step-40/x": b""})
    closed("step-40", 13)
    choice = chosen(run)
    assert (choice.verdict, choice.resume_from) == ("fail", "")
    assert "step-40 may be a checkpoint and cannot be read: Permission denied" in choice.why


def test_a_first_save_that_did_not_finish_is_not_the_only_one_where_another_cannot_be_read(
    run: Path, closed: Callable[[str, int], None]
) -> None:
    put(run / "checkpoints", {"model_000005.pt": numbered_file(5)["model_000005.pt"][:-30], "step-40/x": b""})
    closed("step-40", 13)
    assert chosen(run).verdict == "fail"


def test_a_storage_that_fails_says_nothing(run: Path, closed: Callable[[str, int], None]) -> None:
    put(run / "checkpoints", {**numbered_file(20), "step-40/x": b""})
    closed("step-40", 5)
    assert chosen(run).verdict == "unknown"


def test_links_that_lead_above_or_round_list_nothing_twice(run: Path, tmp_path: Path) -> None:
    folder = run / "checkpoints"
    put(folder, numbered_file(20))
    put(tmp_path / "elsewhere", {"step-30/x": b"1"})
    put(folder, {".store/model_000040.pt": b"2"})
    for name, target in (
        ("latest", "latest"),
        ("all", "."),
        ("above", ".."),
        ("root", "/"),
        ("last.pt", "model_000020.pt"),
        ("gone", "nowhere"),
        ("far", str(tmp_path / "elsewhere")),
        ("far again", str(tmp_path / "elsewhere")),
        ("model_000040.pt", ".store/model_000040.pt"),
    ):
        (folder / name).symlink_to(target)
    found = list_files(str(folder))
    assert [one.path for one in found.files] == [
        ".store/model_000040.pt",
        "far/step-30/x",
        "model_000020.pt",
        "model_000040.pt",
    ]
    assert [path for path, _ in found.left_out] == ["latest"]


def steps_seen(run: Path, *seen: tuple[int, float]) -> None:
    put(run, {"a1/t-0/steps.jsonl": "".join(f'{{"step": {s}, "at": {at}}}\n' for s, at in seen).encode()})


def test_a_step_that_the_run_cannot_have_made_is_none(run: Path) -> None:
    steps_seen(run, *((step, 1000.0 + step) for step in range(1, 41)))
    put(run / "checkpoints", {**numbered_file(20), **numbered_file(2026)})
    for step, at in ((20, 1020.5), (2026, 1010.5)):
        os.utime(run / "checkpoints" / f"model_{step:06d}.pt", (at, at))
    choice = chosen(run)
    assert choice.resume_step == 20
    assert [one.step for one in choice.looked_at] == [20, 10]


def test_a_step_that_was_not_reported_yet_is_one(run: Path) -> None:
    steps_seen(run, (10, 1010.0), (20, 1020.0), (30, 1030.0))
    put(run / "checkpoints", numbered_file(45))
    os.utime(run / "checkpoints" / "model_000045.pt", (1045.0, 1045.0))
    assert chosen(run).resume_step == 45


def test_a_proof_goes_before_a_look_at_the_same_step(run: Path) -> None:
    steps_seen(run, (20, 1000.0))
    put(run / "checkpoints", one_file(20))
    os.utime(run / "checkpoints" / "ckpt.pt", (1001, 1001))
    watcher = Prover(Options(str(run / "checkpoints"), str(run)))
    assert [(one.step, one.verdict) for _ in range(2) for one in watcher.look()] == [(20, "pass")]
    other = one_file(21)["ckpt.pt"]
    (run / "checkpoints" / "ckpt.pt").write_bytes(other)
    os.utime(run / "checkpoints" / "ckpt.pt", (1002, 1002))
    choice = chosen(run)
    assert choice.resume_step == 20
    assert (run / "checkpoints" / "ckpt.pt").read_bytes() == one_file(20)["ckpt.pt"] != other, "put back"
    assert (run / "checkpoints" / ".ckpt.pt.put-aside").read_bytes() == other
