"""Long logs: what is kept of them tells the same as the whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.files import place_of
from flows.decisions.diagnosis.matching import RULES
from flows.decisions.diagnosis.selection import LEAST, LINES, Selection, evidence_from, evidence_of, select, select_all
from flows.decisions.diagnosis.significance import SignificanceIndex
from flows.decisions.diagnosis.skim import Learning
from profiles.vocabulary import FaultClass
from tests.corpus_cases import CorpusCase, cases
from tests.proof import in_turn

XID = "NVRM: Xid (PCI:0000:44:00): {number}, pid=4711, name=python, Ch 00000010"
TORCHRUN = """
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2025-03-01_10:00:00
  host      : node-3
  rank      : 5 (local_rank: 5)
  exitcode  : -9 (pid: 4711)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4711
============================================================
""".strip("\n").splitlines()


def chatter(count: int, start: int = 0) -> list[str]:
    """Lines that tell nothing: neither steps nor alarming words."""
    return [
        f"data worker {i % 8} put sample {i * 37 % 100_003} of shard-{i % 97:05d} into queue {i % 5}"
        for i in range(start, start + count)
    ]


def step(rank: int, number: int, loss: float | str = 2.5) -> str:
    return f"[rank{rank}]: step {number} | loss {loss} | grad norm 0.31 | tokens/s 3712"


def text(lines: Iterable[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def kept(selection: Selection) -> dict[int, str]:
    return {number: line for first, lines in selection.runs for number, line in enumerate(lines, first)}


def middle(*lines: str, around: int = 12_000, most: int = 800) -> dict[int, str]:
    """What is kept of these lines in the middle of chatter, with their numbers among themselves."""
    found = kept(select("x.log", [text([*chatter(around), *lines, *chatter(around)])], most=most))
    return {number - around: line for number, line in found.items() if around < number <= around + len(lines)}


LEARNT = Learning(SignificanceIndex())
NOISE, SOME_NOISE = text(chatter(20_000)), text(chatter(1500))
MOST, FEW = 800, 200
"""Lines that are kept at most. `SOME_NOISE` has several times `FEW`: which lines are kept is still decided, and less
room is harder than more. Each commit tries other cases with the larger sizes, `NOISE` and `MOST`."""


def before(name: str, noise: bytes = NOISE) -> list[bytes]:
    """What stands before a case; nothing before a kernel's log, whose first line says when the machine was booted."""
    return [] if place_of(name).source == "kernel" else [noise]


def tells_the_same(case: CorpusCase, noise: bytes, most: int) -> None:
    alone = diagnose(evidence_of(case.files))
    long = [select(name, [*before(name, noise), text(lines), noise], LEARNT, most) for name, lines in case.files]
    assert all(item.kept <= most < item.lines for item in long)  # lines had to be chosen
    assert diagnose(evidence_from(long)).fault_class is alone.fault_class


@pytest.mark.parametrize("case", in_turn(cases("development"), 4), ids=lambda case: case.name)
def test_a_case_tells_the_same_with_1500_lines_before_and_behind_it(case: CorpusCase) -> None:
    tells_the_same(case, SOME_NOISE, FEW)


@pytest.mark.parametrize("case", in_turn(cases("development"), 20), ids=lambda case: case.name)
def test_a_case_tells_the_same_with_20000_lines_before_and_behind_it(case: CorpusCase) -> None:
    tells_the_same(case, NOISE, MOST)


@pytest.mark.parametrize("part", ["front", "behind"])
def test_the_same_with_the_usual_allowance(part: str) -> None:
    for case in in_turn(cases("development")[7::40], 4):
        long = [
            select(name, [*before(name), text(lines)] if part == "front" else [text(lines), NOISE], LEARNT)
            for name, lines in case.files
        ]
        assert diagnose(evidence_from(long)).fault_class is diagnose(evidence_of(case.files)).fault_class, case.name


def test_a_short_log_is_kept_whole() -> None:
    for case in cases("development"):
        for name, lines in case.files:
            found = select(name, [text(lines)], LEARNT)
            assert found.runs == (((1, tuple(lines)),) if lines else ())
            assert found.lines == len(lines)


def test_every_rule_s_example_is_found_in_the_middle_of_a_long_log() -> None:
    lines, numbers = list[str](), dict[str, int]()
    for rule in RULES:
        lines += chatter(200, len(lines))
        lines.append(rule.example)
        numbers[rule.name] = len(lines)
    found = kept(select("x.log", [text(lines)]))
    lost = [
        rule.name
        for rule in RULES
        if rule.fault_class is not FaultClass.NONE and found.get(numbers[rule.name]) != rule.example
    ]
    assert lost == []


