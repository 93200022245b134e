"""A rank's own log: nothing of what it printed is lost, whatever it was, and who reads it copes with that."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.cli.diagnose import diagnose_logs
from deployments.cli.logs import Log
from deployments.exit_codes import GOOD
from tests.support.harness.launcher_harness import GangOnLoopback
from workflows.programs.launcher.output import (
    CONTINUATION,
    LINE_BYTES,
    RankLog,
    RankOutput,
    TimestampFormatter,
    hidden_words,
)
from workflows.programs.progress.reader import ProgressReader, StepCounting, framework_of
from workflows.programs.runtime.files import Appender

STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z ", re.ASCII)
ALL_BYTES = bytes(number for number in range(256) if number not in b"\r\n")


class Kept(Appender):
    """An appender that keeps what it is given."""

    def __init__(self) -> None:
        self.data = b""

    def append(self, path: str, data: bytes) -> None:
        self.data += data


def lines_in(log: bytes) -> list[bytes]:
    """What stands behind the times."""
    assert log == b"" or log.endswith(b"\n")
    lines = log.split(b"\n")[:-1]
    hits = [STAMP.match(line) for line in lines]
    assert all(hits), "each line begins with its time"
    return [line[hit.end() :] for line, hit in zip(lines, hits, strict=True) if hit]


def output_into(log: Kept) -> RankOutput:
    reader = ProgressReader(framework_of("primus-demo"), StepCounting(), 0)
    output = RankOutput(0, reader, RankLog("log", log, TimestampFormatter()), TimestampFormatter())
    output.open(1)
    output.open(2)
    return output


@given(st.lists(st.integers(1, 40), max_size=8))
def test_values_of_secrets_are_hidden_in_whatever_is_kept_of_it(sizes: list[int]) -> None:
    log, hidden = Kept(), hidden_words(["hf_s3cret", "-- key --\nhf_s3cret-2\n  AbCdEf==\n", "1", ""])
    reader = ProgressReader(framework_of("primus-demo"), StepCounting(), 0)
    output = RankOutput(0, reader, RankLog("log", log, TimestampFormatter()), TimestampFormatter(), hidden)
    output.open(1)
    said = b"T=hf_s3cret\nbar hf_s3cret-2\rAbCdEf== and 1\n-- key --\x1b[0m\n\xffhf_s3cret\nhf_s3cret-2"
    for size in sizes:
        output.feed(1, said[:size], 1000.0)
        said = said[size:]
    output.feed(1, said, 1000.0)
    output.close(1, 1000.0)
    assert b"T=***" in lines_in(log.data)
    assert b"*** and 1" in lines_in(log.data)
    told = [log.data, output.take_relayed(), "\n".join(output.tail.lines()).encode()]
    assert not any(word in text for word in (b"s3cret", b"AbCdEf", b"key") for text in told)


PIECES = st.sampled_from([b"a", b"\n", b"\n\n", b"\xff\x00\x1b[2J\x07", b"step 1/2 | loss", "grüße ".encode(), b" "])


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.lists(PIECES, min_size=1, max_size=6).map(b"".join)), max_size=9))
def test_both_streams_stand_in_it_byte_by_byte(said: list[tuple[int, bytes]]) -> None:
    log = Kept()
    output = output_into(log)
    for stream, data in said:
        output.feed(stream, data, 1000.0)
    for stream in (1, 2):
        output.close(stream, 1000.0)
    found = lines_in(log.data)
    for stream in (1, 2):
        printed = b"".join(data for number, data in said if number == stream)
        lines = printed.split(b"\n")
        expected = lines if lines[-1] else lines[:-1]
        rest = iter(found)
        assert all(line in rest for line in expected), "in order"
    total = sum(b"".join(d for n, d in said if n == s).count(b"\n") for s in (1, 2))
    assert total <= len(found) <= total + 2


@given(st.lists(st.integers(1, 3 * LINE_BYTES), min_size=1, max_size=4), st.booleans())
def test_a_long_line_stands_in_it_whole_unless_another_stream_breaks_it(sizes: list[int], broken: bool) -> None:
    log = Kept()
    output = output_into(log)
    for number, size in enumerate(sizes):
        output.feed(1, bytes([97 + number]) * size, 1000.0)
        if broken:
            output.feed(2, b"another word\n", 1000.0)
    output.feed(1, b"\nnext\n", 1000.0)
    expected = b"".join(bytes([97 + number]) * size for number, size in enumerate(sizes))
    own = [line for line in lines_in(log.data) if line != b"another word"]
    assert own[-1] == b"next"
    first, *others = own[:-1]
    assert all(line.startswith(CONTINUATION) for line in others)
    assert broken or not others
    assert first + b"".join(line[len(CONTINUATION) :] for line in others) == expected


def test_a_note_does_not_stand_within_a_long_line() -> None:
    log = Kept()
    output = output_into(log)
    output.feed(1, b"x" * (LINE_BYTES + 1), 1000.0)
    output.log.note("told to stop", 1000.0)
    output.feed(1, b"y\n", 1000.0)
    assert lines_in(log.data) == [b"x" * LINE_BYTES, b"launcher: told to stop", CONTINUATION + b"xy"]


def test_bars_are_thinned_but_their_last_state_stands_before_the_next_line() -> None:
    log = Kept()
    output = output_into(log)
    output.feed(1, b"".join(b"\r %d%%" % percent for percent in range(100)), 1000.0)
    output.feed(1, b"\r100%\ndone\r\n", 1000.5)
    assert lines_in(log.data) == [b" 0%", b" 99%", b"100%", b"done"]


def test_the_launchers_output_and_the_last_lines_are_cut_and_clean() -> None:
    output = output_into(Kept())
    output.feed(1, b"\xff\x00bell\n\n" + b"x" * (LINE_BYTES + 1) + b"\nlast\n", 0.0)
    first, second, third, _ = output.take_relayed().decode().split("\n")
    assert first.endswith("[rank0]: \ufffd\ufffdbell")
    assert second.endswith("x ... [this line goes on in rank-0.log]")
    assert len(second) < LINE_BYTES + 100
    assert third.endswith("[rank0]: last")
    assert output.tail.lines() == ["\ufffd\ufffdbell", "x" * 2000, "last"]


PRINTER = """
import os, sys
data = open(sys.argv[1], "rb").read()
while data:
    data = data[os.write(1, data):]
