"""How sure a diagnosis of log files is: surer where nothing contradicts it, and never certain."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.diagnosis.clues import Clue, Weighing, weigh
from flows.decisions.diagnosis.diagnose import MOST, diagnose, unopposed
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass
from tests.support.cases.calibration import Curve, Point, fit

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


@pytest.mark.parametrize("curve", [Curve(-0.7, 0.8), Curve(0.4, 0.6), Curve(0.0, 1.0)])
def test_the_fit_finds_the_curve_that_made_the_answers(curve: Curve) -> None:
    known: list[Point] = []
    for tenth in range(-30, 31):
        odds = tenth / 10
        share = 1 / (1 + math.exp(-(curve.shift + curve.slope * odds)))
        known += [Point(odds, True, 100 * share), Point(odds, False, 100 * (1 - share))]
    assert fit(known) == pytest.approx(curve, abs=0.01)


def test_two_causes_in_one_log_leave_it_less_sure() -> None:
    full, oom = (
        "OSError: [Errno 28] No space left on device",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.",
    )
    alone = diagnose(evidence_of([("a.log", (full,))]))
    both = diagnose(evidence_of([("a.log", (full,)), ("b.log", (oom,))]))
    assert both.confidence < alone.confidence
    assert {kind for kind, _ in both.alternatives} == {F.STORAGE, F.HOST_OOM} - {both.fault_class}


FELL = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: {}) local_rank: 2 (pid: 69966)"


@pytest.mark.parametrize("code", [-11, -9])
def test_what_one_line_says_was_said_once_however_many_read_it(code: int) -> None:
    """A rule and the launcher's report read the same line; a block that says the same again adds nothing."""
    block = ["  rank      : 2 (local_rank: 2)", f"  exitcode  : {code} (pid: 69966)"]
    block += [f"  traceback : Signal {-code} ({'SIGSEGV' if code == -11 else 'SIGKILL'}) received by PID 69966"]
    once = diagnose(evidence_of([("a.log", (FELL.format(code),))]))
    again = diagnose(evidence_of([("a.log", (FELL.format(code), *block))]))
    assert len([clue for clue in once.evidence if clue.fault_class is once.fault_class]) > 1
    assert once.confidence == again.confidence < 0.9


def test_two_rules_on_two_lines_are_two_witnesses() -> None:
    both = (Clue(F.STORAGE, 0.5, "x", "one", file="a", line=1), Clue(F.STORAGE, 0.5, "y", "two", file="a", line=2))
    assert weigh(both, frozenset()).confidence == 0.75
    assert weigh((both[0], replace(both[1], line=1)), frozenset()).confidence == 0.5


@pytest.mark.parametrize("line", [FELL.format(-9), "Killed", "command terminated with exit code 137", "signal: killed"])
def test_a_kill_without_a_reason_may_have_been_memory_s(line: str) -> None:
    found = diagnose(evidence_of([("a.log", (line,))]))
    assert found.fault_class is F.PROCESS_KILLED
    assert [kind for kind, _ in found.alternatives] == [F.HOST_OOM]
    told = diagnose(evidence_of([("a.log", (line, "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0."))]))
    assert told.fault_class is F.HOST_OOM
