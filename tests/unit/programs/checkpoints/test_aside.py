"""What a program that looks for its newest checkpoint by itself must not find is put aside; all else stays."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.builders.checkpoint_samples import (
    Files,
    dcp,
    huggingface,
    megatron_dist,
    numbered_file,
    one_file,
    put,
    torch_file,
)
from workflows.programs.checkpoints import aside, choose
from workflows.programs.checkpoints.candidate import Candidate
from workflows.wire import ResumeChoice


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "runs" / "r"
    path.mkdir(parents=True)
    return path


def chosen(run: Path, **changes: object) -> ResumeChoice:
    found = choose.Options(str(run / "checkpoints"), str(run), chooses_itself=True)
    return choose.choose(replace(found, **changes))  # type: ignore[arg-type]


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def cut(files: Files) -> Files:
    """Its largest file, cut off."""
    largest = max(files, key=lambda path: len(files[path]))
    return {**files, largest: files[largest][: len(files[largest]) // 2]}


@pytest.mark.parametrize("made", [dcp, huggingface, numbered_file])
def test_the_newest_that_is_cut_off_is_out_of_the_way(run: Path, made: Callable[[int], Files]) -> None:
    put(run / "checkpoints", made(20) | cut(made(40)))
    before = listed(run / "checkpoints")
    choice = chosen(run)
    assert (choice.verdict, choice.resume_step) == ("pass", 20)
    gone = listed(run / aside.FOLDER)
    assert len(gone) == 1
    assert "40" in gone[0]
    assert sorted([*listed(run / "checkpoints"), *gone]) == before, "nothing is deleted"
    assert f"{gone[0]} (" in choice.put_aside[0]
    assert choice.put_aside[0].endswith(f"lies in {run / aside.FOLDER} now")
    again = chosen(run)
    assert (again.resume_step, again.put_aside) == (20, []), "the same again changes nothing"


def test_a_program_that_is_told_finds_everything_where_it_was(run: Path) -> None:
    put(run / "checkpoints", numbered_file(20) | cut(numbered_file(40)))
    before = listed(run / "checkpoints")
    choice = chosen(run, chooses_itself=False)
    assert (choice.resume_step, choice.put_aside) == (20, [])
    assert listed(run / "checkpoints") == before


def test_an_older_one_that_is_damaged_stays_where_nobody_looks_for_it(run: Path) -> None:
    put(run / "checkpoints", numbered_file(40) | cut(numbered_file(20)))
    for at, path in enumerate(sorted((run / "checkpoints").iterdir())):
        os.utime(path, (at, at))
    assert chosen(run).put_aside == []
    newest_by_time = next(path for path in (run / "checkpoints").iterdir() if "20" in path.name)
    os.utime(newest_by_time, (99, 99))
    assert len(chosen(run).put_aside) == 1, "who goes by time would open it"


def test_a_roll_back_takes_what_came_later_out_of_the_way(run: Path) -> None:
    put(run / "checkpoints", numbered_file(20) | numbered_file(40) | numbered_file(60))
    choice = chosen(run, max_step=20)
    assert choice.resume_step == 20
    assert len(listed(run / aside.FOLDER)) == 2
    assert "later than step 20" in choice.put_aside[0]
    chosen(run, max_step=0)
    assert listed(run / "checkpoints") == [], "rolled back to the beginning"
    assert len(listed(run / aside.FOLDER)) == 3


def test_one_that_failed_an_attempt_is_not_found_again(run: Path) -> None:
    put(run / "checkpoints", numbered_file(20) | numbered_file(40))
    assert chosen(run, excluded=("40",)).resume_step == 20
    assert len(listed(run / aside.FOLDER)) == 1


def test_the_only_save_that_is_not_whole_goes_and_training_begins_anew(run: Path) -> None:
    put(run / "checkpoints", {"ckpt.pt": torch_file()[:100]})
    choice = chosen(run)
    assert (choice.verdict, choice.resume_from) == ("pass", "")
    assert listed(run / aside.FOLDER) == ["ckpt.pt"]


def test_a_file_that_is_overwritten_stays_while_another_one_is_chosen(run: Path) -> None:
    put(run / "checkpoints", numbered_file(20) | cut(one_file(40)))
    assert chosen(run).put_aside == []


def test_where_none_is_usable_nothing_moves(run: Path) -> None:
    put(run / "checkpoints", cut(numbered_file(20)) | cut(numbered_file(40)))
    before = listed(run / "checkpoints")
    assert chosen(run).verdict == "fail"
    assert listed(run / "checkpoints") == before


def test_a_second_one_of_the_same_name_goes_beside_the_first(run: Path) -> None:
    for _ in range(2):
        put(run / "checkpoints", numbered_file(20) | cut(numbered_file(40)))
        chosen(run)
    assert listed(run / f"{aside.FOLDER}-2") == listed(run / aside.FOLDER) != []


def test_on_another_storage_it_stays_in_its_own(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = os.rename

    def refuse(source: str, target: str) -> None:
        if target.startswith(str(run / aside.FOLDER)):
            raise OSError(18, "Invalid cross-device link")
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    put(run / "checkpoints", numbered_file(20) | cut(numbered_file(40)))
    assert chosen(run).resume_step == 20
    assert len(listed(run / "checkpoints" / aside.FOLDER)) == 1
    assert chosen(run).resume_step == 20, "what lies there is no checkpoint"


def test_what_the_storage_does_not_let_us_move_is_said_and_stops_nothing(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: str) -> None:
        raise PermissionError(13, "Permission denied", source)

    monkeypatch.setattr(os, "rename", refuse)
    put(run / "checkpoints", numbered_file(20) | cut(numbered_file(40)))
    choice = chosen(run)
    assert (choice.verdict, choice.resume_step) == ("pass", 20)
    assert choice.put_aside[0].endswith("could not be put aside: Permission denied")


def test_megatrons_tracker_and_a_link_name_the_chosen_one(run: Path) -> None:
    put(run / "checkpoints", megatron_dist(20) | cut(megatron_dist(40)))
    folder = run / "checkpoints"
    (folder / "latest_checkpointed_iteration.txt").write_text("40")
    (folder / "newest").symlink_to("iter_0000040")
    (folder / "notes.txt").write_text("iter_0000040 was slow")
    choice = chosen(run)
    assert (choice.resume_step, choice.resume_from) == (20, str(folder)), "no folder of links is needed"
    assert (folder / "latest_checkpointed_iteration.txt").read_text() == "20"
    assert os.readlink(folder / "newest") == "iter_0000020"
    assert (folder / "notes.txt").read_text() == "iter_0000040 was slow"


def named(path: str, step: int, form: str = "folder") -> Candidate:
    return Candidate(form, step, path, ())


TENSORFLOW = b"""model_checkpoint_path: "ckpt-40"
all_model_checkpoint_paths: "ckpt-20"
all_model_checkpoint_paths: "ckpt-40"
last_preserved_timestamp: 1.5
"""


@pytest.mark.parametrize(
    ("name", "text", "old", "new", "instead"),
    [
        ("latest", b"global_step40", named("global_step40", 40), named("global_step20", 20), b"global_step20"),
        ("last_checkpoint", b"model_40.pth\n", named("model_40.pth", 40), named("model_20.pth", 20), b"model_20.pth\n"),
        ("latest.txt", b"/d/c/step-40\n", named("step-40", 40), named("step-20", 20), b"/d/c/step-20\n"),
        ("latest", b"in/step-40", named("in/step-40", 40), named("in/step-20", 20), b"in/step-20"),
        ("latest", b"global_step30", named("global_step40", 40), named("global_step20", 20), None),
        ("log", b"saved step-40 now", named("step-40", 40), named("step-20", 20), None),
        ("latest", b"\xff\x00", named("step-40", 40), named("step-20", 20), None),
        ("latest", b"", named("step-40", 40), named("step-20", 20), None),
        ("latest_checkpointed_iteration.txt", b"40\n", named("iter_0000040", 40, "megatron"),
         named("iter_0000020", 20, "megatron"), b"20"),
        ("latest_checkpointed_iteration.txt", b"30", named("iter_0000040", 40, "megatron"),
         named("iter_0000020", 20, "megatron"), None),
        ("latest_checkpointed_iteration.txt", b"release", named("iter_0000040", 40, "megatron"),
         named("iter_0000020", 20, "megatron"), None),
        ("checkpoint", TENSORFLOW, named("ckpt-40", 40, "tensorflow"), named("ckpt-20", 20, "tensorflow"),
         b'model_checkpoint_path: "ckpt-20"\nall_model_checkpoint_paths: "ckpt-20"\nlast_preserved_timestamp: 1.5\n'),
        ("checkpoint", TENSORFLOW, named("ckpt-4", 4, "tensorflow"), named("ckpt-2", 2, "tensorflow"), None),
    ],
)  # fmt: skip
def test_a_tracker_names_the_chosen_one_and_other_files_stay(
    name: str, text: bytes, old: Candidate, new: Candidate, instead: bytes | None
) -> None:
    assert aside.tracker_instead(name, text, old, new) == instead
