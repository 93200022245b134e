"""What a launcher prints, read late or never: nothing waits for the reader, and what is missing is said."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.harness.launcher_harness import GangOnLoopback, Unread, until
from workflows.programs.runtime.files import Printer

FLOOD = """
import sys, time
for number in range(6000):
    print("line", number, "x" * 80)
print("step 1/1 | loss 1.0 | tokens/s 5 | step time 0.0100 s", flush=True)
if len(sys.argv) > 1:
    time.sleep(600)
"""


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    os.close(write)
    os.close(read)


def whole(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += os.read(fd, size - len(data))
    return data


def test_what_fits_is_written_in_order(pipe: tuple[int, int]) -> None:
    printer = Printer(pipe[1])
    for number in range(100):
        printer.print(b"%d\n" % number)
    assert printer.close(30)
    assert os.read(pipe[0], 65536) == b"".join(b"%d\n" % number for number in range(100))


def test_what_nobody_reads_is_dropped_counted_and_said_where_it_is_missing(pipe: tuple[int, int]) -> None:
    full = fill(pipe[1])
    printer = Printer(pipe[1], queue_bytes=1000)
    for _ in range(1000):
        printer.print(b"line\nline\n", share=0.5)
    printer.print(b"own word\n")
    assert not printer.close(0.01)
    whole(pipe[0], full)
    assert printer.close(30)
    data = os.read(pipe[0], 65536)
    kept = data.count(b"line\n")
    assert 0 < kept < 210
    assert b"... %d lines are missing here: this output was not read in time\nown word\n" % (2000 - kept) in data


def test_a_reader_that_is_gone_is_nobodys_concern() -> None:
    read, write = os.pipe()
    os.close(read)
    printer = Printer(write)
    printer.print(b"one\n")
    printer.print(b"two\n")
    assert printer.close(30)
    os.close(write)


def test_a_descriptor_that_refuses_to_block_gets_everything(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    printer = Printer(pipe[1])
    printer.print(b"y" * 300_000 + b"\n")
    assert whole(pipe[0], 300_001) == b"y" * 300_000 + b"\n"
    assert printer.close(30)


def fill(fd: int) -> int:
    """Until the next byte would block; how many."""
    size = 0
    os.set_blocking(fd, False)
    try:
        while True:
            size += os.write(fd, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(fd, True)
    return size


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[GangOnLoopback]:
    one = GangOnLoopback(tmp_path)
    one.program = Unread
    (tmp_path / "flood.py").write_text(FLOOD)
    yield one
    one.close()


def lines_of(gang: GangOnLoopback) -> list[str]:
    path = gang.folder_of(0) / "rank-0.log"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.story
def test_an_output_that_nobody_reads_stops_no_training(gang: GangOnLoopback) -> None:
    pod = gang.alone(command=[sys.executable, "-S", str(gang.folder / "flood.py")])
    assert pod.end() == 0
    assert gang.steps() == [1]
    assert len(lines_of(gang)) == 6001
    assert "started ranks from 0" in pod.text
    assert "completed; exit code 0" in (gang.folder_of(0) / "launcher.log").read_text()


@pytest.mark.story
def test_a_signal_is_heard_while_nobody_reads_the_output(gang: GangOnLoopback) -> None:
    pod = gang.alone(command=[sys.executable, "-S", str(gang.folder / "flood.py"), "stay"])
    until(lambda: len(lines_of(gang)) == 6001, "all of the rank's output is in its log")
    pod.process.send_signal(signal.SIGTERM)
    assert pod.end() == 143
    assert "SIGTERM" in (gang.folder_of(0) / "launcher.log").read_text()
