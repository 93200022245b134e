"""`primus diagnose`: what people and programs get, from files, folders and pipes."""

from __future__ import annotations

import gzip
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from deployments.cli.diagnose import PROVISIONAL_BYTES, diagnose_logs, document, lines_of, provisional
from deployments.exit_codes import GOOD, UNKNOWN
from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.selection import evidence_from, select
from profiles.vocabulary import Action, FaultClass
from tasks.log_files import find_logs
from tests.support.harness.commands import primus_here

XID = "[12345.678901] NVRM: Xid (PCI:0000:44:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
RESET = "ConnectionResetError: [Errno 104] Connection reset by peer"
FIELDS = {
    "class", "confidence", "alternatives", "culprits", "victims", "evidence", "action", "retry_helps", "node_suspect",
    "why",
}  # fmt: skip


def chatter(count: int) -> str:
    return "".join(f"data worker {i % 8} put sample {i * 37 % 9973} into queue {i % 5}\n" for i in range(count))


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A node whose GPU fell off the bus, and two ranks that lost their connection to it."""
    (tmp_path / "dmesg-node-7.log").write_text(f"[12300.000001] eth0: link up\n{XID}\n")
    for rank in (0, 1):
        (tmp_path / f"rank-{rank}.log").write_text(f"{chatter(30)}Traceback (most recent call last):\n{RESET}\n")
    return tmp_path


def primus(*words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "deployments.cli.main", *words], input=given, capture_output=True, check=False
    )


def answered(capsys: pytest.CaptureFixture[str], *names: object) -> dict[str, object]:
    assert diagnose_logs([str(name) for name in names], as_json=True) == GOOD
    return json.loads(capsys.readouterr().out)


def test_a_folder_gives_class_culprit_lines_and_what_to_do(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answered(capsys, logs)
    assert set(found) >= FIELDS
    assert (found["class"], found["node_suspect"], found["retry_helps"]) == ("gpu_hardware", True, True)
    assert found["culprits"] == [{"rank": None, "node": "node-7"}]
    assert found["action"] in set(Action)
    first = found["evidence"][0]  # type: ignore[index]
    assert (first["file"], first["line"], first["rule"]) == (str(logs / "dmesg-node-7.log"), 2, "xid-off-the-bus")
    assert first["text"] in XID
    assert [item["lines"] for item in found["logs"]] == [2, 32, 32]  # type: ignore[union-attr]


def test_files_and_folders_together_tell_the_same(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = answered(capsys, logs)
    named = answered(capsys, *sorted(logs.iterdir()), logs)
    assert named == whole


def test_a_compressed_log_tells_the_same(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = answered(capsys, logs / "dmesg-node-7.log")
    (logs / "dmesg-node-7.log.gz").write_bytes(gzip.compress((logs / "dmesg-node-7.log").read_bytes()))
    packed = answered(capsys, logs / "dmesg-node-7.log.gz")
    assert {key: packed[key] for key in FIELDS - {"evidence"}} == {key: plain[key] for key in FIELDS - {"evidence"}}


def test_for_people_the_answer_stands_first(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert diagnose_logs([str(logs)], as_json=False) == GOOD
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0].startswith("gpu_hardware  (confidence 0.9")
    assert lines[1] == "  blamed  node-7"
    assert lines[2].startswith("  do      new-attempt: ")
    assert "keep pods off node-7" in lines[2]
    assert f"  {logs}/dmesg-node-7.log:2: NVRM: Xid" in printed.out
    assert lines.index("evidence") < next(i for i, line in enumerate(lines) if "dmesg-node-7.log:2" in line)
    assert lines[-1].startswith("read 3 files, 66 lines")
    assert "\x1b" not in printed.out
    assert printed.err == ""


def test_a_healthy_log_is_told_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text("".join(f"step {i} | loss {9 / i:.3f}\n" for i in range(1, 50)))
    assert diagnose_logs([str(tmp_path / "a.log")], as_json=False) == GOOD
    printed = capsys.readouterr().out
    assert printed.startswith("none  (confidence ")
    assert "  do      nothing\n" in printed
    assert "blamed" not in printed


def test_what_would_steer_a_terminal_is_made_harmless(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"RuntimeError: CUDA error: uncorrectable ECC error encountered\x1b]0;owned\x07 \xe2\x80\xae x\n")
    assert diagnose_logs([str(path)], as_json=False) == GOOD
    printed = capsys.readouterr().out
    assert "uncorrectable ECC error encountered\ufffd]0;owned\ufffd" in printed
    assert not any(character in printed for character in "\x1b\x07\u202e")


def test_what_a_rule_matched_stands_out() -> None:
    found = diagnose(evidence_from([select("a", [f"{XID}\n".encode()])]))
    text = next(line for line in lines_of(found, ()) if "NVRM" in line.plain)
    marked = [text.plain[span.start : span.end] for span in text.spans if span.style == "bold red"]
    assert marked == ["Xid (PCI:0000:44:00): 79"]


def test_ranks_are_told_in_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(8):
        text = "RuntimeError: CUDA error: uncorrectable ECC error encountered" if rank == 3 else RESET
        (tmp_path / f"rank-{rank}.log").write_text(f"Traceback (most recent call last):\n{text}\n")
    assert diagnose_logs([str(tmp_path)], as_json=False) == GOOD
    printed = capsys.readouterr().out
    assert "\n  blamed  rank 3\n" in printed
    assert "\nonly suffered: ranks 0-2, 4-7\n" in printed


@pytest.mark.parametrize("kind", list(FaultClass))
def test_every_class_can_be_shown(kind: FaultClass) -> None:
    from dataclasses import replace

    found = replace(
        diagnose(evidence_from([select("a", [f"{XID}\n".encode()])])),
        fault_class=kind,
        culprits=(("", 1), ("node-7", None), ("node-8", 5)),
        alternatives=((FaultClass.FABRIC, 0.1), (FaultClass.HANG, 0.001)),
    )
    lines = [line.plain for line in lines_of(found, ())]
    assert lines[0].startswith(kind.value)
    assert "otherwise: fabric 0.10" in lines
    assert document(found, ())["class"] == kind.value


def test_a_file_that_is_not_there_ends_it_before_anything_is_read(logs: Path) -> None:
    done = primus_here("diagnose", str(logs), "/no/such.log", "--json")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "primus: /no/such.log: there is no such file\n"


@pytest.mark.parametrize("given", [b"", b"\n \n", b"\0\0\0"])
def test_nothing_to_read_is_no_diagnosis(given: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_bytes(given)
    assert diagnose_logs([str(tmp_path / "a.log")], as_json=False) == UNKNOWN
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "there was nothing to read in" in printed.err
    assert diagnose_logs([str(tmp_path / "a.log")], as_json=True) == UNKNOWN
    assert json.loads(capsys.readouterr().out)["class"] == "unknown"


def test_without_a_log_the_usage_is_wrong() -> None:
    done = primus_here("diagnose")
    assert done.returncode == 2
    assert "logs" in done.stderr


def test_standard_input_is_read_and_json_stands_alone() -> None:
    done = primus("diagnose", "-", "--json", given=f"{chatter(5000)}{XID}\n{chatter(5000)}".encode())
    assert done.returncode == 0
    assert done.stderr == b""
    found = json.loads(done.stdout)
    assert (found["class"], found["evidence"][0]["file"]) == ("gpu_hardware", "stdin")
    assert found["evidence"][0]["line"] == 5001


def test_a_cut_archive_is_diagnosed_as_far_as_it_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = gzip.compress(f"{XID}\n".encode() + os.urandom(100_000).hex().encode())
    (tmp_path / "dmesg.gz").write_bytes(packed[: len(packed) // 2])
    assert diagnose_logs([str(tmp_path / "dmesg.gz")], as_json=True) == GOOD
    printed = capsys.readouterr()
    assert json.loads(printed.out)["class"] == "gpu_hardware"
    assert "read only in part" in printed.err


def test_on_a_terminal_a_first_answer_comes_from_the_end(tmp_path: Path) -> None:
    """Colours too; only where standard error and standard output are terminals."""
    path = tmp_path / "kernel.log"
    path.write_text(f"{chatter(PROVISIONAL_BYTES // 20)}{XID}\n")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "deployments.cli.main", "diagnose", str(path)], stdout=theirs, stderr=theirs
    ) as child:
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
        assert child.wait() == 0
    os.close(ours)
    lines = shown.decode().splitlines()
    assert lines[0].startswith("from the ends of the logs: gpu_hardware (0.9")
    assert lines[1].startswith("\x1b[1;31mgpu_hardware\x1b[0m  (confidence")


def test_the_first_answer_reads_only_the_ends(tmp_path: Path) -> None:
    for name, end in (("rank-0.log", f"{RESET}\n"), ("dmesg-node-7.log", f"{XID}\n")):
        (tmp_path / name).write_text(chatter(PROVISIONAL_BYTES // 40) + end)
    found = provisional(find_logs([str(tmp_path)])[0])
    assert (found.fault_class, found.culprits) == (FaultClass.GPU_HARDWARE, (("node-7", None),))


def test_a_reader_that_goes_away_is_no_error(logs: Path) -> None:
    """`primus diagnose … | head -1`."""
    with subprocess.Popen(
        [sys.executable, "-m", "deployments.cli.main", "diagnose", str(logs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait() == 0