def test_numbers_are_those_of_the_whole_log() -> None:
    lines = [*chatter(9000), "RuntimeError: CUDA error: uncorrectable ECC error encountered", *chatter(9000)]
    found = diagnose(evidence_from([select("rank-3.log", [text(lines)])]))
    assert found.fault_class is FaultClass.GPU_HARDWARE
    assert (found.evidence[0].file, found.evidence[0].line) == ("rank-3.log", 9001)
    assert found.culprits == (("", 3),)


@pytest.mark.parametrize("size", [1, 7, 1000, 100_000])
def test_blocks_of_any_size_give_the_same_lines(size: int) -> None:
    data = text([*chatter(300), "é" * 50, XID.format(number=79), *chatter(300)])
    blocks = [data[start : start + size] for start in range(0, len(data), size)]
    whole = kept(select("x.log", [data], most=200))
    assert 302 in whole
    assert kept(select("x.log", blocks, most=200))[302] == XID.format(number=79)
    assert kept(select("x.log", blocks)) == kept(select("x.log", [data]))


def test_a_number_may_make_the_difference() -> None:
    """Xid 43 is the program's, and a thousand of them hide no Xid 79."""
    lines = [XID.format(number=43)] * 250
    found = middle(*lines, XID.format(number=79), *lines)
    assert found[251] == XID.format(number=79)


def test_repeats_in_the_middle_go_first() -> None:
    lines = [f"[rank{i % 8}]: ConnectionResetError: [Errno 104] Connection reset by peer {i}" for i in range(5000)]
    found = middle(*lines, "OSError: [Errno 28] No space left on device", *lines)
    assert found[5001].startswith("OSError")
    assert 1 in found
    assert 10_001 in found
    assert len(found) <= 800


def test_a_traceback_keeps_its_frames() -> None:
    frames = [line for i in range(30) for line in (f'  File "/work/part{i}.py", line {i}, in f{i}', f"    g{i}(x)")]
    found = middle("Traceback (most recent call last):", *frames, "acme.Broken: no such thing")
    assert list(found) == list(range(1, 63))


def test_a_launcher_s_report_is_kept_whole() -> None:
    found = middle(*TORCHRUN)
    assert list(found.values()) == TORCHRUN
    seen = diagnose(evidence_from([select("x.log", [text([*chatter(9000), *TORCHRUN, *chatter(9000)])])]))
    assert (seen.fault_class, seen.culprits) == (FaultClass.PROCESS_KILLED, (("node-3", 5),))


def test_a_fall_of_the_steps_is_kept_with_what_stands_around_it() -> None:
    before, after = [step(0, i) for i in range(1, 6001)], [step(0, i, 10.9) for i in range(1, 6001)]
    start = ["initializing model", "no checkpoint found in /ckpt, starting from scratch"]
    found = middle(*before, *start, *after)
    assert {5999, 6000, 6001, 6002, 6003, 6004} <= set(found)


def test_a_loss_that_is_no_number_is_kept_with_the_steps_before_it() -> None:
    lines = [step(0, i) for i in range(1, 5001)] + [step(0, i, "nan") for i in range(5001, 10_001)]
    found = middle(*lines)
    assert {4999, 5000, 5001, 5002} <= set(found)


