"""The background prover: proof at save, copies of what is overwritten, nothing believed while it is still written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders.checkpoint_samples import dcp, numbered_file, one_file, primus, put, torch_file
from workflows.programs.checkpoints import kept_copies, proofs
from workflows.programs.checkpoints import prover as checkpoints_prover
from workflows.programs.checkpoints.listing import FileFacts
from workflows.wire import UNRECOGNISED, CheckpointSeen, Proof, from_json, from_line

ROOT = Path(__file__).parents[4]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "runs" / "r"
    path.mkdir(parents=True)
    return path


def options(run: Path, **changes: object) -> checkpoints_prover.Options:
    return replace(checkpoints_prover.Options(str(run / "checkpoints"), str(run)), **changes)  # type: ignore[arg-type]


def proof_of(run: Path, step: int) -> Proof:
    return from_json(Proof, (run / "proofs" / f"step-{step}.json").read_bytes())


def steps_seen(run: Path, *seen: tuple[int, float]) -> None:
    put(run, {"a1/t-0/steps.jsonl": "".join(f'{{"step": {s}, "at": {at}}}\n' for s, at in seen).encode()})


def write_over(run: Path, step: int, at: float) -> None:
    put(run / "checkpoints", one_file(step))
    os.utime(run / "checkpoints" / "ckpt.pt", (at, at))


def test_one_with_a_manifest_is_proven_at_the_first_look(run: Path) -> None:
    prover = checkpoints_prover.Prover(options(run))
    assert prover.look() == []
    put(run / "checkpoints", primus(20))
    [seen] = prover.look()
    assert (seen.step, seen.verdict, seen.format) == (20, "pass", "primus")
    assert seen.bytes == sum(len(data) for data in primus(20).values())
    assert prover.look() == []
    proof = proof_of(run, 20)
    assert {record.path for record in proof.files} == {"manifest.json", "shard-0.npz", "shard-1.npz"}
    assert all(len(record.sha256) == 64 and record.inode and record.mtime_ns for record in proof.files)


def test_what_is_whole_is_told_before_it_is_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[CheckpointSeen] = []
    prover = checkpoints_prover.Prover(options(run), told.append)
    prover.look()
    put(run / "checkpoints", primus(20) | primus(40))
    known_when_read: list[list[int]] = []
    real = checkpoints_prover.checkpoints_proofs.write_proof

    def write(run_dir: str, proof: Proof) -> None:
        known_when_read.append([one.step for one in told])
        real(run_dir, proof)

    monkeypatch.setattr(checkpoints_prover.checkpoints_proofs, "write_proof", write)
    assert [(seen.step, seen.verdict) for seen in prover.look()] == [(40, "pass"), (20, "pass")]
    assert known_when_read == [[40, 20]] * 2
    assert {(one.verdict, one.resume_from, one.format) for one in told} == {("unknown", "", "primus")}
    newest = max(path.stat().st_mtime for path in (run / "checkpoints" / "step-40").iterdir())
    assert told[0].written_at == pytest.approx(newest)
    assert told[0].bytes == sum(len(data) for data in primus(40).values())
    prover.look()
    assert len(told) == 2


def test_what_is_not_whole_and_what_was_there_before_is_not_told(run: Path) -> None:
    told: list[CheckpointSeen] = []
    put(run / "checkpoints", primus(20))
    for path in (run / "checkpoints").rglob("*"):
        os.utime(path, (1000, 1000))
    prover = checkpoints_prover.Prover(options(run), told.append)
    files = dict(dcp(40))
    metadata = files.pop("step-40/.metadata")
    put(run / "checkpoints", files)
    assert [seen.step for _ in range(3) for seen in prover.look()] == [20]
    assert told == []
    put(run / "checkpoints", {"step-40/.metadata": metadata})
    prover.look()
    assert told == []  # seen at rest once only
    assert [seen.step for seen in prover.look()] == [40]
    assert [one.step for one in told] == [40]


def test_one_saved_anew_is_told_anew_and_one_that_stays_broken_once(run: Path) -> None:
    told: list[CheckpointSeen] = []
    prover = checkpoints_prover.Prover(options(run), told.append)
    prover.look()
    files = dict(primus(20))
    files["step-20/shard-0.npz"] = files["step-20/shard-0.npz"].replace(b"20 0", b"20 9", 1)
    put(run / "checkpoints", files)
    assert [seen.verdict for _ in range(8) for seen in prover.look()] == ["fail"]
    assert [one.verdict for one in told] == ["unknown"]
    put(run / "checkpoints", primus(20, ranks=3))
    assert [seen.verdict for seen in prover.look()] == ["pass"]
    assert [one.verdict for one in told] == ["unknown"] * 2


def test_one_without_a_manifest_is_believed_when_two_looks_agree(run: Path) -> None:
    prover = checkpoints_prover.Prover(options(run))
    files = dict(numbered_file(20))
    put(run / "checkpoints", files)
    assert prover.look() == []
    put(run / "checkpoints", {"model_000020.pt": files["model_000020.pt"]})  # written once more
    assert prover.look() == []
    assert [(seen.step, seen.verdict) for seen in prover.look()] == [(20, "pass")]


def test_a_save_that_never_finishes_is_never_proven(run: Path) -> None:
    prover = checkpoints_prover.Prover(options(run))
    files = dict(dcp(20))
    metadata = files.pop("step-20/.metadata")
    put(run / "checkpoints", files)
    assert [prover.look() for _ in range(6)] == [[]] * 6
    assert not (run / "proofs").exists()
    put(run / "checkpoints", {"step-20/.metadata": metadata})
    prover.look()
    assert [seen.verdict for seen in prover.look()] == ["pass"]


def test_a_broken_one_that_stays_so_is_reported_once_as_failed(run: Path) -> None:
    prover = checkpoints_prover.Prover(options(run))
    files = dict(primus(20))
    files["step-20/shard-0.npz"] = files["step-20/shard-0.npz"].replace(b"20 0", b"20 9", 1)
    put(run / "checkpoints", files)
    seen = [seen for _ in range(8) for seen in prover.look()]
    assert [(one.step, one.verdict) for one in seen] == [(20, "fail")]
    assert "digest of shard-0.npz differs" in seen[0].why
    assert proof_of(run, 20).verdict == "fail"


def test_what_is_proven_already_is_not_said_again_by_the_next_prover(run: Path) -> None:
    put(run / "checkpoints", primus(20))
    assert len(checkpoints_prover.Prover(options(run)).look()) == 1
    again = checkpoints_prover.Prover(options(run))
    assert [again.look() for _ in range(3)] == [[]] * 3


def test_a_checkpoint_saved_anew_is_proven_anew(run: Path) -> None:
    prover = checkpoints_prover.Prover(options(run))
    put(run / "checkpoints", primus(20))
    prover.look()
    first = proof_of(run, 20)
    put(run / "checkpoints", primus(20, ranks=3))
    assert [seen.verdict for _ in range(2) for seen in prover.look()] == ["pass"]
    assert len(proof_of(run, 20).files) == len(first.files) + 1


def test_nan_marks_later_ones_and_takes_back_what_was_proven_too_early(run: Path) -> None:
    prover = checkpoints_prover.Prover(options(run))
    put(run / "checkpoints", primus(40) | primus(60))
    assert {seen.verdict for seen in prover.look()} == {"pass"}
    assert prover.take_line("nonsense") == prover.take_line("nan x") == prover.take_line("nan") == []
    assert [(seen.step, seen.verdict) for seen in prover.take_line("nan 57")] == [(60, "fail")]
    assert prover.take_line("nan 59") == []
    put(run / "checkpoints", primus(80))
    assert [(seen.step, seen.verdict, seen.why) for seen in prover.look()] == [
        (80, "fail", "after the first NaN (step 57)")
    ]
    assert [proof_of(run, step).first_nan_step for step in (40, 60, 80)] == [None, 57, 57]
    assert [proof_of(run, step).verdict for step in (40, 60, 80)] == ["pass", "fail", "fail"]


def test_an_overwritten_file_is_kept_and_old_copies_go(run: Path) -> None:
    steps_seen(run, *((step, 1000.0 + step) for step in range(1, 101)))
    prover = checkpoints_prover.Prover(options(run, keep=2))
    for step in (20, 40, 60, 80):
        write_over(run, step, 1000.5 + step)
        assert [(seen.step, seen.verdict) for _ in range(2) for seen in prover.look()] == [(step, "pass")]
    kept = {path.name: (path / "ckpt.pt").read_bytes() for path in (run / "kept").iterdir()}
    assert kept == {"step-60": one_file(60)["ckpt.pt"], "step-80": one_file(80)["ckpt.pt"]}
    proof = proof_of(run, 80)
    assert proof.kept_path == str(run / "kept" / "step-80" / "ckpt.pt")
    assert {record.path for record in proof.files} == {"ckpt.pt", "kept/ckpt.pt"}


def test_a_copy_shares_no_fate_with_a_file_that_is_cut_to_nothing(run: Path) -> None:
    steps_seen(run, (20, 1000.0))
    write_over(run, 20, 1001.0)
    prover = checkpoints_prover.Prover(options(run))
    prover.look()
    prover.look()
    with (run / "checkpoints" / "ckpt.pt").open("wb"):
        pass
    assert (run / "kept" / "step-20" / "ckpt.pt").read_bytes() == one_file(20)["ckpt.pt"]


def test_nothing_is_copied_when_the_profile_says_so_nor_for_numbered_files(run: Path) -> None:
    steps_seen(run, (20, 1000.0))
    write_over(run, 20, 1001.0)
    prover = checkpoints_prover.Prover(options(run, keep_overwritten=False))
    assert [seen.verdict for _ in range(2) for seen in prover.look()] == ["pass"]
    put(run / "checkpoints", numbered_file(30))
    prover = checkpoints_prover.Prover(options(run, pattern=r"model_(?P<step>\d+)\.pt"))
    assert [seen.step for _ in range(2) for seen in prover.look()] == [30]
    assert not (run / "kept").exists()


def test_a_file_overwritten_while_it_is_copied_is_not_kept(run: Path) -> None:
    steps_seen(run, (20, 1000.0))
    write_over(run, 20, 1001.0)
    old = (run / "checkpoints" / "ckpt.pt").stat()
    facts = FileFacts("ckpt.pt", old.st_size, old.st_mtime_ns - 1, old.st_ino)  # as it was before somebody wrote
    records = proofs.to_records([facts], {"ckpt.pt": "0" * 64})
    proof = Proof(20, str(run / "checkpoints" / "ckpt.pt"), "pattern", "pass", "", records, 1.0)
    assert kept_copies.keep_copy(str(run / "checkpoints"), str(run), proof) == proof
    assert list((run / "kept").iterdir()) == []


def test_a_folder_whose_files_did_not_change_is_not_listed_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(run / "checkpoints", primus(20) | primus(40))
    prover = checkpoints_prover.Prover(options(run))
    prover.look()
    prover.look()
    listed: list[str] = []
    real = os.scandir

    def scandir(path: str) -> Iterator[os.DirEntry[str]]:
        listed.append(str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert prover.look() == []
    assert listed == [str(run / "checkpoints")]


def test_as_a_process_it_reports_lines_and_ends_with_its_input(run: Path) -> None:
    put(run / "checkpoints", primus(20))
    code = "import sys; from workflows.programs.checkpoints.prover import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *options(run, poll_seconds=0.05).argv()]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        first = from_line(process.stdout.readline())
        assert isinstance(first, CheckpointSeen)
        assert (first.step, first.verdict) == (20, "pass")
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == checkpoints_prover.NICENESS
        process.stdin.write("nan 31\n")
        process.stdin.flush()
        put(run / "checkpoints", primus(40) | numbered_file(50))
        process.stdin.close()
        rest = [from_line(text) for text in process.stdout]
        assert process.wait(timeout=60) == 0
    assert [(seen.step, seen.verdict) for seen in rest if seen is not None] == [(40, "unknown"), (40, "fail")]


def test_a_storage_that_fails_is_told_once(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def ask() -> list[CheckpointSeen]:
        raise OSError(5, "Input/output error", "/data")

    voice = checkpoints_prover.ReportOutput("/data")
    voice.print_reports(ask)
    voice.print_reports(ask)
    [said] = [from_line(text) for text in capsys.readouterr().out.splitlines()]
    assert isinstance(said, CheckpointSeen)
    assert (said.verdict, said.why) == ("unknown", "Input/output error (/data)")


@pytest.mark.parametrize("argv", [["--directory=/x", "--run-dir=/y", "--pattern=(", "--format=pattern"], ["--keep=x"]])
def test_wrong_flags_are_named(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert checkpoints_prover.main(argv) == 2
    assert "prove: " in capsys.readouterr().err


@settings(deadline=None)
@given(
    st.builds(
        checkpoints_prover.Options,
        directory=st.text(max_size=10),
        run_dir=st.text(max_size=10),
        format=st.sampled_from(["auto", "primus"]),
        pattern=st.text(max_size=10),
        keep=st.integers(1, 99),
        keep_overwritten=st.booleans(),
        poll_seconds=st.floats(0.01, 60),
    )
)
def test_options_survive_the_command_line(wanted: checkpoints_prover.Options) -> None:
    assert checkpoints_prover.parse(wanted.argv()) == wanted


FACTS = st.builds(FileFacts, st.just("x"), st.integers(0, 2), st.integers(0, 2), st.integers(0, 2))


@settings(deadline=None)
@given(st.lists(FACTS.map(lambda one: (one,)), min_size=1))
def test_looks_count_only_what_stayed_the_same(signatures: list[checkpoints_prover.Signature]) -> None:
    memory = None
    for signature in signatures:
        memory = checkpoints_prover.remember(memory, signature)
    assert memory is not None
    same = 0
    for signature in reversed(signatures):
        if signature != signatures[-1]:
            break
        same += 1
    assert memory.look_count == same


def test_a_prover_that_is_behind_proves_the_newest_first(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints_prover, "GIVE_WAY_SECONDS", 0.0)
    prover = checkpoints_prover.Prover(options(run))
    put(run / "checkpoints", primus(20) | primus(40) | primus(60))
    assert [seen.step for seen in prover.look()] == [60]
    assert prover.behind
    put(run / "checkpoints", primus(80))
    assert [[seen.step for seen in prover.look()] for _ in range(4)] == [[80], [40], [20], []]
    assert not prover.behind


def test_a_save_that_nobody_recognises_is_said_once_and_before_it_is_needed(run: Path) -> None:
    told: list[CheckpointSeen] = []
    watcher = checkpoints_prover.Prover(options(run), told.append)
    put(run / "checkpoints", {"state.xyz": b"x" * 4096, "train.log": b"x" * 4096, "wandb/a.pt": b"x" * 4096})
    for _ in range(checkpoints_prover.UNRECOGNISED_AFTER_LOOKS + 1):
        assert not told, "a save may take long"
        assert watcher.look() == []
    for _ in range(50):
        watcher.look()
    [report] = told
    assert (report.verdict, report.format, report.bytes) == ("unknown", UNRECOGNISED, 4096)
    assert "none of the 1 files in" in report.why
    assert "e.g. state.xyz, is a checkpoint that is known: set checkpoint.format or checkpoint.pattern" in report.why


def test_a_folder_whose_only_checkpoint_is_never_whole_is_said_with_its_reason(run: Path) -> None:
    told: list[CheckpointSeen] = []
    watcher = checkpoints_prover.Prover(options(run), told.append)
    put(run / "checkpoints", {"step_5/model.pt": torch_file()[:-30], "step_5/optim.pt": torch_file()})
    put(run / "checkpoints", {"step_5/big.bin": b"x" * 4096})
    for _ in range(checkpoints_prover.UNRECOGNISED_AFTER_LOOKS + 2):
        watcher.look()
    assert [(one.format, "step_5: model.pt has no zip directory" in one.why) for one in told] == [(UNRECOGNISED, True)]


def test_nothing_is_said_where_a_checkpoint_is_whole_or_nothing_was_saved(run: Path) -> None:
    told: list[CheckpointSeen] = []
    watcher = checkpoints_prover.Prover(options(run), told.append)
    put(run / "checkpoints", {"train.log": b"x" * 4096})
    for _ in range(checkpoints_prover.UNRECOGNISED_AFTER_LOOKS + 2):
        watcher.look()
    put(run / "checkpoints", {"state.xyz": b"x" * 4096, **one_file(20)})
    for _ in range(checkpoints_prover.UNRECOGNISED_AFTER_LOOKS + 2):
        watcher.look()
    assert not [one for one in told if one.format == UNRECOGNISED]
