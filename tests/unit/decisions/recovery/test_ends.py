"""Exit 0 alone is no success."""

from __future__ import annotations

import pytest

from flows.decisions.recovery.moves import judge_end
from workflows.model.attempt import AttemptView, CoordinatorFacts
from workflows.model.cluster import Pod
from workflows.model.records import AttemptRecord


def view(jobset: str | None = "Completed", step: int | None = None) -> AttemptView:
    pods = (Pod("p", "trainer", 0, "node-0", "Succeeded", exit_code=0, finished_at=77.0),)
    return AttemptView("demo", 1, 99.0, jobset=jobset, pods=pods, coordinator=CoordinatorFacts(98.0, step=step))


def attempt(last: int | None = None, resumed: int | None = None) -> AttemptRecord:
    return AttemptRecord("demo", 1, 0.0, "", last_step=last, resumed_from_step=resumed)


@pytest.mark.parametrize(
    ("sentence", "seen", "record", "steps", "stride", "succeeded"),
    [
        ("the planned last step was seen", view(), attempt(50), 50, 1, True),
        ("the coordinator saw it", view(step=50), attempt(48), 50, 1, True),
        ("it was not seen", view(), attempt(49), 50, 1, False),
        ("a program that reports every tenth step was done", view(), attempt(300), 305, 10, True),
        ("a program that reports every tenth step was not done", view(), attempt(290), 305, 10, False),
        ("no steps were planned", view(), attempt(), 0, 1, True),
        ("not one step was seen", view(), attempt(), 50, 1, False),
        ("there was nothing left to do", view(), attempt(resumed=50), 50, 1, True),
        ("the JobSet failed", view("Failed"), attempt(50), 50, 1, False),
        ("the JobSet is gone", view(None), attempt(50), 0, 1, False),
    ],
)
def test_judge_end(
    sentence: str, seen: AttemptView, record: AttemptRecord, steps: int, stride: int, succeeded: bool
) -> None:
    end = judge_end(seen, record, steps, stride)
    assert (end.succeeded, end.at) == (succeeded, 77.0), sentence
    assert end.why


def test_without_a_pod_that_ended_the_last_look_counts() -> None:
    assert judge_end(AttemptView("demo", 1, 99.0, jobset="Completed"), attempt(), 0).at == 99.0