def test_steps_are_sampled_over_the_whole_log() -> None:
    found = sorted(middle(*(step(i % 8, i // 8) for i in range(20_000))))
    assert {1, 2, 3} <= set(found)
    assert {19_999, 20_000} <= set(found)
    assert max(second - first for first, second in pairwise(found)) < 3000


def test_everybody_s_last_words_are_kept() -> None:
    """A rank that fell silent long before the others stands nowhere near the end."""
    lines = [f"[rank{i % 8}]: forward pass of batch {i} done" for i in range(8000)]
    others = [f"[rank{i % 7}]: forward pass of batch {i} done" for i in range(8000)]
    found = middle(*lines, *others)
    assert found[8000].startswith("[rank7]")


def test_the_last_line_of_each_shape_is_kept() -> None:
    """A server that came back as often as it was away is not away."""
    lines = [line for _ in range(500) for line in ("nfs: server nas-1 not responding, still trying", *chatter(9))]
    back = [line for _ in range(500) for line in ("nfs: server nas-1 OK", *chatter(9))]
    mixed = [line for pair in zip(lines, back, strict=True) for line in pair]
    found = middle(*mixed)
    assert max(number for number, line in found.items() if line.endswith("OK")) == 9982
    assert max(number for number, line in found.items() if "not responding" in line) == 9981


def test_what_is_dropped_leaves_no_silence() -> None:
    """An hour of other lines after the last step: some of them are kept all the way through."""
    found = sorted(middle(*(step(0, i) for i in range(100)), *chatter(20_000), around=2000, most=2000))
    assert max(second - first for first, second in pairwise(found)) < 2000


def test_lines_of_a_rare_shape_are_kept() -> None:
    table = [f"  gpu {rank}   {rank * 3.7:.1f} ms of compute" for rank in range(8)]
    assert list(middle(*table).values()) == table


def test_what_is_kept_is_bounded_whatever_comes() -> None:
    alarms = [f"{rule.example} {'x' * i}" for i in range(5) for rule in RULES]
    for most in (LEAST, 100, 2000):
        found = select("x.log", [text(alarms), text(chatter(5000))], LEARNT, most)
        assert found.kept <= most


HOSTILE: dict[str, tuple[bytes, str]] = {
    "a line of ten megabytes": (b"x" * 10_000_000, "x" * 8000),
    "nothing but zeros": (b"\0" * 3_000_000, ""),
    "zeros between the letters": ("ValueError: x".encode("utf-16-le"), "ValueError: x"),
    "broken letters": (b"caf\xc3 \xff\xfe ok", "caf� �� ok"),
    "colours": (b"\x1b[31mValueError: x\x1b[0m", "\x1b[31mValueError: x\x1b[0m"),
    "a progress bar of megabytes": (b"\r".join(b"%d%%|###" % i for i in range(500_000)) + b"\rdone\r", "done"),
    "a short progress bar": (b"10%|#\r20%|##", "10%|#\r20%|##"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_lines_are_lines(name: str) -> None:
    raw, shown = HOSTILE[name]
    data = b"before\n" + raw + b"\nRuntimeError: NCCL error\n"
    blocks = [data[start : start + 1_000_000] for start in range(0, len(data), 1_000_000)]
    assert kept(select("x.log", blocks, LEARNT)) == {1: "before", 2: shown, 3: "RuntimeError: NCCL error"}


@pytest.mark.parametrize(
    ("data", "lines"),
    [(b"", {}), (b"\n", {1: ""}), (b"a", {1: "a"}), (b"a\n", {1: "a"}), (b"a\n\nb", {1: "a", 2: "", 3: "b"})],
)
def test_line_ends(data: bytes, lines: dict[int, str]) -> None:
    found = select("x.log", [data], LEARNT)
    assert (kept(found), found.lines, found.size_bytes) == (lines, len(lines), len(data))


@dataclass(frozen=True)
class Given:
    """A log in memory."""

    name: str
    lines: Sequence[str]
    known: bool = True

    @property
    def size_bytes(self) -> int | None:
        return len(text(self.lines)) if self.known else None

    def blocks(self) -> Iterator[bytes]:
        yield text(self.lines)


def test_many_logs_share_the_allowance_and_small_ones_stay_whole() -> None:
    logs = [Given("big", chatter(9000)), Given("pipe", chatter(9000), known=False), Given("small", chatter(50))]
    big, pipe, small = select_all(logs, total=1000)
    assert [big.name, pipe.name, small.name] == ["big", "pipe", "small"]
    assert small.kept == 50
    assert small.kept < big.kept
    assert big.kept + pipe.kept + small.kept <= 1000
    assert [item.lines for item in (big, pipe, small)] == [9000, 9000, 50]


def test_no_log_takes_more_than_one_alone_and_each_has_a_little() -> None:
    assert select_all([Given("one", chatter(30_000))])[0].kept <= LINES
    found = select_all([Given(str(i), [*chatter(100), "ValueError: x"]) for i in range(500)], total=500)
    assert all(0 < item.kept <= LEAST for item in found)


def test_no_time_is_carried_over_a_gap() -> None:
    found = evidence_from([Selection("x", ((1, ("2025-03-01 10:00:00 a", "b")), (900, ("c",))), 900, 0)])
    assert [(line.line, line.at is not None) for line in found.lines] == [(1, True), (2, True), (900, False)]


def test_a_host_before_the_lines_is_recognised_over_gaps() -> None:
    runs = ((1, ("node-1: a", "node-1: b")), (70, ("node-1: c",)))
    assert {line.node for line in evidence_from([Selection("x", runs, 70, 0)]).lines} == {"node-1"}
