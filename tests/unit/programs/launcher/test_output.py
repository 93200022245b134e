"""What ranks print, however they print it: lines, bars, floods, megabytes, bytes that are no text."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders.damaged import damaged, reaches
from workflows.programs.launcher import lifecycle
from workflows.programs.launcher.output import (
    BAR_IDLE_SECONDS,
    LineSplitter,
    OutputLine,
    RankLog,
    RankOutput,
    RelayBudget,
    Tail,
    TimestampFormatter,
    TransientFilter,
    printable_text,
)
from workflows.programs.launcher.rank_set import READ_BYTES
from workflows.programs.progress.reader import ProgressReader, StepCounting, framework_of
from workflows.programs.runtime.files import Appender
from workflows.programs.runtime.last_words import fingerprint
from workflows.wire import RankEnd, StepSeen


def split(*chunks: bytes, limit: int = 100) -> list[tuple[bytes, bool]]:
    """Lines with their pieces put together."""
    splitter = LineSplitter(limit)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    found: list[tuple[bytes, bool]] = []
    for line in [*lines, *splitter.close()]:
        assert 0 <= len(line.raw) <= limit
        before = found.pop()[0] if line.is_continuation else b""
        found.append((before + line.raw, line.is_transient))
    return found


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ((b"one\ntwo\n",), [(b"one", False), (b"two", False)]),
        ((b"o", b"ne\nt", b"wo"), [(b"one", False), (b"two", False)]),
        ((b"one\r\ntwo\r\n",), [(b"one", False), (b"two", False)]),
        ((b"one\r", b"\ntwo"), [(b"one", False), (b"two", False)]),
        ((b"one\r\r\ntwo",), [(b"one", False), (b"two", False)]),
        ((b"\r 10%\r 20%\r 30%\n",), [(b" 10%", True), (b" 20%", True), (b" 30%", False)]),
        ((b" 10%\r", b" 20%\r", b"done\n"), [(b" 10%", True), (b" 20%", True), (b"done", False)]),
        ((b"\n\n  \n\r\n",), [(b"", False), (b"", False), (b"  ", False), (b"", False)]),
        ((b"gr\xc3", b"\xbc\xc3\x9fe\n"), [("grüße".encode(), False)]),
        ((b"\xff\x00\x07bell\n",), [(b"\xff\x00\x07bell", False)]),
        ((b"x" * 250 + b"\ny",), [(b"x" * 250, False), (b"y", False)]),
    ],
)
def test_bytes_become_lines(chunks: tuple[bytes, ...], expected: list[tuple[bytes, bool]]) -> None:
    assert split(*chunks) == expected


def test_for_people_what_is_no_text_is_replaced() -> None:
    assert printable_text(b"\xff\x00\x07bell") == "\ufffd" * 3 + "bell"
    assert printable_text(b"tab\tstays \x1b[31mred\x1b[0m") == "tab\tstays \x1b[31mred\x1b[0m"


def test_a_line_of_ten_megabytes_comes_in_pieces_and_costs_little_memory() -> None:
    splitter = LineSplitter()
    pieces: list[OutputLine] = []
    for _ in range(160):
        pieces += splitter.feed(b"x" * 65536)
        assert len(splitter._pending) <= 65537  # pyright: ignore[reportPrivateUsage] - the bound is the point
    pieces += splitter.feed(b"end\nnext\n")
    assert [len(line.raw) for line in pieces] == [65536] * 160 + [3, 4]
    assert [line.is_continuation for line in pieces] == [False] + [True] * 160 + [False]
    assert [line.is_continued for line in pieces] == [True] * 160 + [False] * 2


@given(st.lists(st.sampled_from([b"a", b"bc\n", b"\n", b"long" * 9, b"\xff\x00"]), max_size=60), st.integers(1, 40))
def test_lines_in_one_are_the_same_lines(parts: list[bytes], size: int) -> None:
    data = b"".join(parts)
    splitter = LineSplitter(20)
    found: list[OutputLine] = []
    for start in range(0, len(data), size):
        chunk = data[start : start + size]
        block = splitter.block(chunk)
        if block is None:
            found += splitter.feed(chunk)
        else:
            found += [OutputLine(raw) for raw in block.split(b"\n")[:-1]]
    expected = LineSplitter(20)
    assert found == expected.feed(data)
    assert splitter.close() == expected.close()


@given(st.binary(max_size=400), st.lists(st.integers(1, 40), max_size=20))
def test_cutting_the_stream_elsewhere_gives_the_same_lines(data: bytes, sizes: list[int]) -> None:
    chunks: list[bytes] = []
    rest = data
    for size in sizes:
        chunks.append(rest[:size])
        rest = rest[size:]
    assert split(*chunks, rest, limit=30) == split(data, limit=30)


ENDS = re.compile(rb"\r+\n|\n|\r+(?=[^\n\r])")
"""What ends a line, in the plainest words."""


@given(st.lists(st.sampled_from([b"\r", b"\n", b"x"]), max_size=60), st.lists(st.integers(1, 9), max_size=20))
def test_lines_end_where_the_plainest_rule_says(parts: list[bytes], sizes: list[int]) -> None:
    data = b"".join(parts)
    expected: list[tuple[bytes, bool]] = []
    start = 0
    for end in ENDS.finditer(data):
        expected.append((data[start : end.start()], end.group().endswith(b"\r")))
        start = end.end()
    last = data[start:].rstrip(b"\r")
    expected.append((last, not last))
    chunks: list[bytes] = []
    rest = data
    for size in sizes:
        chunks.append(rest[:size])
        rest = rest[size:]
    assert split(*chunks, rest) == [line for line in expected if line[0] or not line[1]]


@pytest.mark.parametrize("piece", [b"\r", b"\r" * 7, b"x", b"x\r", b"\r\n"])
def test_four_times_the_output_costs_hardly_more_than_four_times_the_work(piece: bytes) -> None:
    def seconds(size: int) -> float:
        splitter = LineSplitter()
        data = piece * (size // len(piece))
        began = time.process_time()
        for start in range(0, size, READ_BYTES):
            splitter.feed(data[start : start + READ_BYTES])
        splitter.close()
        return time.process_time() - began

    size = 4_000
    ratios = [seconds(4 * size) / max(seconds(size), 1e-4) for _ in range(3)]
    assert min(ratios) < 10, "twice as much where each run is walked through from each of its bytes"


@given(st.lists(st.binary(max_size=20).filter(lambda raw: b"\n" not in raw and b"\r" not in raw)))
def test_no_line_is_lost(lines: list[bytes]) -> None:
    found = split(b"".join(raw + b"\n" for raw in lines), limit=7)
    assert [raw for raw, _ in found] == lines


def test_the_newest_state_of_a_bar_is_known_before_its_end_comes() -> None:
    splitter = LineSplitter()
    splitter.feed(b"plain text without an end")
    assert splitter.bar == ""
    splitter.feed(b"\r 10%|#")
    assert splitter.bar == " 10%|#"
    splitter.feed(b"\n")
    assert splitter.bar == ""


def test_the_tail_keeps_each_bar_once_and_no_colours() -> None:
    tail = Tail(lines=3, characters=10)
    for line in (
        OutputLine(b"first"),
        OutputLine(b" 10%", True),
        OutputLine(b" 20%", True),
        OutputLine(b"\x1b[31mred\x1b[0m"),
        OutputLine(b"y" * 99),
    ):
        tail.add(line)
    assert tail.lines() == ["first", "red", "y" * 10]


def test_the_tail_keeps_the_last_lines() -> None:
    tail = Tail()
    for number in range(250):
        tail.add(OutputLine(b"%d" % number))
    assert tail.lines() == [str(number) for number in range(150, 250)]


def test_a_bar_is_written_once_a_second_and_in_its_last_state() -> None:
    shown = TransientFilter()
    bars = [OutputLine(b"%d%%" % percent, True) for percent in range(5)]
    assert shown.pick([bars[0]], 0.0) == [bars[0]]
    assert shown.pick([bars[1], bars[2]], 0.5) == []
    assert shown.pick([bars[3]], 1.1) == [bars[3]]
    assert shown.pick([bars[4]], 1.2) == []
    assert shown.pick([OutputLine(b"done")], 1.3) == [bars[4], OutputLine(b"done")]
    assert shown.rest() == []


def test_times_are_in_utc_with_microseconds() -> None:
    stamps = TimestampFormatter()
    assert stamps.of(1_700_000_000.25) == "2023-11-14T22:13:20.250000Z"
    assert stamps.of(1_700_000_000.75) == "2023-11-14T22:13:20.750000Z"
    assert stamps.of(1_700_000_001.0) == "2023-11-14T22:13:21.000000Z"


def test_a_flood_is_relayed_up_to_an_allowance_that_fills_again() -> None:
    allowance = RelayBudget(bytes_per_second=10, burst_bytes=100)
    assert [allowance.take(40, 0.0) for _ in range(4)] == [True, True, False, False]
    assert allowance.withheld == 2
    assert allowance.take(40, 2.0)


def make_output(tmp_path: Path, appender: Appender, framework: str = "primus-demo") -> RankOutput:
    reading = ProgressReader(framework_of(framework), StepCounting(steps=300), 1)
    log = RankLog(str(tmp_path / "a1" / "rank-1.log"), appender, TimestampFormatter())
    output = RankOutput(1, reading, log, TimestampFormatter())
    output.open(0)
    output.open(1)
    return output


def test_both_streams_stand_in_one_log_with_their_times_and_are_relayed_with_the_rank(tmp_path: Path) -> None:
    appender = Appender()
    output = make_output(tmp_path, appender)
    seen = output.feed(0, b"step 1/300 | loss 3.2 | tokens/s 1 | step time 1 s\n", 0.0)
    output.feed(1, b"warning\n", 1.0)
    assert appender.close(10)
    assert [report.step for report in seen if isinstance(report, StepSeen)] == [1]
    assert (tmp_path / "a1" / "rank-1.log").read_text().splitlines() == [
        "1970-01-01T00:00:00.000000Z step 1/300 | loss 3.2 | tokens/s 1 | step time 1 s",
        "1970-01-01T00:00:01.000000Z warning",
    ]
    assert b"[rank1]: warning\n" in output.take_relayed()
    assert output.tail.lines()[-1] == "warning"


def test_a_flood_stays_out_of_the_launchers_output_but_not_out_of_the_ranks_log(tmp_path: Path) -> None:
    appender = Appender()
    output = make_output(tmp_path, appender)
    for _ in range(200):
        output.feed(0, b"noise " * 10_000 + b"\n", 0.0)
    output.feed(0, b"later\n", 60.0)
    relayed = output.take_relayed()
    assert len(relayed) < 5_000_000
    assert b"lines are not shown here, they are in rank-1.log\n" in relayed
    assert relayed.endswith(b"[rank1]: later\n")
    assert appender.close(10)
    assert (tmp_path / "a1" / "rank-1.log").stat().st_size > 11_000_000


def test_what_was_not_shown_at_the_end_is_told_when_the_stream_ends(tmp_path: Path) -> None:
    appender = Appender()
    output = make_output(tmp_path, appender)
    for _ in range(100):
        output.feed(0, b"noise " * 10_000 + b"\n", 0.0)
    assert b"not shown" not in output.take_relayed()
    output.close(0, 0.0)
    assert re.search(
        rb"\[rank1\]: \.\.\. (\d+) lines are not shown here, they are in rank-1.log\n$", output.take_relayed()
    )
    output.close(1, 0.0)
    assert output.take_relayed() == b"", "once"
    assert appender.close(10)


def test_the_last_state_of_a_silent_bar_is_progress(tmp_path: Path) -> None:
    appender = Appender()
    output = make_output(tmp_path, appender, "huggingface")
    assert output.feed(1, "\r  3%|▎         | 9/300 [00:01<00:40]".encode(), 10.0) == []
    assert output.waits_for_bar
    assert output.idle(10.0 + BAR_IDLE_SECONDS / 2) == []
    found = output.idle(10.0 + BAR_IDLE_SECONDS)
    assert [report.step for report in found if isinstance(report, StepSeen)] == [9]
    assert not output.waits_for_bar
    appender.close(10)


def test_a_log_is_rotated_and_two_older_generations_stay(tmp_path: Path) -> None:
    appender = Appender(limit_bytes=100)
    path = tmp_path / "rank-0.log"
    for number in range(40):
        appender.append(str(path), b"%02d %s\n" % (number, b"x" * 46))
    assert appender.close(10)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["rank-0.log", "rank-0.log.1", "rank-0.log.2"]
    texts = [(tmp_path / name).read_text() for name in ("rank-0.log.2", "rank-0.log.1", "rank-0.log")]
    assert [text.splitlines()[0][:2] for text in texts] == ["34", "36", "38"]
    assert all(len(text) == 100 for text in texts)


def test_a_part_larger_than_the_limit_is_spread_over_generations(tmp_path: Path) -> None:
    appender = Appender(limit_bytes=10)
    appender.append(str(tmp_path / "log"), bytes(range(65, 90)))
    assert appender.close(10)
    names = ("log.2", "log.1", "log")
    assert b"".join((tmp_path / name).read_bytes() for name in names) == bytes(range(65, 90))


def test_a_storage_that_refuses_is_told_and_taken_up_again_when_it_is_back(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.write_text("a file stands where the folder should be")
    appender = Appender()
    appender.append(str(folder / "log"), b"lost\n")
    assert appender.flush(10)
    assert "folder" in appender.last_error
    folder.unlink()
    appender.append(str(folder / "log"), b"kept\n")
    assert appender.close(10)
    assert appender.last_error == ""
    assert (folder / "log").read_bytes() == (
        b"... 5 bytes are missing here: the storage was slow or refused them\nkept\n"
    )


def test_what_waits_for_a_slow_storage_is_bounded_and_the_gap_is_marked(tmp_path: Path) -> None:
    import os

    fifo = tmp_path / "log"
    os.mkfifo(fifo)
    appender = Appender(queue_bytes=1000)
    appender.append(str(fifo), b"a" * 900)  # taken by the thread, which hangs until somebody reads
    while appender._waiting:  # pyright: ignore[reportPrivateUsage] - until the thread hangs
        pass
    for _ in range(50):
        appender.append(str(fifo), b"z" * 100)
    assert not appender.flush(0.01)
    with fifo.open("rb") as reader:
        assert appender.flush(10)
        appender.append(str(fifo), b"end\n")
        assert appender.close(10)
        data = reader.read()
    assert data.count(b"z") == 1000
    assert data.endswith(b"... 4000 bytes are missing here: the storage was slow or refused them\nend\n")


TRACEBACK = """\
Traceback (most recent call last):
  File "/work/a1/train.py", line 41, in <module>
    main()
  File "/work/a1/train.py", line 30, in main
    model.forward(batch)
  File "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1511, in _call_impl
    return forward_call(*args, **kwargs)
