"""The incarnations of an attempt, from what the ledger knows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.cli.report import report_text
from deployments.screen.views import status_text
from flows.decisions.accounting.report import curve_of, report_of
from flows.decisions.recovery.incarnations import incarnations, lines
from flows.decisions.views.status import Surroundings, status_of
from flows.pages.run import run_page
from profiles.vocabulary import Action, FaultClass, Mode, RunState
from tests.support.builders.simulated_runs import resolved
from workflows.model.records import AttemptRecord, IncidentRecord, RunRecord, StepRow, Story
from workflows.status import RestartInPlace

LIVE = AttemptRecord("r", 1, 1.0, "first", submitted_at=2.0, running_at=5.0, first_step=1, last_step=60)
AGAIN = IncidentRecord("r-a1-r1", "r", 1, 123.0, 123.5, "rank-failed", FaultClass.PROCESS_KILLED, 0.75,
                       culprits=(("node-1", 1),), step=23,
                       evidence=("rank 1 of p ended with signal 9",), action=Action.RESTART_IN_PLACE,
                       why="restart in place 1: rank 1, from step 20", resumed_at=124.0)  # fmt: skip
SCRATCH = replace(AGAIN, id="r-a1-r2", detected_at=140.0, step=33, why="restart in place 2: the gang, from scratch")
OTHER = replace(AGAIN, id="r-a2-r1", attempt=2)
ENDS = replace(AGAIN, id="r-a1-i1", action=Action.NEW_ATTEMPT)


def rows(*spans: tuple[int, int, float]) -> list[StepRow]:
    """Steps (first, last, when the first was done), a second each."""
    return [StepRow(step, at + step - first) for first, last, at in spans for step in range(first, last + 1)]


def told(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(item["number"], item["from_step"], item["first_step"], item["last_step"]) for item in found]


def test_an_attempt_without_a_restart_has_one() -> None:
    [one] = incarnations(replace(LIVE, resumed_from_step=7), (OTHER, ENDS))
    assert one == {"number": 1, "from_step": 7, "first_step": 1, "last_step": 60, "why": "first",
                   "began_at": "1970-01-01T00:00:05.000Z"}  # fmt: skip
    assert told(incarnations(AttemptRecord("r", 1, 1.0, "first"), ())) == [(1, None, None, None)]
    assert lines([{"number": 1, "incarnations": [one]}]) == []


@pytest.mark.parametrize(
    ("said", "restarts", "steps", "expected"),
    [
        ("steps fall", (AGAIN,), rows((1, 23, 100.0), (21, 60, 124.0)), [(1, None, 1, 23), (2, 20, 21, 60)]),
        ("a step of before was told late: clocks differ", (AGAIN,), rows((1, 24, 100.6), (21, 60, 125.0)),
         [(1, None, 1, 24), (2, 20, 21, 60)]),
        ("nothing fell: it had just saved",
         (replace(AGAIN, step=20, why="restart in place 1: the gang, from step 20"),),
         rows((1, 20, 100.0), (21, 60, 124.0)), [(1, None, 1, 20), (2, 20, 21, 60)]),
        ("two", (AGAIN, SCRATCH), rows((1, 23, 100.0), (21, 33, 124.0), (1, 60, 141.0)),
         [(1, None, 1, 23), (2, 20, 21, 33), (3, None, 1, 60)]),
        ("the newest has made none", (AGAIN, SCRATCH), rows((1, 23, 100.0), (21, 33, 124.0)),
         [(1, None, 1, 23), (2, 20, 21, 33), (3, None, None, None)]),
        ("one between made none", (replace(AGAIN, detected_at=123.6), replace(SCRATCH, detected_at=123.8)),
         rows((1, 23, 100.0), (1, 60, 124.0)), [(1, None, 1, 23), (2, 20, None, None), (3, None, 1, 60)]),
        ("steps were not read", (AGAIN,), [], [(1, None, 1, 23), (2, 20, None, 60)]),
        ("nor made since", (replace(AGAIN, resumed_at=None),), [], [(1, None, 1, 23), (2, 20, None, None)]),
    ],
    ids=lambda item: item.replace(" ", "-") if isinstance(item, str) else "",
)  # fmt: skip
def test_each_restart_begins_one(
    said: str, restarts: tuple[IncidentRecord, ...], steps: list[StepRow], expected: list[tuple[Any, ...]]
) -> None:
    found = incarnations(LIVE, (*restarts[::-1], OTHER, ENDS), steps[::-1])
    assert told(found) == expected, said


@pytest.mark.parametrize(("rank", "pods"), [(1, (0, 0)), (None, (0, 0)), (5, (2, 4))])
@pytest.mark.parametrize("step", [None, 0, 20])
def test_where_one_began_is_read_from_the_words_in_which_it_was_written(
    rank: int | None, pods: tuple[int, int], step: int | None
) -> None:
    restart = RestartInPlace(1, 1.0, 2, "hang", "no progress", rank, "node-1", 23, step, pods=pods)
    written = replace(AGAIN, why=f"restart in place 1: {restart.words}")
    assert incarnations(LIVE, (written,))[1]["from_step"] == step


def story() -> Story:
    run = RunRecord("r", RunState.RUNNING, "attempt 1", "demo", {}, "d", "local", Mode.ACT, 1.0)
    return Story(run, (LIVE,), (AGAIN,))


STEPS = {1: rows((1, 23, 100.0), (21, 60, 124.0))}
LINES = [
    "attempt 1, incarnation 1: steps 1 to 23, from scratch, since 1970-01-01T00:00:05.000Z: first",
    "attempt 1, incarnation 2: steps 21 to 60, from step 20, since 1970-01-01T00:02:03.500Z: restart in place 1: "
    "rank 1, from step 20: rank 1 of p ended with signal 9",
]


def test_status_and_report_show_a_line_each() -> None:
    document = status_of(story(), resolved(), Surroundings(now=200.0, steps=STEPS[1], by_attempt=STEPS))
    assert told(document["attempts"][0]["incarnations"]) == [(1, None, 1, 23), (2, 20, 21, 60)]
    assert [line for line in status_text(document).splitlines() if "incarnation" in line] == LINES
    report = report_of(story(), STEPS, resolved(), 200.0)
    assert report["attempts"][0]["incarnations"] == document["attempts"][0]["incarnations"]
    assert [line for line in report_text(report).splitlines() if "incarnation" in line] == LINES


def test_the_page_shows_them_only_where_ranks_began_again() -> None:
    page = run_page(report_of(story(), STEPS, resolved(), 200.0), curve_of(STEPS))
    assert "Ranks that began again inside their pods" in page
    assert "from step 20" in page
    calm = run_page(report_of(replace(story(), incidents=()), STEPS, resolved(), 200.0), curve_of(STEPS))
    assert "Ranks that began again" not in calm


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0, 50))), st.lists(st.floats(0, 50), max_size=4, unique=True))
def test_every_step_is_in_one_of_them(steps: list[tuple[int, float]], times: list[float]) -> None:
    restarts = [replace(AGAIN, id=f"r-a1-r{n}", detected_at=at) for n, at in enumerate(sorted(times), 1)]
    made = [StepRow(step, at) for step, at in steps]
    found = incarnations(replace(LIVE, last_step=None, first_step=None), restarts, made)
    assert [item["number"] for item in found] == list(range(1, len(times) + 2))
    if made and times:
        ordered = sorted(made, key=lambda row: (row.at, row.step))
        firsts = [item["first_step"] for item in found if item["first_step"] is not None]
        assert firsts[0] == ordered[0].step
        assert [item["last_step"] for item in found if item["first_step"] is not None][-1] == ordered[-1].step
