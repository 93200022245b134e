"""What healthy logs print, and no failure: parts of them, several runs in one file, warnings, finalisers."""

from __future__ import annotations

from flows.decisions.diagnosis.diagnose import Diagnosis, diagnose
from flows.decisions.diagnosis.lines import gather
from flows.decisions.diagnosis.observers.outliers import in_turn, sparse
from flows.decisions.diagnosis.observers.peers import peers
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass
from tests.support.cases.corpus_cases import CorpusCase, cases
from tests.support.cases.rows import rows

F = FaultClass
MOST_FALSE_ALARMS = 0.015
"""Share of halves of healthy logs: cut before its good end, a log may look as if it had stopped."""
SLICED = "ValueError: mat1 and mat2 shapes cannot be multiplied"


def read(text: str) -> Diagnosis:
    return diagnose(evidence_of([("train.log", text.split("\n"))]))


@rows("diagnosis/false_alarms")
def test_nothing_is_wrong(text: str) -> None:
    found = read(text)
    assert found.fault_class is F.NONE, (found.fault_class, found.why)


def test_halves_of_healthy_logs_are_healthy() -> None:
    healthy = [case for case in cases("development") if case.expected is F.NONE]
    alarms = [(case.name, found.rule) for case in healthy for found in _halves(case) if found.fault_class is not F.NONE]
    assert len(healthy) > 150
    assert len(alarms) <= MOST_FALSE_ALARMS * 2 * len(healthy), alarms


def _halves(case: CorpusCase) -> list[Diagnosis]:
    parts = [
        [(name, lines[: len(lines) // 2]) for name, lines in case.files if len(lines) > 1],
        [(name, lines[len(lines) // 2 :]) for name, lines in case.files],
    ]
    return [diagnose(evidence_of(part)) for part in parts if part]


@rows("diagnosis/false_alarms")
def test_what_is_wrong_is_still_seen(text: str, expected: F) -> None:
    assert read(text).fault_class is expected


ROWS = "\n".join(f"rank {rank}: step time {1900 if rank == 5 else 800 + rank} ms" for rank in range(8))


def test_a_straggler_seen_in_numbers_counts_only_where_the_training_did_not_come_to_its_end() -> None:
    assert read(ROWS).fault_class is F.STRAGGLER
    assert read(f"{ROWS}\nstep 400 loss 2.1\nTraining completed.").fault_class is F.NONE
    named = "Straggler detected: rank 5\nstep 400 loss 2.1\nTraining completed."
    assert read(named).fault_class is F.STRAGGLER


def test_rows_that_count_on_are_moments_and_numbers_far_apart_are_no_members() -> None:
    assert in_turn(["step 1 loss 2", "step 2 loss 2", "step 3 loss 2"])
    assert not in_turn(["step 7 rank 0", "step 7 rank 1", "step 7 rank 2"])
    assert not in_turn(["rank 0 is slow", "step 2", "step 3"])
    assert sparse(["gpu 1213", "gpu 2168", "gpu 2144", "gpu 99"])
    assert not sparse(["rank 0", "rank 9", "rank 64", "rank 127"])
    assert not sparse(["node-1", "node-900"])


def test_what_follows_a_slash_is_a_unit() -> None:
    texts = [f"Tokens/s/GPU: {number} | Time: {27 if number == 3 else 14} ms per step" for number in range(3, 10)]
    assert list(peers(gather(evidence_of([("train.log", texts)])))) == []


def test_what_stands_quoted_is_read_as_if_it_were_not() -> None:
    text = 'Traceback (most recent call last):\n  File "/w/train.py", line 3, in main\n    y = f(x)\n' + SLICED
    plain = read(text)
    for mark in ("    ", "> ", "# ", "    # "):
        quoted = read("\n".join(f"{mark}{line}" for line in text.split("\n")))
        assert (quoted.fault_class, quoted.rule, quoted.confidence) == (F.USER_CODE, plain.rule, plain.confidence)