RuntimeError: CUDA error at 0x7f12: step 41 of /data/shard-00017.bin failed"""

CHAINED = (
    """\
Traceback (most recent call last):
  File "/app/data.py", line 3, in load
    open(path)
FileNotFoundError: [Errno 2] No such file or directory: '/data/x/shard-3.bin'

During handling of the above exception, another exception occurred:

"""
    + TRACEBACK
)


@pytest.mark.parametrize(
    ("text", "code", "signal", "expected"),
    [
        (TRACEBACK, 1, None, "RuntimeError@train.py:main: CUDA error at @: step # of shard-#.bin failed"),
        (CHAINED, 1, None, "FileNotFoundError@data.py:load: [Errno #] No such file or directory: 'shard-#.bin'"),
        ("[rank1]: " + TRACEBACK.replace("\n", "\n[rank1]: "), 1, None, "RuntimeError@train.py:main: CUDA error at @"),
        ("Traceback (most recent call last):\nValueError", 1, None, "ValueError"),
        (
            "terminate called after throwing an instance of 'std::bad_alloc'\nwhat",
            None,
            6,
            "signal 6: terminate called",
        ),
        ("step 12/300 | loss 3.1", None, 9, "signal 9"),
        (TRACEBACK + "\nwent on after it", None, 9, "signal 9"),
        ("no accelerator found", 3, None, "exit 3: no accelerator found"),
        ("", 3, None, "exit 3"),
        (TRACEBACK, 0, None, ""),
    ],
)
def test_a_fingerprint_says_what_failed(text: str, code: int | None, signal: int | None, expected: str) -> None:
    found = fingerprint(text.split("\n"), code, signal)
    assert found == expected if not expected else found.startswith(expected)


GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "/work/train.py", line 3, in main
  | ExceptionGroup: many (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: inner
    +---------------- 2 ----------------
    | TypeError: b
    +------------------------------------"""
