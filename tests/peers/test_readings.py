"""What the bench of peers reads from the ranks' record: the clock, the steps lost, the ends, and the table of it."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.peers import table
from tests.peers.readings import Event, Row, Trial, events, read, row

FAULT = 100.0
TOLD = Namespace(trials=20, hang_seconds=5.0, limit=60.0, give_up=3, fault_step=28)


def step(number: int, began: float, rank: int = 0, pid: int = 10, world: int = 2) -> Event:
    return Event(pid=pid, at=began + 0.1, rank=rank, step=number, began=began, world=world)


def end(at: float, weights: str = "w") -> Event:
    return Event(pid=10, at=at, rank=0, weights=weights)


BEFORE = [step(7, FAULT - 0.3), step(8, FAULT - 0.2), step(8, FAULT - 0.2, rank=1)]


def test_the_clock_ends_with_the_first_step_that_was_begun_after_the_fault() -> None:
    seen = [*BEFORE, step(6, FAULT + 2.0, rank=1), step(6, FAULT + 1.9), end(FAULT + 5)]
    trial = read("primus", "kill", 1, seen, FAULT)
    assert trial.resumed_seconds == pytest.approx(2.0)
    assert (trial.steps_lost, trial.weights, trial.world) == (3, "w", 2)


def test_a_step_that_was_under_way_is_no_recovery() -> None:
    seen = [*BEFORE, step(9, FAULT - 0.05)]
    trial = read("torchrun", "hang", 0, seen, FAULT)
    assert (trial.resumed_seconds, trial.steps_lost, trial.completed) == (None, None, False)


def test_a_survivor_that_goes_on_loses_nothing() -> None:
    trial = read("torchft", "kill", 1, [*BEFORE, step(9, FAULT + 0.4, world=1), end(FAULT + 3)], FAULT)
    assert (trial.steps_lost, trial.world) == (0, 1)


def test_a_step_under_way_at_the_fault_counts_as_completed_before_it() -> None:
    trial = read("DLRover", "kill", 1, [*BEFORE, step(9, FAULT - 0.01), step(6, FAULT + 1.0)], FAULT)
    assert trial.steps_lost == 4


def test_a_line_that_is_half_written_waits() -> None:
    whole = json.dumps({"pid": 1, "at": 1.0, "rank": 0, "step": 1, "began": 0.9, "world": 2})
    assert [event.step for event in events(f"{whole}\n{whole[:20]}")] == [1]
    assert events(whole) == []


def trial(seconds: float | None, victim: int = 0, **more: object) -> Trial:
    known = {"steps_lost": None if seconds is None else 3, "world": 2, "weights": "" if seconds is None else "calm"}
    return Trial("torchrun", "kill", victim, seconds, **{**known, **more})  # pyright: ignore[reportArgumentType] - typed by name


def test_a_row_counts_completion_apart_from_speed() -> None:
    found = row([trial(1.0), trial(None, 1), trial(3.0, weights="other"), trial(9.0, 1, weights="")], "calm", 2)
    assert (found.trials, found.resumed, found.completed, found.equal) == (4, 3, 2, 1)
    assert (found.median_seconds, found.worst_seconds, found.steps_lost) == (3.0, 9.0, 3)
    assert found.by_victim == ((0, 2, 2), (1, 2, 0))


def test_a_row_of_nothing_but_misses_has_no_times() -> None:
    found = row([trial(None), trial(None)], "calm", 2)
    assert (found.median_seconds, found.worst_seconds, found.completed) == (None, None, 0)


@given(st.lists(st.one_of(st.none(), st.floats(0.01, 60)), min_size=1, max_size=20))
def test_completion_never_exceeds_the_trials_and_the_worst_is_no_better_than_the_median(
    taken: list[float | None],
) -> None:
    found = row([trial(seconds, number % 2) for number, seconds in enumerate(taken)], "calm", 2)
    assert found.equal <= found.completed <= found.trials == len(taken)
    assert sum(count for _, count, _ in found.by_victim) == found.trials
    if found.median_seconds is not None and found.worst_seconds is not None:
        assert found.median_seconds <= found.worst_seconds


OURS = Row("primus", "kill", 20, 20, 20, 20, 0.5, 0.9, 3.0, 0, ((0, 10, 10), (1, 10, 10)))
THEIRS = replace(OURS, peer="torchrun", completed=15, equal=15, resumed=16, median_seconds=2.0, worst_seconds=4.0)


def test_the_table_says_ratios_and_who_did_not_end() -> None:
    lines = table.table([OURS, THEIRS]).splitlines()
    assert [cell.strip() for cell in lines[3].split("|")][1:9] == [
        "torchrun", "", "SIGKILL", "2.00 s", "4.00 s", "4.0 x", "15 of 20", "15 of 15",
    ]  # fmt: skip
    assert "victim rank 0: 10 of 10" in lines[3]
    assert "1 resumed and did not end" in lines[3]
    assert len({line.count("|") for line in lines}) == 1


def test_a_peer_that_is_better_is_said_to_be() -> None:
    quick = replace(THEIRS, peer="in-process wrapper", median_seconds=0.4, shrunk=20, steps_lost=0.0)
    said = table.faster([replace(OURS, completed=10), quick])
    assert said == [
        "in-process wrapper resumes faster after SIGKILL",
        "in-process wrapper completes more often after SIGKILL",
        "in-process wrapper loses fewer steps after SIGKILL",
    ]
    assert table.faster([OURS, replace(THEIRS, steps_lost=2.5)]) == []
    assert "20 went on with fewer ranks" in table.table([OURS, quick])


def test_where_ours_never_came_back_everybody_else_is_faster() -> None:
    assert table.faster([replace(OURS, median_seconds=None), THEIRS])[0] == "torchrun resumes faster after SIGKILL"
    assert "x |" not in table.table([replace(OURS, median_seconds=None), THEIRS])


def test_failures_show_the_last_lines_once_for_each_peer_and_fault() -> None:
    lost = trial(None, 1, said=("node-0 (runs): waits",))
    assert table.failures([trial(1.0), lost, lost]) == ["torchrun, SIGKILL, rank 1:\n  node-0 (runs): waits"]


def test_rules_name_the_numbers_of_this_run() -> None:
    said = table.rules(TOLD)
    for part in ("40 steps of 0.1 s", "step 28, 3 steps after a save", "wait 5 s for a step", "20 trials each"):
        assert part in said