"""


@pytest.mark.story
def test_a_real_rank_may_print_what_it_likes(tmp_path: Path) -> None:
    printed = b"\n\n" + ALL_BYTES + b"\n" + b"z" * 1_000_000 + b"\n" + "grüße\n".encode() + ALL_BYTES * 3 + b"\n"
    (tmp_path / "printed").write_bytes(printed)
    gang = GangOnLoopback(tmp_path)
    try:
        pod = gang.alone(command=[sys.executable, "-S", "-c", PRINTER, str(tmp_path / "printed")])
        assert pod.end() == 0
        path = gang.folder_of(0) / "rank-0.log"
        assert b"\n".join(lines_in(path.read_bytes())) + b"\n" == printed
    finally:
        gang.close()
    shown = list(Log(path).lines())
    assert len(shown) == printed.count(b"\n")
    assert not any(character in "".join(shown) for character in "\x00\x07\x08")


@pytest.fixture
def dirty(tmp_path: Path) -> Path:
    """The log of a rank that prints bytes, and then fails."""
    appender = Appender()
    path = tmp_path / "rank-0.log"
    output = RankOutput(
        0,
        ProgressReader(None, StepCounting(), 0),
        RankLog(str(path), appender, TimestampFormatter()),
        TimestampFormatter(),
    )
    output.open(1)
    for _ in range(50):
        output.feed(1, ALL_BYTES + b"\n\n", 1_700_000_000.0)
    words = (
        b'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n    f()\nValueError: no such shape\n'
    )
    output.feed(1, words, 1_700_000_001.0)
    assert appender.close(30)
    return path


def test_such_a_log_is_diagnosed(dirty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (dirty, dirty.parent):
        assert diagnose_logs([str(name)], as_json=True) == GOOD
        out = capsys.readouterr().out
        assert '"user_code"' in out
        assert "ValueError: no such shape" in out
