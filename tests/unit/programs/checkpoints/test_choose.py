"""What a run resumes from: records where nothing moved, reading where something did, and never a guess."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders.checkpoint_samples import (
    dcp,
    huggingface,
    megatron_dist,
    megatron_legacy,
    numbered_file,
    one_file,
    primus,
    put,
    torch_file,
)
from workflows.programs.checkpoints import choose, proofs
from workflows.programs.checkpoints import prover as checkpoints_prover
from workflows.wire import ResumeChoice, from_json


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "runs" / "r"
    path.mkdir(parents=True)
    return path


def options(run: Path, **changes: object) -> choose.Options:
    return replace(choose.Options(str(run / "checkpoints"), str(run)), **changes)  # type: ignore[arg-type]


def prove_all(run: Path, told: str = "", **changes: object) -> list[tuple[int, str]]:
    """Let the prover look as often as it may need to; what it said."""
    prover = checkpoints_prover.Prover(
        replace(checkpoints_prover.Options(str(run / "checkpoints"), str(run)), **changes)
    )  # type: ignore[arg-type]
    if told:
        prover.take_line(told)
    return [(seen.step, seen.verdict) for _ in range(checkpoints_prover.CORRUPT_AFTER_LOOKS) for seen in prover.look()]


def steps_seen(run: Path, *seen: tuple[int, float]) -> None:
    lines = "".join(json.dumps({"step": step, "at": at}) + "\n" for step, at in seen)
    put(run, {"a1/trainer-0/steps.jsonl": lines.encode()})


def test_nothing_at_all_is_a_start_from_the_beginning(run: Path) -> None:
    choice = choose.choose(options(run))
    assert (choice.verdict, choice.resume_from, choice.resume_step) == ("pass", "", None)
    assert choice.looked_at == []


def test_a_roll_back_to_the_beginning_resumes_nothing(run: Path) -> None:
    put(run / "checkpoints", primus(20))
    choice = choose.choose(options(run, max_step=0))
    assert (choice.verdict, choice.resume_from, choice.resume_step) == ("pass", "", None)
    assert "beginning" in choice.why


def test_a_folder_is_kept_for_the_ledger_that_began_there(run: Path) -> None:
    put(run / "checkpoints", primus(20))
    assert choose.choose(options(run)).verdict == "pass", "nobody asks whose it is"
    assert not (run / "ledger").exists()
    mine = choose.choose(options(run, ledger="1" * 32))
    assert (mine.verdict, mine.resume_step, mine.owner) == ("pass", 20, "")
    assert (run / "ledger").read_text() == "1" * 32 + "\n"
    assert choose.choose(options(run, ledger="1" * 32)).resume_step == 20
    assert sorted(path.name for path in run.iterdir()) == ["checkpoints", "ledger"], "nothing unfinished is left"


@pytest.mark.parametrize("max_step", [-1, 0, 40])
def test_a_folder_of_another_ledger_is_a_failure_that_says_what_to_do(run: Path, max_step: int) -> None:
    put(run / "checkpoints", primus(20))
    put(run, {"ledger": b"2" * 32 + b"\n"})
    choice = choose.choose(options(run, ledger="1" * 32, max_step=max_step))
    assert (choice.verdict, choice.resume_from, choice.owner) == ("fail", "", "2" * 32)
    assert "another ledger (22222222): choose another --name" in choice.why
    assert choice.why.endswith("where that ledger is lost, delete the file `ledger` there")
    assert (run / "ledger").read_bytes() == b"2" * 32 + b"\n"
    (run / "ledger").unlink()
    assert choose.choose(options(run, ledger="1" * 32, max_step=max_step)).verdict == "pass", "as the line says"


def test_of_two_ledgers_that_begin_at_once_one_has_the_folder(tmp_path: Path) -> None:
    ledgers = [f"{number}" * 32 for number in range(8)]
    for turn in range(20):
        run = tmp_path / "data" / "runs" / str(turn)
        (tmp_path / "data").mkdir(exist_ok=True)
        with ThreadPoolExecutor(len(ledgers)) as threads:
            owners = list(threads.map(partial(proofs.claim_folder, str(run)), ledgers))
        winner = proofs.owner_of(str(run))
        assert winner in ledgers
        assert owners == ["" if ledger == winner else winner for ledger in ledgers]
        assert [path.name for path in run.iterdir()] == ["ledger"]


def test_a_storage_without_hard_links_keeps_the_owner_too(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def refuse(source: str, target: str) -> None:
        tried.append(target)
        raise PermissionError(1, "Operation not permitted", source)

    monkeypatch.setattr(os, "link", refuse)
    assert proofs.claim_folder(str(run), "1" * 32) == ""
    assert tried == [str(run / "ledger")], "it was tried"
    assert proofs.claim_folder(str(run), "2" * 32) == "1" * 32
    assert [path.name for path in run.iterdir()] == ["ledger"]


def test_a_storage_that_cannot_be_written_is_unknown(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, data: bytes) -> None:
        raise OSError(30, "Read-only file system", path)

    monkeypatch.setattr(proofs, "write_atomically", refuse)
    choice = choose.choose(options(run, ledger="1" * 32))
    assert (choice.verdict, choice.owner) == ("unknown", "")
    assert "Read-only file system" in choice.why


def test_a_storage_that_is_not_mounted_is_unknown_not_a_fresh_start(tmp_path: Path) -> None:
    gone = tmp_path / "mount" / "runs" / "r"
    choice = choose.choose(choose.Options(str(gone / "checkpoints"), str(gone)))
    assert (choice.verdict, choice.resume_from) == ("unknown", "")
    assert "is not there" in choice.why


def test_a_storage_that_cannot_be_listed_is_unknown(run: Path) -> None:
    os.symlink("loop", run / "loop")
    choice = choose.choose(choose.Options(str(run / "loop" / "checkpoints"), str(run)))
    assert choice.verdict == "unknown"
    assert "could not be read" in choice.why


def test_checkpoints_that_are_all_bad_are_a_failure(run: Path) -> None:
    put(run / "checkpoints", {"step-20/shard-0.npz": b"x", "step-40/shard-0.npz": b"x"})
    choice = choose.choose(options(run))
    assert (choice.verdict, choice.resume_from) == ("fail", "")
    assert "step-40: manifest.json is missing" in choice.why


def test_proven_checkpoints_that_vanished_are_a_failure(run: Path) -> None:
    put(run / "checkpoints", primus(20))
    assert prove_all(run) == [(20, "pass")]
    shutil.rmtree(run / "checkpoints")
    choice = choose.choose(options(run))
    assert choice.verdict == "fail"
    assert "all are gone" in choice.why


def test_a_proven_checkpoint_is_not_read_again(run: Path) -> None:
    put(run / "checkpoints", primus(20) | primus(40))
    assert prove_all(run) == [(40, "pass"), (20, "pass")]
    choice = choose.choose(options(run))
    assert (choice.resume_step, choice.bytes_read) == (40, 0)
    assert choice.why == "proven when it was written, unchanged since"
    deep = choose.choose(options(run, deep=True))
    assert (deep.resume_step, deep.verdict) == (40, "pass")
    assert deep.bytes_read == sum(len(data) for data in (primus(20) | primus(40)).values())


def test_what_moved_since_the_proof_is_read_again_and_only_that(run: Path) -> None:
    put(run / "checkpoints", primus(20))
    prove_all(run)
    os.utime(run / "checkpoints" / "step-20" / "shard-1.npz")
    choice = choose.choose(options(run))
    assert (choice.resume_step, choice.bytes_read) == (20, len(primus(20)["step-20/shard-1.npz"]))


@pytest.mark.parametrize("sample", [primus, dcp, huggingface])
def test_damage_after_the_proof_is_found(sample: object, run: Path) -> None:
    files = sample(40)  # type: ignore[operator]
    put(run / "checkpoints", files | sample(20))  # type: ignore[operator]
    prove_all(run)
    name = next(name for name in sorted(files) if name.endswith((".npz", ".distcp", "optimizer.pt")))
    data = bytearray(files[name])
    data[len(data) // 2] ^= 1
    (run / "checkpoints" / name).write_bytes(bytes(data))
    choice = choose.choose(options(run))
    assert (choice.resume_step, choice.verdict) == (20, "pass")
    assert choice.looked_at[0].digest == "bad"


def test_a_checkpoint_written_again_after_a_roll_back_is_a_new_one(run: Path) -> None:
    put(run / "checkpoints", dcp(20))
    prove_all(run)
    other = {name.replace("step-30", "step-20"): data for name, data in dcp(30).items()}
    shutil.rmtree(run / "checkpoints")
    put(run / "checkpoints", other)
    choice = choose.choose(options(run))
    assert (choice.resume_step, choice.verdict) == (20, "pass")
    assert choice.bytes_read > 0


def test_a_shard_that_was_proven_and_is_gone_is_missed(run: Path) -> None:
    put(run / "checkpoints", huggingface(20))
    prove_all(run)
    (run / "checkpoints" / "checkpoint-20" / "rng_state.pth").unlink()
    choice = choose.choose(options(run))
    assert choice.verdict == "fail"
    assert "rng_state.pth was proven and is gone" in choice.looked_at[0].why


def test_after_the_first_nan_no_checkpoint_is_good_however_complete(run: Path) -> None:
    put(run / "checkpoints", primus(40) | primus(60) | primus(80))
    assert prove_all(run, "nan 57") == [(80, "fail"), (60, "fail"), (40, "pass")]
    choice = choose.choose(options(run))
    assert (choice.resume_step, choice.verdict) == (40, "pass")
    assert "first NaN (step 57)" in choice.looked_at[0].why
    assert choice.bytes_read == 0
    # Copied elsewhere and back: other inodes, the same content, the same verdict.
    shutil.copytree(run / "checkpoints", run / "copy")
    shutil.rmtree(run / "checkpoints")
    os.rename(run / "copy", run / "checkpoints")
    assert choose.choose(options(run)).resume_step == 40


def test_roll_back_and_exclusion(run: Path) -> None:
    put(run / "checkpoints", primus(20) | primus(40) | primus(60))
    assert choose.choose(options(run, max_step=59)).resume_step == 40
    assert choose.choose(options(run, max_step=59, excluded=("40",))).resume_step == 20
    assert choose.choose(options(run, excluded=(str(run / "checkpoints" / "step-60"),))).resume_step == 40
    assert choose.choose(options(run, max_step=10)).verdict == "fail"


def test_an_overwritten_file_that_was_cut_off_is_replaced_by_our_copy(run: Path) -> None:
    steps_seen(run, (20, 1000.0), (40, 2000.0))
    put(run / "checkpoints", one_file(20))
    os.utime(run / "checkpoints" / "ckpt.pt", (1001, 1001))
    assert prove_all(run) == [(20, "pass")]
    (run / "checkpoints" / "ckpt.pt").write_bytes(one_file(40)["ckpt.pt"][:50])
    for _ in range(2):  # a choice that is made again changes nothing
        choice = choose.choose(options(run))
        assert (choice.verdict, choice.resume_step) == ("pass", 20)
        assert choice.resume_from == str(run / "checkpoints" / "ckpt.pt")
        assert "was put back" in choice.why or choice.looked_at[0].step == 20
        assert Path(choice.resume_from).read_bytes() == one_file(20)["ckpt.pt"]
        assert (run / "kept" / "step-20" / "ckpt.pt").read_bytes() == one_file(20)["ckpt.pt"]


def test_a_kept_copy_without_its_proof_is_read_and_taken(run: Path) -> None:
    put(run / "kept" / "step-20", one_file(20))
    put(run / "kept" / "step-30", {"ckpt.pt": torch_file()[:-1]})
    choice = choose.choose(options(run))
    assert (choice.verdict, choice.resume_step) == ("pass", 20)


def test_an_overwritten_file_newer_than_any_proof_is_read_and_its_step_is_the_reported_one(run: Path) -> None:
    steps_seen(run, (20, 1000.0), (40, 2000.0))
    put(run / "checkpoints", one_file(20))
    os.utime(run / "checkpoints" / "ckpt.pt", (1001, 1001))
    prove_all(run)
    put(run / "checkpoints", one_file(40))
    os.utime(run / "checkpoints" / "ckpt.pt", (2001, 2001))
    choice = choose.choose(options(run))
    assert (choice.resume_step, choice.resume_from) == (40, str(run / "checkpoints" / "ckpt.pt"))


def test_a_file_whose_step_nobody_knows_can_be_resumed_but_not_in_a_roll_back(run: Path) -> None:
    put(run / "checkpoints", one_file())
    choice = choose.choose(options(run))
    assert (choice.verdict, choice.resume_step) == ("pass", None)
    assert choice.resume_from.endswith("ckpt.pt")
    assert choose.choose(options(run, max_step=100)).verdict == "fail"


def test_megatron_is_told_the_folder_whose_tracker_names_the_iteration(run: Path) -> None:
    put(run / "checkpoints", megatron_legacy(20) | megatron_legacy(40))
    choice = choose.choose(options(run))
    assert (choice.resume_from, choice.resume_step) == (str(run / "checkpoints"), 40)


def test_megatron_falls_back_through_a_folder_of_our_own(run: Path) -> None:
    put(run / "checkpoints", megatron_dist(20) | megatron_dist(40))
    (run / "checkpoints" / "iter_0000040" / "common.pt").unlink()
    for _ in range(2):  # twice: the folder may exist already
        choice = choose.choose(options(run))
        assert choice.resume_step == 20
        assert choice.resume_from == str(run / "kept" / "megatron-20")
        view = Path(choice.resume_from)
        assert (view / "latest_checkpointed_iteration.txt").read_text() == "20\n"
        assert (view / "iter_0000020" / "common.pt").exists()
    assert (run / "checkpoints" / "latest_checkpointed_iteration.txt").read_bytes() == b"40"


def test_numbered_files_by_default_pattern(run: Path) -> None:
    put(run / "checkpoints", numbered_file(900) | numbered_file(1000))
    choice = choose.choose(options(run, format="pattern"))
    assert choice.resume_from == str(run / "checkpoints" / "model_001000.pt")


def test_broken_proofs_are_no_proofs(run: Path) -> None:
    put(run / "checkpoints", primus(20))
    put(run / "proofs", {"step-20.json": b"{", "step-21.json": b"[]", "step-22.json": b'{"step": "x"}', "n": b""})
    choice = choose.choose(options(run))
    assert (choice.resume_step, choice.verdict) == (20, "pass")
    assert choice.bytes_read > 0


def test_the_outputs_of_the_step(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(run / "checkpoints", primus(20))
    wanted = options(run, out_dir=str(tmp_path / "out"))
    assert choose.main(wanted.argv()) == 0
    written = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert set(written) == {"resume-from", "resume-step", "choice", "verdict"}
    assert written["resume-from"] == str(run / "checkpoints" / "step-20")
    assert written["resume-step"] == "20"
    assert written["verdict"] == "pass"
    choice = from_json(ResumeChoice, written["choice"])
    assert choice == from_json(ResumeChoice, capsys.readouterr().out)
    assert choice.looked_at[0].would_resume
    assert choose.main(["--directory=/x"]) == 2
    assert "--run-dir: must be given" in capsys.readouterr().err


def test_fail_and_unknown_are_said_with_exit_code_0(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(run / "checkpoints", {"step-20/x": b"", "step-10/x": b""})
    assert choose.main(options(run).argv()) == 0
    assert from_json(ResumeChoice, capsys.readouterr().out).verdict == "fail"
    assert choose.main(options(run, pattern="(", format="pattern").argv()) == 0
    assert from_json(ResumeChoice, capsys.readouterr().out).verdict == "unknown"


def test_a_first_save_that_was_killed_does_not_end_the_run(run: Path) -> None:
    put(run / "checkpoints", {"model_000005.pt": torch_file()[:-30]})
    choice = choose.choose(options(run))
    assert (choice.verdict, choice.resume_from) == ("pass", "")
    assert choice.why.startswith("the only save is not whole (model_000005.pt: ")
    assert choose.choose(options(run, max_step=10)).verdict == "fail", "a roll-back wants an older one"
    put(run / "checkpoints", {"model_000010.pt": torch_file()[:-30]})
    assert choose.choose(options(run)).verdict == "fail", "a second save that is not whole is looked at by a person"


@settings(deadline=None)
@given(
    st.builds(
        choose.Options,
        directory=st.text(max_size=10),
        run_dir=st.text(max_size=10),
        format=st.sampled_from(["auto", "dcp"]),
        pattern=st.text(max_size=10),
        max_step=st.integers(-1, 10**9),
        excluded=st.lists(st.text(max_size=8), max_size=3).map(tuple),
        deep=st.booleans(),
    )
)
def test_options_survive_the_command_line(wanted: choose.Options) -> None:
    assert choose.parse(wanted.argv()) == wanted


def test_step_names_of_proofs() -> None:
    assert proofs.step_name(20) == "step-20"
    assert proofs.step_name(-1) == "step-unknown"
