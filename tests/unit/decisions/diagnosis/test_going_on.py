"""What shows that a program went on: counters that grow, bars, results, tables, and good ends."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.retractions import LAST_LINES, position, went_on_until
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass
from tests.support.cases.rows import rows
from workflows.model.attempt import LogLine

F = FaultClass


def lines(*texts: str) -> tuple[LogLine, ...]:
    return tuple(LogLine(text, "file", None, "", None, "x.log", number) for number, text in enumerate(texts, 1))


@rows("diagnosis/going_on")
def test_a_counter_that_grows_proves_the_line_before_its_last(texts: tuple[str, str]) -> None:
    first, second = texts
    assert went_on_until(lines("broken", first, second)) == 2
    assert went_on_until(lines("broken", first)) == 0
    assert went_on_until(lines("broken", first, first)) == 0, "the same once more is no progress"


@rows("diagnosis/going_on")
def test_what_counts_no_progress_proves_nothing(texts: tuple[str, str]) -> None:
    assert went_on_until(lines("broken", *texts)) == 0


def test_nothing_before_the_line_in_question_counts() -> None:
    told = lines("Epoch 1/5", "Epoch 2/5", "Epoch 3/5", "broken", "Epoch 4/5")
    assert went_on_until(told) == 3
    assert went_on_until(told, since=4) == 0


@rows("diagnosis/going_on")
def test_a_good_end_counts_at_the_end_alone(text: str) -> None:
    assert went_on_until(lines("broken", text, "bye")) == 2
    assert went_on_until(lines("broken", text, *("more",) * LAST_LINES)) == 0


@pytest.mark.parametrize(
    "text", ["Job finished at Mon Mar  4", "done", "wandb: Run summary:", "Installation completed", "best effort: 3"]
)
def test_what_shells_and_trackers_say_whatever_happened_is_no_good_end(text: str) -> None:
    assert went_on_until(lines("broken", text)) == 0


def test_the_place_of_a_line() -> None:
    assert position("nothing here") is None
    assert position("epoch 3 loss 0.5") == ("epoch", (3, 0, 5))
    assert position("epoch 3 failed") is None


def read(*texts: str) -> FaultClass:
    return diagnose(evidence_of([("train.log", texts)])).fault_class


RAISED = (
    "Traceback (most recent call last):",
    '  File "/app/eval.py", line 81, in run',
    "    score = metric(pred, ref)",
    "ZeroDivisionError: division by zero",
)


def test_an_exception_is_outlived_by_whatever_goes_on() -> None:
    assert read(*RAISED) is F.USER_CODE
    assert read(*RAISED, "evaluated 100/500", "evaluated 200/500") is F.NONE
    assert read("evaluated 100/500", "evaluated 200/500", *RAISED) is F.USER_CODE
    assert read("evaluated 100/500", *RAISED, "evaluated 101/500") is F.USER_CODE, "a bar that is drawn once more"


@rows("diagnosis/going_on")
def test_a_line_that_takes_itself_back(text: str, expected: FaultClass) -> None:
    assert read(text) is expected


def test_a_raised_exception_takes_nothing_back() -> None:
    raised = (*RAISED[:3], "ValueError: bf16 is not supported; using it needs Ampere, it cannot be skipped")
    assert read(*raised) is not F.NONE