RELAYED = (
    TRACEBACK
    + """
Traceback (most recent call last):
  File "/usr/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
  Root Cause (first observed failure):"""
)


@pytest.mark.parametrize(
    ("text", "code", "signal", "expected"),
    [
        (TRACEBACK, 1, None, ": RuntimeError: CUDA error at 0x7f12: step 41 of /data/shard-00017.bin failed"),
        (CHAINED, 1, None, ": FileNotFoundError: [Errno 2] No such file or directory: '/data/x/shard-3.bin'"),
        (GROUP, 1, None, ": ValueError: inner"),
        (RELAYED, 1, None, ": RuntimeError: CUDA error at 0x7f12: step 41 of /data/shard-00017.bin failed"),
        (TRACEBACK + "\nit went on after it", 7, None, ", after it printed: it went on after it"),
        ("the learning rate must be positive\n", 1, None, ", after it printed: the learning rate must be positive"),
        ("step 12/300 | loss 3.1", None, 9, ""),
        ("Fatal Python error: Segmentation fault", None, 11, ": Fatal Python error: Segmentation fault"),
        ("", 7, None, ""),
        ("done", 0, None, ""),
    ],
)
def test_who_reads_how_a_rank_ended_reads_what_it_failed_by(
    text: str, code: int | None, signal: int | None, expected: str
) -> None:
    end = RankEnd(3, 0, 1.0, code, signal, last_step=8, last_lines=text.split("\n"))
    how = f"was killed by signal {signal}" if signal is not None else f"exited with {code}"
    assert lifecycle.describe(end) == f"rank 3 {how} after step 8{expected}"
    assert lifecycle.describe(replace(end, requested=True)) == f"rank 3 {how} after step 8"


