"""The folder of a preflight through Slurm: ours alone, and whatever lies there instead of a report is unknown."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.errors import Refused
from tasks.slurm import probe
from workflows.programs.parsers.text import ParsedOutput, Reading
from workflows.programs.probes.run import pack_answers

GOOD = {
    "at": 12.5,
    "seconds": 1.0,
    "answers": pack_answers({0: [ParsedOutput((Reading("memory_bandwidth", 5.0, "GB/s"),))]}),
}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "null",
        "[1]",
        "{",
        '"word"',
        json.dumps({**GOOD, "at": 0}),
        json.dumps({**GOOD, "at": None}),
        json.dumps({**GOOD, "at": float("nan")}),
        json.dumps({**GOOD, "answers": "not packed"}),
        json.dumps({**GOOD, "answers": 5}),
        json.dumps({**GOOD, "seconds": "long"}),
        "[" * 100_000,
    ],
    ids=lambda text: text[:30] or "empty",
)
def test_a_report_that_cannot_be_read_is_unknown(tmp_path: Path, text: str) -> None:
    (tmp_path / "report").write_text(text)
    told = probe.report(tmp_path, "node-0")
    assert told is not None
    assert (told.at, dict(told.answers), told.why.startswith("its report cannot be read: ")) == (0.0, {}, True)


@given(st.binary(max_size=200))
def test_no_bytes_of_a_report_crash_or_pass(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "report").write_bytes(content)
        told = probe.report(Path(folder), "node-0")
    assert told is not None
    assert (told.at, bool(told.why)) == (0.0, True)


def test_a_report_is_read_and_one_that_is_not_there_is_awaited(tmp_path: Path) -> None:
    assert probe.report(tmp_path, "node-0") is None
    (tmp_path / "report").write_text(json.dumps(GOOD))
    told = probe.report(tmp_path, "node-0")
    assert told is not None
    assert (told.at, told.seconds, told.answers[0][0].readings[0].value) == (12.5, 1.0, 5.0)


def test_a_pipe_in_place_of_a_report_holds_up_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "report")
    os.mkfifo(tmp_path / "output")
    told = probe.report(tmp_path, "node-0")
    assert told is not None
    assert told.why
    assert probe.last_output(tmp_path) == ""


def test_what_a_job_printed_becomes_one_plain_line(tmp_path: Path) -> None:
    (tmp_path / "output").write_bytes(b"x" * 500 + b"\n\x1b[31mpython3:\tnot\x00 found \xff\n")
    said = probe.last_output(tmp_path)
    assert (len(said), said.endswith("[31mpython3: not found \ufffd")) == (probe.LAST_CHARACTERS, True)


@pytest.mark.parametrize("kind", ["link", "file", "open to others"])
def test_a_folder_that_is_not_ours_alone_is_refused(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / ".primus-preflight-x"
    match kind:
        case "link":
            folder.symlink_to(tmp_path)
        case "file":
            folder.touch()
        case _:
            folder.mkdir()
            folder.chmod(0o777)
    with pytest.raises(Refused, match="not ours alone"):
        probe.made(tmp_path, "primus-preflight-x", tmp_path / "home")


def test_only_old_folders_of_ours_are_swept_away(tmp_path: Path) -> None:
    for name in (".primus-preflight-old", ".primus-preflight-new", ".primus-preflight-other", "old"):
        (tmp_path / name).mkdir()
        if name != ".primus-preflight-other":
            (tmp_path / name / "programs.pyz").touch()
    for name in (".primus-preflight-old", ".primus-preflight-other", "old"):
        os.utime(tmp_path / name, (1, 1))
    probe.made(tmp_path, "primus-preflight-x", tmp_path / "home")
    left = {path.name for path in tmp_path.iterdir()} - {"home", ".primus-preflight-x"}
    assert left == {".primus-preflight-new", ".primus-preflight-other", "old"}
