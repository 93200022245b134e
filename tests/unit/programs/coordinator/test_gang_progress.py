"""When a whole gang stands still to load or to save a checkpoint, from what its ranks report."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.programs.coordinator.progress import STALLS, Moment, Progress, apply_report
from workflows.programs.coordinator.store import NumberedRows
from workflows.wire import CheckpointSeen, PhaseSeen, StepSeen

Report = StepSeen | PhaseSeen | CheckpointSeen


def moments(*reports: Report) -> list[tuple[str, float]]:
    progress, found = Progress(), list[Moment]()
    for report in reports:
        learned = apply_report(progress, report)
        progress = learned.progress
        found += learned.moments
    return [(moment.kind, moment.at) for moment in found]


def phase(name: str, at: float, rank: int = 0) -> PhaseSeen:
    return PhaseSeen(name, at, rank)


def step(number: int, at: float, rank: int = 0) -> StepSeen:
    return StepSeen(number, at, rank)


SAVED = [("checkpoint-begin", 2.0), ("checkpoint-end", 3.0)]
LOADED = [("restore-begin", 2.0), ("restore-end", 3.0)]
EVALUATED = [("evaluation-begin", 3.0), ("evaluation-end", 5.0)]
TAKEN_BACK = [("checkpoint-begin", 2.0), ("checkpoint-end", 2.0)]


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([step(1, 1.0), phase("checkpoint", 2.0), phase("step", 3.0), step(2, 4.0)], SAVED),
        ([step(1, 1.0), phase("checkpoint", 2.0), phase("evaluation", 3.0), step(2, 5.0)], [*SAVED, *EVALUATED]),
        ([step(1, 1.0), phase("checkpoint", 2.0), phase("ended", 3.0)], SAVED),
        ([phase("init", 1.0), phase("restore", 2.0), phase("init", 3.0), step(21, 9.0)], LOADED),
        ([phase("restore", 2.0), step(21, 3.0)], LOADED),
        ([phase("restore", 2.0), phase("checkpoint", 3.0)], [*LOADED, ("checkpoint-begin", 3.0)]),
        ([phase("checkpoint", 2.0)], SAVED[:1]),
        ([phase("checkpoint", 2.0), phase("init", 3.0)], TAKEN_BACK),
        ([phase("checkpoint", 2.0), phase("restore", 3.0)], [*TAKEN_BACK, ("restore-begin", 3.0)]),
        ([phase("checkpoint", 2.0), phase("step", 1.9)], TAKEN_BACK),
        ([phase("init", 1.0), step(1, 2.0), step(2, 3.0)], []),
    ],
    ids=["saved", "then evaluated", "then ended", "loaded", "to the first step", "load then save", "still saving",
         "ranks started anew while saving", "loads anew while saving", "clock set back", "neither"],
)  # fmt: skip
def test_a_stall_reaches_to_what_comes_next(reports: list[Report], expected: list[tuple[str, float]]) -> None:
    assert moments(*reports) == expected


def test_every_rank_prints_the_same_and_the_lowest_counts() -> None:
    begun = [phase("restore", 2.0 + rank / 10, rank) for rank in (2, 0, 1)]
    over = [phase("init", 5.0 + rank / 10, rank) for rank in (2, 0, 1)]
    assert moments(*begun, *over) == [("restore-begin", 2.2), ("restore-end", 5.0)]


def test_one_rank_says_when_it_saves_and_another_reports_the_steps() -> None:
    """Megatron: saves are told by rank 0, steps by the last one; the line of the step before may come later."""
    told = [phase("checkpoint", 2.0), step(10, 2.1, 7), phase("step", 3.0), step(11, 4.0, 7)]
    assert moments(step(9, 1.0, 7), *told) == SAVED


def test_a_save_whose_end_nobody_tells_is_over_with_the_second_step() -> None:
    told = [phase("checkpoint", 2.0), step(10, 2.1, 7), step(10, 2.2, 7), step(11, 3.0, 7), step(12, 4.0, 7)]
    again = [phase("checkpoint", 5.0), step(13, 6.0, 7), step(14, 7.0, 7)]
    assert moments(step(9, 1.0, 7), *told, *again) == [*SAVED, ("checkpoint-begin", 5.0), ("checkpoint-end", 7.0)]


def test_ranks_above_the_reporting_one_are_not_asked() -> None:
    assert moments(step(1, 1.0), phase("checkpoint", 2.0, rank=3), phase("step", 3.0, rank=3)) == []


REPORTS = st.lists(
    st.one_of(
        st.builds(StepSeen, st.integers(1, 9), st.floats(0, 100), st.integers(0, 3)),
        st.builds(
            PhaseSeen,
            st.sampled_from(["init", "step", "ended", *STALLS]),
            st.floats(0, 100),
            st.integers(0, 3),
        ),
    ),
    max_size=30,
)


@given(REPORTS)
def test_beginnings_and_ends_take_turns(reports: list[Report]) -> None:
    found = moments(*reports)
    for (kind, at), (following, then) in pairwise(found):
        if kind.endswith("-begin"):
            assert following == kind.replace("-begin", "-end")
            assert then >= at
        else:
            assert following.endswith("-begin")


@given(st.integers(1, 20), st.integers(0, 60), st.integers(1, 7))
def test_numbered_rows_are_read_in_portions_without_a_gap(limit: int, count: int, portion: int) -> None:
    rows: NumberedRows[int] = NumberedRows(limit)
    seen: list[int] = []
    following = 0
    for number in range(count):
        rows.append(number)
        if number % max(1, limit // 2) == 0:  # a reader that keeps up
            while (answer := rows.since(following, portion))[1]:
                following = answer[0]
                seen += answer[1]
    while (answer := rows.since(following, portion))[1]:
        following = answer[0]
        seen += answer[1]
    assert seen == list(range(count))
    assert following == rows.since(following + 1000, portion)[0] == count


def test_a_reader_that_is_late_gets_what_is_left() -> None:
    rows: NumberedRows[int] = NumberedRows(8)
    for number in range(10):
        rows.append(number)
    assert rows.since(0, 99) == (10, [2, 3, 4, 5, 6, 7, 8, 9])
    rows.replace_last(99)
    assert rows.since(9, 99) == (10, [99])
    empty: NumberedRows[int] = NumberedRows(8)
    empty.replace_last(5)
    assert empty.since(0, 9) == (0, [])
