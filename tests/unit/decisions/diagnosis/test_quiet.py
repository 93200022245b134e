"""Calm lines after a complaint: how many of them say that it ended nothing."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.retractions import (
    MOST_LINES,
    STRONG_LINES,
    SURVIVED_LINES,
    WEAK_LINES,
    calm_after,
    survived,
)
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass
from tests.support.cases.rows import rows
from workflows.model.attempt import LogLine

F = FaultClass
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu")
CALM = tuple(f"{first} {second} is ready" for first in WORDS for second in WORDS if first != second)
STACK = tuple(f"    frame of {word}" for word in WORDS * 3)


def lines(*texts: str) -> tuple[LogLine, ...]:
    return tuple(LogLine(text, "file", None, "", None, "x.log", number) for number, text in enumerate(texts, 1))


def found(*texts: str) -> FaultClass:
    return diagnose(evidence_of([("train.log", texts)])).fault_class


def test_only_sentences_of_their_own_are_counted() -> None:
    assert calm_after(lines("broken", *CALM[:5]), 1) == 5
    assert calm_after(lines("broken", *STACK, "| a table |", "", "Max Memory : 205 MB"), 1) == 1


def test_enough_calm_lines_outlive_what_stands_before_them() -> None:
    assert survived(lines("broken", *CALM[:SURVIVED_LINES]), {1}) == 2
    assert survived(lines("broken", *CALM[: SURVIVED_LINES - 1]), {1}) == 0
    assert survived(lines("broken", *STACK), {1}) == 0
    assert survived(lines("broken", *(CALM * 4)[: MOST_LINES + 1]), {1}) == 0, "others talk on"
    assert survived(lines("broken", *CALM[:SURVIVED_LINES]), set()) == 0
    assert survived(lines("broken", *CALM[:SURVIVED_LINES], "broken"), {1, SURVIVED_LINES + 2}) == 0


@pytest.mark.parametrize(
    ("complaint", "enough"),
    [
        ("the extension failed to load", WEAK_LINES),
        ("the helper crashed", STRONG_LINES),
        ("/usr/bin/env: python2: No such file or directory", SURVIVED_LINES),
    ],
)
def test_a_failure_stands_where_too_little_follows(complaint: str, enough: int) -> None:
    assert found("begin", complaint, *CALM[:enough]) is F.NONE
    assert found("begin", complaint, *CALM[: enough - 1]) is not F.NONE
    assert found("begin", complaint, *STACK) is not F.NONE


@rows("diagnosis/quiet")
def test_a_good_end_after_a_mere_refusal_is_believed(complaint: str, healthy: bool) -> None:
    told = ("epoch: 1, step: 100, loss: 2.31", "epoch: 1, step: 200, loss: 2.11", complaint, "Done.")
    assert (found(*told) is F.NONE) is healthy
    assert found("epoch: 1, step: 100, loss: 2.31", "the engine failed") is F.UNKNOWN
