"""How sure a diagnosis of log files is: surer where nothing contradicts it, and never certain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.diagnosis.clues import Clue, Weighing
from flows.decisions.diagnosis.diagnose import MOST, diagnose, unopposed
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass

F = FaultClass
CLUE = Clue(F.STORAGE, 0.8, "x", "x")


def weighed(confidence: float, rivals: bool = False, kind: FaultClass = F.STORAGE) -> Weighing:
    telling = (CLUE,) if kind is F.STORAGE else ()
    return Weighing(kind, confidence, ((F.FABRIC, 0.1),) if rivals else (), telling, ())


@pytest.mark.parametrize(("before", "after"), [(0.5, 0.833), (0.75, 0.938), (0.9, 0.978), (0.0, 0.0), (1.0, MOST)])
def test_odds_are_five_times_as_good_where_nothing_contradicts(before: float, after: float) -> None:
    assert unopposed(weighed(before)).confidence == after


@pytest.mark.parametrize("other", [weighed(0.5, rivals=True), weighed(0.9, kind=F.NONE), weighed(1.0, kind=F.UNKNOWN)])
def test_rivals_and_silence_change_nothing(other: Weighing) -> None:
    assert unopposed(other) is other


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_surer_one_stays_the_surer_one(first: float, second: float) -> None:
    low, high = sorted((first, second))
    assert unopposed(weighed(low)).confidence <= unopposed(weighed(high)).confidence <= MOST


def test_two_causes_in_one_log_leave_it_less_sure() -> None:
    full, oom = (
        "OSError: [Errno 28] No space left on device",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.",
    )
    alone = diagnose(evidence_of([("a.log", (full,))]))
    both = diagnose(evidence_of([("a.log", (full,)), ("b.log", (oom,))]))
    assert both.confidence < alone.confidence
    assert {kind for kind, _ in both.alternatives} == {F.STORAGE, F.HOST_OOM} - {both.fault_class}
