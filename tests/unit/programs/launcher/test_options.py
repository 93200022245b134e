"""How a launcher is told what to do: flags, the pod's environment, and what ranks and prover get from it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.run import SET_FOR_RANKS, TORCHRUN_VARIABLES
from tests.support.cases.rows import rows
from workflows.programs.checkpoints import prover
from workflows.programs.checkpoints.formats import find_candidates
from workflows.programs.checkpoints.listing import list_files
from workflows.programs.launcher import prover_child
from workflows.programs.launcher.lifecycle import LauncherFailed
from workflows.programs.launcher.options import Options, Rendezvous, make_folders, parse, parse_place, rank_command
from workflows.programs.launcher.rank_set import rank_environment
from workflows.programs.launcher.reporting import LOOK_SECONDS, GrowingFile
from workflows.programs.runtime.flags import UsageError

words = st.text(min_size=1, max_size=10)


@given(
    st.builds(
        Options,
        pods=st.integers(1, 9),
        processes_per_node=st.integers(1, 9),
        role=words,
        decides=st.booleans(),
        pattern=st.text(max_size=10),
        steps=st.integers(0, 10**9),
        resume_argument=st.lists(words, max_size=3).map(tuple),
        save_grace_seconds=st.floats(0.1, 1e6),
        save_signal=st.sampled_from(["TERM", "USR1", "USR2", "HUP", "INT"]),
        save_file=st.sampled_from(["", "/shared/save now"]),
        keep_overwritten=st.booleans(),
        torchrun_variables=st.booleans(),
        pseudo_terminal=st.booleans(),
        command=st.lists(st.text(max_size=10), min_size=1, max_size=4).map(tuple),
    ).map(lambda options: replace(options, world_size=options.pods * options.processes_per_node))
)
def test_options_round_trip(options: Options) -> None:
    assert parse(options.argv()) == options


@rows("programs/launcher/options")
def test_wrong_options_are_named(argv: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse(argv)


@pytest.mark.parametrize("name", ["PRIMUS_ATTEMPT", "PRIMUS_POD_INDEX", "PRIMUS_RESUME_STEP"])
def test_a_variable_that_is_no_number_is_named(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}: expected a whole number, got 'many'"):
        parse_place({name: "many"})


@rows("programs/launcher/options")
def test_the_command_knows_what_to_resume(environment: dict[str, str], expected: list[str]) -> None:
    command = ("run", "{steps}", "--left={remaining_steps}", "at={resume_step}")
    options = Options("t", steps=300, command=command, resume_argument=("--resume", "{resume_from}"))
    assert list(rank_command(options, parse_place(environment))) == expected


@rows("programs/launcher/options")
def test_placeholders_of_a_start_and_numbers_made_of_them(word: str, first: str, resumed: str) -> None:
    options = Options("t", steps=300, command=("run", word))
    place = parse_place({"PRIMUS_ATTEMPT": "3", "PRIMUS_CHECKPOINT_DIR": "/c"})
    assert rank_command(options, place) == ("run", first)
    assert rank_command(options, replace(place, resume_from="/c/20", resume_step=20)) == ("run", resumed)


def test_each_start_has_a_folder_of_its_own_for_checkpoints(tmp_path: Path) -> None:
    """What a program writes there under names that begin anew overwrites nothing of an earlier start."""
    options = Options("t", command=("run", "--out={attempt_checkpoint_dir}"), working_directory=str(tmp_path))
    place = parse_place({"PRIMUS_ATTEMPT": "2", "PRIMUS_CHECKPOINT_DIR": str(tmp_path / "c")})
    for incarnation in (1, 2):
        assert make_folders(options, place, incarnation) is None
        folder = Path(rank_command(options, place, incarnation)[1].removeprefix("--out="))
        assert folder.is_dir()
        (folder / "model.pt").write_bytes(b"state")
    found = find_candidates(list_files(str(tmp_path / "c")), "pattern", r"^model\.pt$")
    assert sorted(one.path for one in found) == ["a2/model.pt", "a2i2/model.pt"]
    assert find_candidates(list_files(str(tmp_path / "c"))) == (), "the folders are no checkpoints themselves"


def test_torchruns_variables_are_left_out_where_one_process_must_not_see_them() -> None:
    place, meeting = parse_place({}), Rendezvous(1, "10.0.0.1", 23456, 0)
    with_them, without = (
        rank_environment({"RANK": "-1"}, Options("t", torchrun_variables=wanted, command=("x",)), place, meeting, 0)
        for wanted in (True, False)
    )
    assert set(TORCHRUN_VARIABLES) - {"RANK"} == with_them.keys() - without.keys()
    assert (with_them["RANK"], without["RANK"]) == ("0", "-1")
    assert set(SET_FOR_RANKS) <= without.keys()


def test_a_rank_gets_torchruns_names_and_ours_and_no_token() -> None:
    options = Options("trainer", pods=2, processes_per_node=4, world_size=8, command=("x",))
    base = {
        "PRIMUS_TOKEN": "secret",
        "PRIMUS_TOKEN_FILE": "/secret",
        "PRIMUS_FOLDER_TOKEN": "/primus/token",
        "MINE": "kept",
        "RANK": "99",
        "PRIMUS_RUN": "demo-1",
        "PRIMUS_ATTEMPT": "3",
        "PRIMUS_POD_INDEX": "1",
        "PRIMUS_CHECKPOINT_DIR": "/c",
    }
    meeting = Rendezvous(incarnation=2, master_address="10.0.0.1", master_port=23456, first_rank=4)
    found = rank_environment(base, options, parse_place(base), meeting, local_rank=3)
    expected = {
        "RANK": "7",
        "LOCAL_RANK": "3",
        "WORLD_SIZE": "8",
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "1",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "23456",
        "TORCHELASTIC_RESTART_COUNT": "1",
        "TORCHELASTIC_RUN_ID": "demo-1-a3",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "PRIMUS_INCARNATION": "2",
        "PRIMUS_CHECKPOINT_DIR": "/c",
        "PRIMUS_RESUME_FROM": "",
        "PRIMUS_RESUME_STEP": "",
        "MINE": "kept",
    }
    assert {name: found.get(name) for name in expected} == expected
    assert not any("secret" in value for value in found.values())
    assert rank_environment({"OMP_NUM_THREADS": "5"}, options, parse_place({}), meeting, 0)["OMP_NUM_THREADS"] == "5"


def test_a_growing_file_is_progress(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    watch = GrowingFile(str(path))
    assert watch.grown(0.0) == 0
    path.write_text("12345")
    assert watch.grown(LOOK_SECONDS / 2) == 0
    assert watch.grown(LOOK_SECONDS) == 5
    assert watch.grown(2 * LOOK_SECONDS) == 0
    path.write_text("123")
    assert watch.grown(3 * LOOK_SECONDS) == 0
    path.write_text("1234")
    assert watch.grown(4 * LOOK_SECONDS) == 4


def test_the_prover_understands_how_it_is_started() -> None:
    place = parse_place({"PRIMUS_CHECKPOINT_DIR": "/c", "PRIMUS_RUN_DIR": "/r"})
    options = Options(
        "t", checkpoint_pattern="a b", keep=5, keep_overwritten=False, counter_restarts=True, command=("x",)
    )
    command = prover_child.command(options, place)
    flags = command[command.index("prove") + 1 :]
    assert prover.parse(flags) == prover.Options(
        "/c", "/r", pattern="a b", keep=5, keep_overwritten=False, counter_restarts=True
    )


@rows("programs/launcher/options")
def test_one_prover_is_enough_and_only_where_there_is_something_to_prove(
    options: Options, environment: dict[str, str]
) -> None:
    assert prover_child.command(options, parse_place(environment)) == []


@pytest.mark.parametrize(("form", "made"), [("auto", ["work", "checkpoints"]), ("none", ["work"])])
def test_folders_that_ranks_write_into_are_there(tmp_path: Path, form: str, made: list[str]) -> None:
    place = parse_place({"PRIMUS_RUN_DIR": str(tmp_path), "PRIMUS_CHECKPOINT_DIR": str(tmp_path / "checkpoints")})
    options = Options("t", command=("x",), checkpoint_format=form)
    assert (make_folders(options, place), make_folders(options, place)) == (None, None)
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(made)


def dangling(path: Path) -> None:
    path.symlink_to("/no/such/folder")


def a_loop(path: Path) -> None:
    path.symlink_to(path.name)


def nothing(path: Path) -> None:
    path.mkdir()


def a_file(path: Path) -> None:
    path.write_text("a file")


@pytest.mark.parametrize(
    ("put", "below", "said"),
    [
        (a_file, "deep", "Not a directory"),
        (a_file, "", "File exists (it is a file)"),
        (dangling, "", "File exists (it is a symbolic link to /no/such/folder, where no folder is)"),
        (a_loop, "", "File exists (it is a symbolic link to checkpoints, where no folder is)"),
        (a_loop, "deep", "Too many levels of symbolic links"),
        (nothing, "x" * 300, "File name too long"),
    ],
)
def test_a_folder_that_cannot_be_made_is_named_with_what_stands_there(
    tmp_path: Path, put: Callable[[Path], None], below: str, said: str
) -> None:
    put(tmp_path / "checkpoints")
    folder = str(tmp_path / "checkpoints" / below) if below else str(tmp_path / "checkpoints")
    place = parse_place({"PRIMUS_RUN_DIR": str(tmp_path), "PRIMUS_CHECKPOINT_DIR": folder})
    refused = make_folders(Options("t", command=("x",)), place)
    assert refused == LauncherFailed(f"the folder {folder} cannot be made: {said}", "folder", unstarted=True)


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (errno.EACCES, "folder"),
        (errno.ENOENT, "folder"),
        (errno.ENOSPC, "storage"),
        (errno.EDQUOT, "storage"),
        (errno.EROFS, "storage"),
        (errno.ESTALE, "storage"),
        (errno.EIO, "storage"),
    ],
)
def test_a_storage_may_get_over_what_a_setting_never_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, cause: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("workflows.programs.launcher.options.os.makedirs", refuse)
    refused = make_folders(Options("t", command=("x",)), parse_place({"PRIMUS_RUN_DIR": str(tmp_path)}))
    assert refused is not None
    assert refused.cause == cause