@given(st.integers(0, 10**9), st.integers(0, 2**48), st.integers(1, 99))
def test_a_fingerprint_is_the_same_in_every_attempt(step: int, address: int, attempt: int) -> None:
    text = TRACEBACK.replace("41", str(step)).replace("0x7f12", hex(address)).replace("/a1/", f"/a{attempt}/")
    assert fingerprint(text.split("\n"), 1, None) == fingerprint(TRACEBACK.split("\n"), 1, None)


TOLD = damaged(
    [TRACEBACK, CHAINED], ["Traceback (most recent call last):", '  File "', ", line ", " in ", ": ", "\n", "x" * 400]
)


def test_damaged_tracebacks_still_tell_an_exception_and_a_place() -> None:
    whole = {fingerprint(text.split("\n"), 1, None) for text in (TRACEBACK, CHAINED)}
    assert reaches(TOLD, lambda text: "@" in (found := fingerprint(text.split("\n"), 1, None)) and found not in whole)


@given(TOLD.map(lambda text: text.split("\n")) | st.lists(st.text(max_size=200), max_size=30), st.integers(1, 255))
def test_a_fingerprint_is_short_whatever_was_printed(lines: list[str], code: int) -> None:
    assert 0 < len(fingerprint(lines, code, None)) <= 300
