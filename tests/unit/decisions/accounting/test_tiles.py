"""Tiles of wall time: exact cover, definitions, and totals."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.decisions.accounting.tiles import TileSpan, absences, merge, sliding, tile, to_json, totals, window
from profiles.vocabulary import Tile
from workflows.model.records import AttemptRecord, MarkRecord, StepRow

T = Tile


def attempt(number: int, planned: float, **facts: object) -> AttemptRecord:
    return AttemptRecord("demo", number, planned, "", **facts)  # type: ignore[arg-type]


def mark(number: int, kind: str, at: float, detail: str = "") -> MarkRecord:
    return MarkRecord("demo", number, kind, at, detail)


def rows(first: int, last: int, start: float, seconds: float = 1.0) -> list[StepRow]:
    """Steps of equal length; `start` is when the first one begins."""
    return [StepRow(step, start + (step - first + 1) * seconds) for step in range(first, last + 1)]


def seconds_of(spans: tuple[TileSpan, ...]) -> dict[Tile, float]:
    return {state: round(value, 6) for state, value in totals(spans, 1).by_state.items()}


def a_lost_node() -> tuple[list[AttemptRecord], list[MarkRecord], dict[int, list[StepRow]]]:
    """Ten steps, the node dies two steps past the checkpoint of step 8, the next attempt does 9 and 10 again."""
    attempts = [
        attempt(1, 0.0, submitted_at=1.0, applied_at=2.0, running_at=3.0, ended_at=16.0),
        attempt(2, 17.0, submitted_at=17.5, applied_at=18.0, running_at=19.0, resumed_from_step=8),
    ]
    marks = [mark(1, "detected", 15.0), mark(1, "diagnosed", 15.5), mark(1, "decided", 16.0)]
    return attempts, marks, {1: rows(1, 10, 4.0), 2: rows(9, 12, 20.0)}


def test_every_second_of_a_run_that_lost_a_node_has_its_state() -> None:
    spans = tile(*a_lost_node(), 0.0, 24.0)
    assert seconds_of(spans) == {
        T.INIT: 1.0 + 1.0,  # until the submission, and from running to the first step
        T.PREFLIGHT: 1.0 + 0.5,
        T.QUEUE: 1.0,
        T.PRODUCTIVE: 8.0 + 4.0,
        T.ROLLBACK: 2.0,
        T.DETECT: 1.0,
        T.DIAGNOSE: 1.0,
        T.RESTART: 1.5 + 2.0,
    }


def test_goodput_has_the_promised_shape() -> None:
    goodput = totals(tile(*a_lost_node(), 0.0, 24.0), 2).goodput()
    assert goodput["wall_seconds"] == 24.0
    assert goodput["productive_gpu_seconds"] == 24.0
    assert goodput["ettr"] == 0.5
    assert goodput["ettr_without_queue"] == round(24 / 46, 6)
    assert goodput["lost"]["rollback"] == 4.0
    assert "productive" not in goodput["lost"]
    assert math.isclose(sum(goodput["lost"].values()) + goodput["productive_gpu_seconds"], 48.0)


def test_only_the_first_copies_of_steps_done_again_are_lost() -> None:
    steps = {1: rows(1, 10, 0.0), 2: rows(6, 8, 20.0), 3: rows(7, 9, 30.0)}
    attempts = [attempt(number, at) for number, at in ((1, 0.0), (2, 15.0), (3, 25.0))]
    done = seconds_of(tile(attempts, [], steps, 0.0, 33.0))
    assert done[T.ROLLBACK] == 5.0 + 2.0  # 6 to 10 of the first, 7 and 8 of the second
    assert done[T.PRODUCTIVE] == 5.0 + 1.0 + 3.0


def test_a_restart_in_place_is_no_slow_step() -> None:
    steps = {1: [*rows(1, 6, 0.0), *rows(5, 8, 9.0)]}
    done = seconds_of(tile([attempt(1, 0.0)], [], steps, 0.0, 13.0))
    assert done == {T.PRODUCTIVE: 8.0, T.ROLLBACK: 2.0, T.RESTART: 3.0}


def test_a_restart_in_place_that_was_told_of_says_when_the_fault_was_noticed() -> None:
    steps = {1: [*rows(1, 6, 0.0), *rows(5, 8, 9.0)]}
    marks = [mark(1, "restart-in-place", 7.0), mark(1, "restore-begin", 7.5), mark(1, "restore-end", 8.5)]
    spans = tile([attempt(1, 0.0)], marks, steps, 0.0, 13.0)
    again = [(T.DETECT, 1.0), (T.RESTART, 0.5), (T.RESTORE, 1.0), (T.RESTART, 0.5)]
    assert states(spans) == [(T.PRODUCTIVE, 4.0), (T.ROLLBACK, 2.0), *again, (T.PRODUCTIVE, 4.0)]


def test_a_restart_right_after_a_save_loses_no_step_and_is_no_slow_one() -> None:
    steps = {1: [*rows(1, 4, 0.0), *rows(5, 8, 7.0)]}
    spans = tile([attempt(1, 0.0)], [mark(1, "restart-in-place", 4.5)], steps, 0.0, 11.0)
    assert states(spans) == [(T.PRODUCTIVE, 4.0), (T.DETECT, 0.5), (T.RESTART, 2.5), (T.PRODUCTIVE, 4.0)]


@pytest.mark.parametrize("told", [5.9, 6.0, 9.5])
def test_a_restart_told_of_by_another_clock_stays_with_the_steps_that_come_again(told: float) -> None:
    steps = {1: [*rows(1, 6, 0.0), *rows(5, 8, 9.0)]}
    done = seconds_of(tile([attempt(1, 0.0)], [mark(1, "restart-in-place", told)], steps, 0.0, 13.0))
    assert done == {T.PRODUCTIVE: 8.0, T.ROLLBACK: 2.0, T.RESTART: 3.0}


def test_after_the_last_step_a_restart_in_place_lasts_until_it_fails_too() -> None:
    marks = [mark(1, "restart-in-place", 5.0), mark(1, "detected", 8.0), mark(1, "decided", 9.0)]
    steps = {1: rows(1, 4, 0.0)}
    done = states(tile([attempt(1, 0.0)], marks, steps, 0.0, 10.0))
    assert done == [(T.PRODUCTIVE, 4.0), (T.DETECT, 1.0), (T.RESTART, 3.0), (T.DIAGNOSE, 1.0), (T.RESTART, 1.0)]
    done = states(tile([attempt(1, 0.0)], marks[:1], steps, 0.0, 10.0))
    assert done == [(T.PRODUCTIVE, 4.0), (T.DETECT, 1.0), (T.RESTART, 5.0)], "it is not over yet"
    done = states(tile([attempt(1, 0.0, running_at=1.0)], [mark(1, "restart-in-place", 5.0)], {}, 0.0, 10.0))
    assert done == [(T.INIT, 5.0), (T.RESTART, 5.0)], "before its first step"


def test_two_restarts_in_place_in_a_row_are_one_way_back() -> None:
    marks = [mark(1, "restart-in-place", 5.0), mark(1, "restart-in-place", 6.5)]
    steps = {1: [*rows(1, 4, 0.0), *rows(3, 6, 9.0)]}
    spans = tile([attempt(1, 0.0)], marks, steps, 0.0, 13.0)
    assert states(spans)[2:] == [(T.DETECT, 1.0), (T.RESTART, 4.0), (T.PRODUCTIVE, 4.0)]


def test_what_exceeds_the_median_step_is_lost_to_stragglers_and_a_marked_save_is_a_stall() -> None:
    times = [1.0, 2.0, 3.0, 6.0, 7.0, 12.0, 13.0]
    steps = {1: [StepRow(step, at) for step, at in enumerate(times, 1)]}
    marks = [mark(1, "checkpoint-begin", 8.0), mark(1, "checkpoint-end", 11.5)]
    done = seconds_of(tile([attempt(1, 0.0)], marks, steps, 0.0, 13.0))
    assert done == {T.PRODUCTIVE: 7.0, T.STRAGGLER_LOSS: 2.0 + 0.5, T.CHECKPOINT_STALL: 3.5}


def saves(number: int, *found: tuple[float, float]) -> list[MarkRecord]:
    kinds = ("checkpoint-begin", "checkpoint-end")
    return [mark(number, kind, at) for pair in found for kind, at in zip(kinds, pair, strict=True)]


def states(spans: tuple[TileSpan, ...]) -> list[tuple[Tile, float]]:
    return [(span.state, round(span.end - span.begin, 6)) for span in spans]


def test_a_save_stands_where_it_was_and_also_after_the_last_step() -> None:
    steps = {1: [*rows(1, 3, 0.0), *rows(4, 6, 5.0)]}
    spans = tile([attempt(1, 0.0)], saves(1, (3.0, 5.0), (8.5, 9.5)), steps, 0.0, 10.0)
    expected = [(T.PRODUCTIVE, 3.0), (T.CHECKPOINT_STALL, 2.0), (T.PRODUCTIVE, 3.0), (T.OTHER, 0.5)]
    assert states(spans) == [*expected, (T.CHECKPOINT_STALL, 1.0), (T.OTHER, 0.5)]


def test_a_save_after_the_last_step_ends_with_what_was_noticed() -> None:
    marks = [*saves(1, (3.5, 9.0)), mark(1, "detected", 6.0), mark(1, "decided", 7.0)]
    done = states(tile([attempt(1, 0.0)], marks, {1: rows(1, 3, 0.0)}, 0.0, 10.0))
    assert done[1:] == [(T.DETECT, 0.5), (T.CHECKPOINT_STALL, 2.5), (T.DIAGNOSE, 1.0), (T.RESTART, 3.0)]


def test_where_every_step_is_saved_the_programs_own_step_time_is_the_usual_one() -> None:
    steps = {1: [StepRow(step, 3.0 * step - 2.0, 1.0) for step in range(1, 6)]}
    marks = saves(1, *((3.0 * step + 1.0, 3.0 * step + 3.0) for step in range(4)))
    assert seconds_of(tile([attempt(1, 0.0)], marks, steps, 0.0, 13.0)) == {T.PRODUCTIVE: 5.0, T.CHECKPOINT_STALL: 8.0}


def test_a_save_that_did_not_make_its_step_longer_stalled_nobody() -> None:
    done = seconds_of(tile([attempt(1, 0.0)], saves(1, (3.1, 4.0)), {1: rows(1, 9, 0.0)}, 0.0, 9.0))
    assert done == {T.PRODUCTIVE: 9.0}


def pauses(word: str, *found: tuple[float, float]) -> list[MarkRecord]:
    return [mark(1, f"{word}-{edge}", at) for pair in found for edge, at in zip(("begin", "end"), pair, strict=True)]


@pytest.mark.parametrize(("word", "state"), [("evaluation", T.EVAL), ("data", T.DATA_STALL)])
def test_ranks_that_evaluate_or_wait_for_data_are_told_apart_from_stragglers(word: str, state: Tile) -> None:
    steps = {1: [*rows(1, 4, 0.0), *rows(5, 8, 7.0)]}
    done = seconds_of(tile([attempt(1, 0.0)], pauses(word, (4.0, 7.0)), steps, 0.0, 11.0))
    assert done == {T.PRODUCTIVE: 8.0, state: 3.0}


def test_where_pauses_overlap_the_save_counts_first_and_nothing_twice() -> None:
    steps = {1: [*rows(1, 4, 0.0), *rows(5, 8, 7.0)]}
    marks = [*saves(1, (4.0, 6.0)), *pauses("evaluation", (5.0, 7.0)), *pauses("data", (4.0, 7.0))]
    done = seconds_of(tile([attempt(1, 0.0)], marks, steps, 0.0, 11.0))
    assert done == {T.PRODUCTIVE: 8.0, T.CHECKPOINT_STALL: 2.0, T.EVAL: 1.0}


def test_gpus_that_stand_by_outside_of_steps_are_in_standby() -> None:
    done = seconds_of(tile([attempt(1, 0.0)], pauses("standby", (2.0, 5.0)), {1: rows(1, 4, 4.0)}, 0.0, 8.0))
    assert done == {T.INIT: 2.0, T.STANDBY: 2.0, T.PRODUCTIVE: 4.0}


def test_every_state_can_come_about() -> None:
    attempts, marks, steps = a_resume(resume_path="/c/step-8")
    steps = {**steps, 2: [*rows(9, 12, 22.0), *rows(13, 16, 31.0), StepRow(17, 37.0, 1.5), StepRow(18, 38.0, 1.0)]}
    more = [
        *saves(2, (26.0, 27.0)),
        mark(1, "waiting-begin", 16.1, "approval"),
        mark(1, "waiting-end", 16.2, "approval"),
    ]
    more += [replace(item, attempt=2) for item in (*pauses("evaluation", (27.0, 29.0)), *pauses("data", (29.0, 31.0)))]
    spans = tile(attempts, [*marks, *more, *pauses("standby", (16.3, 16.4))], steps, 0.0, 40.0)
    assert set(seconds_of(spans)) == set(Tile)


def a_resume(**facts: object) -> tuple[list[AttemptRecord], list[MarkRecord], dict[int, list[StepRow]]]:
    """As `a_lost_node`, but its second attempt runs from 19.0 and makes its first step from 22.0 to 23.0."""
    attempts, marks, steps = a_lost_node()
    return [attempts[0], replace(attempts[1], **facts)], marks, {**steps, 2: rows(9, 12, 22.0)}  # type: ignore[arg-type]


def restore_of(attempts: list[AttemptRecord], marks: list[MarkRecord], steps: dict[int, list[StepRow]]) -> list[object]:
    spans = tile(attempts, marks, steps, 0.0, 26.0)
    assert round(sum(seconds_of(spans).values()), 6) == 26.0
    return [(span.attempt, span.begin, span.end) for span in spans if span.state is T.RESTORE]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([(2, "begin", 20.0), (2, "end", 21.5)], [(2, 20.0, 21.5)]),
        ([(2, "begin", 20.0), (2, "end", 22.5)], [(2, 20.0, 22.0)]),  # a step is a step
        ([(2, "begin", 20.0)], [(2, 20.0, 22.0)]),
        ([(1, "begin", 3.2), (2, "begin", 20.0), (2, "end", 21.0)], [(1, 3.2, 4.0), (2, 20.0, 21.0)]),
        ([(2, "end", 21.0)], []),
    ],
)
def test_a_restore_stays_in_its_attempt(told: list[tuple[int, str, float]], expected: list[object]) -> None:
    attempts, marks, steps = a_resume(resume_path="/c/step-8")
    marks = [*marks, *(mark(number, f"restore-{edge}", at) for number, edge, at in told)]
    assert restore_of(attempts, marks, steps) == expected


def test_a_program_that_says_nothing_restores_from_its_start_to_its_first_step() -> None:
    assert restore_of(*a_resume(resume_path="/c/step-8")) == [(2, 19.0, 22.0)]
    assert restore_of(*a_resume()) == [], "it was not told to go on from a checkpoint"
    assert restore_of(*a_resume(resume_path="/c/step-8", running_at=None)) == []
    attempts, marks, _ = a_resume(resume_path="/c/step-8")
    assert restore_of(attempts, marks, {1: rows(1, 10, 4.0)}) == [], "its first step is still to come"


def test_a_hang_in_a_restore_is_a_restore_until_it_is_noticed() -> None:
    marks = [mark(1, "restore-begin", 4.0), mark(1, "detected", 7.0), mark(1, "decided", 8.0)]
    done = states(tile([attempt(1, 0.0, running_at=3.0)], marks, {}, 0.0, 9.0))
    assert done == [(T.INIT, 4.0), (T.RESTORE, 3.0), (T.DIAGNOSE, 1.0), (T.RESTART, 1.0)]


def test_time_outside_of_the_reported_step_time_is_not_the_stragglers() -> None:
    times = [1.0, 2.0, 3.0, 6.0]
    steps = {1: [StepRow(step, at, 1.0) for step, at in enumerate(times, 1)]}
    assert seconds_of(tile([attempt(1, 0.0)], [], steps, 0.0, 6.0)) == {T.PRODUCTIVE: 4.0, T.OTHER: 2.0}


def test_waiting_and_pausing_are_told_apart() -> None:
    attempts, marks, steps = a_lost_node()
    waits = [
        mark(2, "waiting-begin", 16.2, "nodes"),
        mark(2, "waiting-end", 16.4),
        mark(1, "waiting-begin", 16.5, "approval"),
        mark(1, "waiting-end", 16.8, "approval"),
    ]
    done = seconds_of(tile(attempts, [*marks, *waits], steps, 0.0, 24.0))
    assert (done[T.QUEUE], done[T.PAUSED]) == (1.2, 0.3)
    assert round(sum(done.values()), 6) == 24.0


def test_a_pause_while_steps_are_made_costs_nothing() -> None:
    attempts, marks, steps = a_lost_node()
    done = seconds_of(tile(attempts, [*marks, mark(1, "paused", 5.0), mark(1, "unpaused", 9.0)], steps, 0.0, 24.0))
    assert T.PAUSED not in done


def test_a_run_without_anything_is_one_tile() -> None:
    assert tile([], [], {}, 5.0, 9.0) == (TileSpan(5.0, 9.0, 0, T.INIT),)
    assert tile([], [], {}, 5.0, 5.0) == ()
    assert totals((), 8).goodput()["ettr"] == 0.0


def test_json_has_the_promised_keys() -> None:
    spans = tile(*a_lost_node(), 0.0, 24.0)
    first = to_json(spans, 4)[0]
    assert first == {"from": 0.0, "to": 1.0, "attempt": 1, "state": "init", "gpu_seconds": 4.0}


def test_the_last_hour_slides_over_the_run() -> None:
    # Ten productive hours, two hours of nothing, ten productive hours: steps of six minutes.
    steps = {1: [*rows(1, 100, 0.0, 360.0), *rows(101, 200, 43_200.0, 360.0)]}
    spans = tile([attempt(1, 0.0, ended_at=79_200.0)], [], steps, 0.0, 79_200.0)
    found = sliding(spans, 3600.0, points=22)
    assert [at / 3600 for at, _ in found] == list(range(1, 23))
    shares = [round(share, 2) for _, share in found]
    assert shares[:10] == [1.0] * 10
    assert shares[10:13] == [0.1, 0.0, 0.9], "the long step's own six minutes come first"
    assert shares[13:] == [1.0] * 9
    assert sliding(()) == ()


def test_a_replica_group_that_begins_again_takes_its_share_of_the_gpus_and_no_more() -> None:
    steps = {1: rows(1, 10, 0.0)}
    away = [mark(1, "replica-begin", 4.0, "1 0.25 rank 3"), mark(1, "replica-end", 6.5, "1")]
    spans = tile([attempt(1, 0.0)], away, steps, 0.0, 10.0)
    found = totals(spans, 8)
    assert found.by_state == {T.PRODUCTIVE: pytest.approx(80.0 - 5.0), T.RESTART: pytest.approx(5.0)}
    assert [(span.begin, span.end, span.away) for span in spans] == [
        (0.0, 4.0, 0.0),
        (4.0, 6.5, 0.25),
        (6.5, 10.0, 0.0),
    ]
    told = to_json(spans, 8)
    assert [item.get("restart_gpu_seconds") for item in told] == [None, 5.0, None]
    assert sum(item["gpu_seconds"] + item.get("restart_gpu_seconds", 0.0) for item in told) == pytest.approx(80.0)
    assert sliding(spans, 10.0, points=1) == ((10.0, pytest.approx(75.0 / 80.0)),)


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ([(1, "replica-begin", 4.0, "1 0.5")], [(4.0, 10.0, 1, 0.5)]),
        ([(1, "replica-begin", 4.0, "1 0.5"), (1, "ended", 7.0, "")], [(4.0, 7.0, 1, 0.5)]),
        ([(1, "replica-begin", 4.0, "1 0.5"), (1, "detected", 6.0, "")], [(4.0, 6.0, 1, 0.5)]),
        ([(1, "replica-begin", 4.0, "1 0.5"), (1, "replica-end", 5.0, "2")], [(4.0, 10.0, 1, 0.5)]),
        ([(1, "replica-begin", 4.0, "1 0.5"), (2, "replica-end", 5.0, "1")], [(4.0, 10.0, 1, 0.5)]),
        ([(1, "replica-begin", 4.0, "1 much")], []),
        ([(1, "replica-begin", 4.0, "1 1.5")], []),
        ([(1, "replica-begin", 4.0, "1 0.0 of another role")], []),
    ],
)
def test_how_long_a_replica_group_is_away(marks: list[tuple[int, str, float, str]], expected: list[object]) -> None:
    assert absences([mark(*item) for item in marks], 10.0) == expected


def test_two_groups_at_once_are_away_together() -> None:
    away = [mark(1, "replica-begin", 2.0, "1 0.75"), mark(1, "replica-begin", 4.0, "2 0.75")]
    spans = tile([attempt(1, 0.0)], away, {1: rows(1, 6, 0.0)}, 0.0, 6.0)
    assert [span.away for span in spans] == [0.0, 0.75, 1.0], "never more than there are"


def test_different_gangs_cannot_be_merged() -> None:
    with pytest.raises(ValueError, match="gpus: cannot merge totals over 1 and 2"):
        merge(totals((), 1), totals((), 2))


TIMES = st.floats(-50, 150)
MAYBE = st.none() | TIMES
ATTEMPTS = st.lists(
    st.builds(
        lambda planned, submitted, applied, running, ended: attempt(
            1, planned, submitted_at=submitted, applied_at=applied, running_at=running, ended_at=ended
        ),
        TIMES,
        MAYBE,
        MAYBE,
        MAYBE,
        MAYBE,
    ),
    max_size=4,
).map(lambda found: [replace(item, number=number) for number, item in enumerate(found, 1)])
KINDS = ("submitted", "detected", "diagnosed", "decided", "ended", "fault", "checkpoint-begin", "checkpoint-end",
         "waiting-begin", "waiting-end", "paused", "unpaused", "restore-begin", "restore-end", "evaluation-begin",
         "evaluation-end", "data-begin", "data-end", "standby-begin", "standby-end", "restart-in-place",
         "replica-begin", "replica-end")  # fmt: skip
DETAILS = st.sampled_from(("", "1 0.5", "2 0.25", "1", "2"))
MARKS = st.lists(st.builds(mark, st.integers(1, 4), st.sampled_from(KINDS), TIMES, DETAILS), max_size=12)
ROWS = st.lists(
    st.builds(StepRow, st.integers(0, 12), TIMES, st.none() | st.floats(0, 30) | st.just(math.nan)), max_size=10
)
STEPS = st.dictionaries(st.integers(1, 4), ROWS, max_size=4)


@settings(max_examples=300, deadline=None)
@given(ATTEMPTS, MARKS, STEPS, st.floats(0, 50), st.floats(0, 100), st.integers(1, 16))
def test_tiles_cover_the_run_exactly_whatever_the_clocks_say(
    attempts: list[AttemptRecord],
    marks: list[MarkRecord],
    steps: dict[int, list[StepRow]],
    begin: float,
    length: float,
    gpus: int,
) -> None:
    end = begin + length
    spans = tile(attempts, marks, steps, begin, end)
    assert spans == tile(attempts, marks[::-1], {number: mine[::-1] for number, mine in steps.items()}, begin, end)
    if not spans:
        assert length < 1e-8
        return
    assert (spans[0].begin, spans[-1].end) == (begin, end)
    assert all(span.end > span.begin for span in spans)
    assert all(earlier.end == later.begin for earlier, later in pairwise(spans))
    summed = totals(spans, gpus)
    assert math.isclose(sum(summed.by_state.values()), length * gpus, rel_tol=1e-9, abs_tol=1e-6)
    assert 0 <= summed.ettr <= 1
    assert summed.ettr <= summed.ettr_without_queue <= 1


@settings(max_examples=200, deadline=None)
@given(ROWS, st.lists(st.floats(0, 100), max_size=20), st.floats(0, 100))
def test_there_is_no_more_stall_than_was_saved(mine: list[StepRow], moments: list[float], end: float) -> None:
    moments = sorted(moments)[: len(moments) // 2 * 2]
    pairs = list(zip(moments[::2], moments[1::2], strict=True))
    done = totals(tile([attempt(1, 0.0)], saves(1, *pairs), {1: mine}, 0.0, end), 1).by_state
    assert done.get(T.CHECKPOINT_STALL, 0.0) <= sum(closed - opened for opened, closed in pairs) + 1e-6


@settings(max_examples=100, deadline=None)
@given(ATTEMPTS, MARKS, STEPS, st.floats(0, 1))
def test_merging_two_halves_equals_accounting_the_whole(
    attempts: list[AttemptRecord], marks: list[MarkRecord], steps: dict[int, list[StepRow]], share: float
) -> None:
    spans = tile(attempts, marks, steps, 0.0, 100.0)
    middle = 100.0 * share
    whole = totals(spans, 3)
    both = merge(totals(window(spans, 0.0, middle), 3), totals(window(spans, middle, 100.0), 3))
    assert math.isclose(both.wall_seconds, whole.wall_seconds)
    for state in Tile:
        assert math.isclose(both.by_state.get(state, 0.0), whole.by_state.get(state, 0.0), abs_tol=1e-6)


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 30), st.integers(1, 29), st.floats(0.01, 5))
def test_a_step_that_was_done_twice_counts_once(last: int, resume: int, seconds: float) -> None:
    resume = min(resume, last - 1)
    first = rows(1, last, 0.0, seconds)
    begin = first[-1].at
    second = rows(resume + 1, last, begin, seconds)
    attempts = [attempt(1, 0.0, ended_at=begin), attempt(2, begin)]
    done = totals(tile(attempts, [], {1: first, 2: second}, 0.0, second[-1].at), 1).by_state
    assert math.isclose(done.get(T.ROLLBACK, 0.0), (last - resume) * seconds, rel_tol=1e-6, abs_tol=1e-6)
    assert math.isclose(done[T.PRODUCTIVE] + done.get(T.STRAGGLER_LOSS, 0.0), last * seconds, rel_tol=1e-6)


def test_short_steps_read_in_one_go_take_the_time_since_the_last_look() -> None:
    rows = [StepRow(step, 10.0 + 0.05 * (step // 10), 0.005) for step in range(10, 100)]
    attempt = AttemptRecord("r", 1, 0.0, "first", submitted_at=1.0, applied_at=2.0, running_at=9.0)
    summed = totals(tile([attempt], [], {1: rows}, 0.0, rows[-1].at), 1)
    assert math.isclose(summed.productive_gpu_seconds, 0.45, rel_tol=0.02)


def test_a_save_that_took_no_time_beside_the_end_of_another_is_none() -> None:
    row = [StepRow(1, 3.0)]
    done = totals(tile([attempt(1, 0.0)], saves(1, (0.0, 1.0), (1.0, 1.0), (2.0, 2.0)), {1: row}, 0.0, 4.0), 1).by_state
    assert done.get(T.CHECKPOINT_STALL, 0.0) <= 1.0


ABOVE_ZERO = st.floats(0.1, 5)


@settings(max_examples=150, deadline=None)
@given(st.integers(2, 12), st.integers(2, 12), ABOVE_ZERO, st.floats(0, 30), st.floats(0, 30), st.integers(1, 9))
def test_merging_two_attempts_equals_accounting_their_union(
    first: int, second: int, seconds: float, before: float, pause: float, gpus: int
) -> None:
    """Where the second goes on where the first ended. What is init for a run alone is a restart within one."""
    starts = {T.INIT, T.QUEUE, T.RESTART}
    mine = rows(1, first, before, seconds)
    planned = mine[-1].at + 1.0
    theirs = rows(first + 1, first + second, planned + pause, seconds)
    end = theirs[-1].at
    one = attempt(1, 0.0, submitted_at=before / 4, applied_at=before / 3, running_at=before / 2, ended_at=planned)
    two = attempt(2, planned, submitted_at=planned, applied_at=planned, running_at=planned + pause / 2)
    marks = [mark(1, "detected", planned - 0.5), mark(1, "decided", planned)]
    whole = totals(tile([one, two], marks, {1: mine, 2: theirs}, 0.0, end), gpus)
    alone = totals(tile([one], marks, {1: mine}, 0.0, planned), gpus)
    both = merge(alone, totals(tile([two], [], {2: theirs}, planned, end), gpus))
    assert math.isclose(both.wall_seconds, whole.wall_seconds)
    for state in set(Tile) - starts:
        assert math.isclose(both.by_state.get(state, 0.0), whole.by_state.get(state, 0.0), rel_tol=1e-6, abs_tol=1e-6)
    started = [sum(item.by_state.get(state, 0.0) for state in starts) for item in (both, whole)]
    assert math.isclose(*started, rel_tol=1e-6, abs_tol=1e-6)


@settings(max_examples=150, deadline=None)
@given(st.floats(-1e6, 1e9))
def test_only_distances_count_not_what_the_clock_says(shift: float) -> None:
    attempts, marks, steps = a_lost_node()
    moved = [
        replace(
            item,
            **{  # type: ignore[arg-type]
                name: None if getattr(item, name) is None else getattr(item, name) + shift
                for name in ("planned_at", "submitted_at", "applied_at", "running_at", "ended_at")
            },
        )
        for item in attempts
    ]
    later = {number: [replace(row, at=row.at + shift) for row in mine] for number, mine in steps.items()}
    found = tile(moved, [replace(item, at=item.at + shift) for item in marks], later, shift, 24.0 + shift)
    there = totals(found, 1).by_state
    for state, seconds in totals(tile(attempts, marks, steps, 0.0, 24.0), 1).by_state.items():
        assert math.isclose(there[state], seconds, abs_tol=1e-5)


@settings(max_examples=150, deadline=None)
@given(st.floats(-0.9, 0.9), st.floats(-0.9, 0.9))
def test_a_clock_of_the_pods_that_is_off_within_an_attempt_moves_no_productive_second(one: float, two: float) -> None:
    """Steps are measured by distances on one clock, so an offset of that clock changes what stands beside them only."""
    attempts, marks, steps = a_lost_node()
    off = {number: [replace(row, at=row.at + by) for row in steps[number]] for number, by in ((1, one), (2, two))}
    spans = tile(attempts, marks, off, 0.0, 25.0)
    done = seconds_of(spans)
    assert round(sum(done.values()), 5) == 25.0
    assert (done[T.PRODUCTIVE], done[T.ROLLBACK]) == (pytest.approx(12.0, abs=1e-5), pytest.approx(2.0, abs=1e-5))


@settings(max_examples=100, deadline=None)
@given(ATTEMPTS, MARKS, STEPS, st.floats(1, 200), st.integers(1, 50))
def test_the_sliding_share_stays_a_share_and_ends_with_the_whole(
    attempts: list[AttemptRecord], marks: list[MarkRecord], steps: dict[int, list[StepRow]], seconds: float, points: int
) -> None:
    spans = tile(attempts, marks, steps, 0.0, 100.0)
    found = sliding(spans, seconds, points)
    assert len(found) == points
    assert all(0 <= share <= 1 for _, share in found)
    last = totals(window(spans, 100.0 - min(seconds, 100.0), 100.0), 1)
    assert math.isclose(found[-1][1], last.ettr, abs_tol=1e-6)
