"""Which runs are driven again: those whose driver is surely gone, and no others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.monitoring.flow_runs import (
    GRACE_SECONDS,
    AskToStop,
    Conclude,
    Drive,
    Drop,
    FlowRunSnapshot,
    LetGo,
    PauseRun,
    Reopen,
    Tries,
    look_after,
    pause_before,
    undriven,
)
from profiles.vocabulary import RunState
from workflows.model.records import Driver, Lease
from workflows.model.runs import ENDS, FlowRunSeen, OpenRun, Phase

NOW = 10_000.0
HOLDER = Driver("runner-1", 7, 3.0)


def lease(expires_in: float) -> Lease:
    return Lease("demo", 4, HOLDER, NOW + expires_in)


RUN = OpenRun("demo", RunState.RUNNING, "big", NOW - 3600, lease(10.0))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"alive": True}, ""),
        ({"alive": False}, "its driver is dead: process 7 on runner-1"),
        ({"lease": lease(-0.1)}, "its driver did not renew its lease: process 7 on runner-1"),
        ({"lease": lease(-60.0), "alive": True}, ""),
        ({"lease": None}, "it has no driver: the last one released it"),
        ({"lease": None, "state": RunState.UNKNOWN}, ""),
        ({"lease": None, "since": NOW - 1}, ""),
        ({"alive": False, "since": NOW - 4, "lease": lease(12)}, "its driver is dead: process 7 on runner-1"),
        # Continued by a person a moment ago: that lease was another life's.
        ({"lease": lease(-600.0), "alive": False, "since": NOW - 1}, ""),
    ],
)
def test_a_run_is_driven_again_only_where_its_driver_is_surely_gone(changes: dict[str, Any], why: str) -> None:
    assert undriven(replace(RUN, **changes), NOW) == why


LOST = replace(RUN, lease=None)


def moves(*flow_runs: FlowRunSeen, runs: tuple[OpenRun, ...] = (LOST,), **more: Any) -> list[Any]:
    tries = more.pop("tries", {})
    return list(look_after(FlowRunSnapshot(NOW, "big", runs, flow_runs, **more), tries))


def seen(phase: Phase, run: str = "demo", age: float = 60.0) -> FlowRunSeen:
    return FlowRunSeen("f1", phase, NOW - age, run)


def test_a_lost_run_is_driven_and_those_of_other_clusters_are_not() -> None:
    [only] = moves(runs=(LOST, replace(LOST, name="other", cluster="laptop")))
    assert only == Drive("demo", "it has no driver: the last one released it")


@pytest.mark.parametrize(
    ("flow_run", "driven"),
    [
        (seen(Phase.WAITING), False),
        (seen(Phase.CLAIMED, age=1.0), False),
        (seen(Phase.CLAIMED), True),
        (seen(Phase.RUNNING), True),
        (seen(Phase.WAITING, run="another"), True),
    ],
)
def test_whose_turn_comes_is_left_alone(flow_run: FlowRunSeen, driven: bool) -> None:
    assert any(isinstance(move, Drive) for move in moves(flow_run)) is driven
    assert not any(isinstance(move, Drive) for move in moves(seen(Phase.RUNNING), working=frozenset({"f1"})))


def test_a_request_whose_claimer_died_is_open_to_all_again() -> None:
    stuck = seen(Phase.CLAIMED, run="")
    assert [type(move) for move in moves(stuck, runs=())] == [Reopen]
    assert moves(replace(stuck, since=NOW - 1), runs=()) == []
    assert moves(stuck, runs=(), working=frozenset({"f1"})) == []
    assert moves(replace(stuck, phase=Phase.WAITING), runs=()) == []
    assert moves(replace(stuck, phase=Phase.CANCELLING), runs=()) == [Drop("f1")]


def test_an_end_that_nobody_told_is_told() -> None:
    assert moves(seen(Phase.RUNNING), runs=()) == [Conclude("f1", "demo")]
    assert moves(seen(Phase.RUNNING), runs=(), working=frozenset({"f1"})) == [], "its driver will say it"


def test_who_cancels_is_heard_once_and_the_run_keeps_a_driver_until_it_has_stopped() -> None:
    driven = replace(LOST, lease=lease(10.0))
    cancelled = seen(Phase.CANCELLING)
    assert moves(cancelled, runs=(driven,), working=frozenset({"f1"})) == [AskToStop("f1", "demo")]
    assert moves(cancelled, runs=(driven,), stop_requested=frozenset({"f1"})) == []
    assert [type(move) for move in moves(cancelled)] == [AskToStop, Drive]


def test_who_pauses_is_heard_and_the_driver_works_on() -> None:
    driven, paused = replace(LOST, lease=lease(10.0)), seen(Phase.PAUSED)
    assert moves(paused, runs=(driven,), working=frozenset({"f1"})) == [PauseRun("f1", "demo")]
    assert [type(move) for move in moves(paused)] == [PauseRun, Drive], "its driver is gone as well"


def test_a_flow_run_that_was_deleted_lets_its_driver_go_and_the_run_gets_another() -> None:
    driven = replace(LOST, lease=lease(10.0))
    gone = frozenset({"f1", "f2"})
    assert moves(runs=(driven,), working=frozenset({"f1"}), deleted=gone) == [LetGo("f1")]
    assert [type(move) for move in moves()] == [Drive], "once the driver has let go"


def test_a_driver_that_dies_again_and_again_is_started_ever_later() -> None:
    assert [pause_before(number) for number in (1, 2, 3, 6, 7, 1000)] == [1, 2, 4, 32, 60, 60]
    assert moves(tries={"demo": Tries(3, NOW - 3.9)}) == []
    assert len(moves(tries={"demo": Tries(3, NOW - 4.0)})) == 1


RUNS = st.builds(
    OpenRun,
    name=st.sampled_from(["demo", "other", "third"]),
    state=st.sampled_from([RunState.PENDING, RunState.RUNNING, RunState.UNKNOWN]),
    cluster=st.sampled_from(["big", "laptop"]),
    since=st.floats(NOW - 100, NOW),
    lease=st.none() | st.floats(-30, 15).map(lease),
    alive=st.sampled_from([None, True, False]),
)
FLOW_RUNS = st.builds(
    FlowRunSeen,
    id=st.uuids().map(str),
    phase=st.sampled_from([phase for phase in Phase if phase not in ENDS]),
    since=st.floats(NOW - 100, NOW),
    run=st.sampled_from(["", "demo", "other", "third"]),
)


@given(st.lists(RUNS, unique_by=lambda run: run.name), st.lists(FLOW_RUNS, max_size=6), st.data())
def test_nobody_who_lives_is_relieved_and_nothing_is_done_twice(
    runs: list[OpenRun], flow_runs: list[FlowRunSeen], data: st.DataObject
) -> None:
    ids = [one.id for one in flow_runs]
    working = frozenset(data.draw(st.sets(st.sampled_from(ids))) if ids else set())
    made = moves(*flow_runs, runs=tuple(runs), working=working)
    assert len(set(made)) == len(made)
    by_name = {run.name: run for run in runs}
    busy = {one.run for one in flow_runs if one.id in working}
    for move in made:
        match move:
            case Drive(run, _):
                found = by_name[run]
                assert found.cluster == "big"
                assert found.alive is not True or found.lease is None
                assert run not in busy
                assert found.lease is None or found.alive is False or found.lease.expires_at <= NOW
            case Conclude(flow_run, run):
                assert run not in by_name
                assert flow_run not in working
            case Reopen(flow_run, _):
                [stuck] = [one for one in flow_runs if one.id == flow_run]
                assert NOW - stuck.since >= GRACE_SECONDS
                assert flow_run not in working
            case _:
                pass
