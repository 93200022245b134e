"""How ranks live and end, what counts as success, and what is said about it.

How a pod's ranks begin again in it: held for an order, killed, met again; and what ends that.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases.rows import rows
from workflows.programs.launcher import termination
from workflows.programs.launcher.lifecycle import (
    HOLD_SECONDS,
    REJOIN_SECONDS,
    Action,
    Event,
    GangReady,
    KillRanks,
    LauncherFailed,
    PodState,
    RanksEnded,
    RejoinGang,
    ReportStop,
    RequestSave,
    RestartOrdered,
    SignalReceived,
    StartRanks,
    StopOrdered,
    Tick,
    advance,
)
from workflows.programs.launcher.options import parse_place
from workflows.programs.launcher.termination import Goal, OutOfMemoryCounter, SeenSteps
from workflows.wire import RankEnd


def end(rank: int, **how: Any) -> RankEnd:
    return RankEnd(rank=rank, local_rank=rank, at=1.0, **how)


START = PodState(grace_seconds=10.0)
RUNNING = advance(START, GangReady(frozenset({0, 1})), 0.0).state
SAVING = advance(RUNNING, SignalReceived("SIGTERM"), 100.0).state
TOLD = advance(RUNNING, StopOrdered("drain", True), 100.0).state
ENDING = advance(RUNNING, RanksEnded((end(1, signal=9),)), 0.0).state


@pytest.mark.parametrize(
    ("state", "event", "stage", "reason", "actions"),
    [
        (START, GangReady(frozenset({0, 1})), "running", "", [StartRanks]),
        (START, SignalReceived("SIGTERM"), "done", "signalled", []),
        (START, StopOrdered("drain", True), "done", "told-to-stop", []),
        (START, LauncherFailed("no coordinator", "coordinator-away"), "done", "launcher-error", []),
        (RUNNING, GangReady(frozenset({5})), "running", "", []),
        (RUNNING, Tick(), "running", "", []),
        (RUNNING, RanksEnded((end(0, exit_code=0),)), "running", "", []),
        (RUNNING, RanksEnded((end(0, exit_code=0), end(1, exit_code=0))), "done", "completed", []),
        (RUNNING, RanksEnded((end(0, exit_code=1),)), "ending", "rank-failed", [KillRanks]),
        (RUNNING, RanksEnded((end(0, signal=9), end(1, exit_code=1))), "done", "rank-failed", []),
        (RUNNING, StopOrdered("gang member died", False), "ending", "told-to-stop", [KillRanks]),
        (RUNNING, StopOrdered("drain", True), "saving", "told-to-stop", [RequestSave]),
        (RUNNING, SignalReceived("SIGTERM"), "saving", "signalled", [RequestSave, ReportStop]),
        (RUNNING, LauncherFailed("the disk is gone", "storage"), "ending", "launcher-error", [KillRanks]),
        (RUNNING, LauncherFailed("no folder", "folder", unstarted=True), "done", "launcher-error", []),
        (SAVING, Tick(), "saving", "signalled", []),
        (SAVING, SignalReceived("SIGTERM"), "ending", "signalled", [KillRanks]),
        (SAVING, StopOrdered("drain", True), "saving", "signalled", []),
        (SAVING, StopOrdered("gang member died", False), "ending", "signalled", [KillRanks]),
        (SAVING, RanksEnded((end(0, exit_code=1),)), "saving", "signalled", []),
        (SAVING, RanksEnded((end(0, exit_code=0), end(1, exit_code=143))), "done", "signalled", []),
        (TOLD, SignalReceived("SIGTERM"), "saving", "signalled", []),
        (ENDING, RanksEnded((end(0, signal=9),)), "done", "rank-failed", []),
        (ENDING, SignalReceived("SIGTERM"), "ending", "rank-failed", [KillRanks]),
    ],
)
def test_how_ranks_live_and_end(
    state: PodState, event: Event, stage: str, reason: str, actions: Sequence[type[Action]]
) -> None:
    following = advance(state, event, 105.0)
    assert (following.state.stage, following.state.reason) == (stage, reason)
    assert [type(action) for action in following.actions] == list(actions)


def test_ranks_that_do_not_save_in_time_are_killed_when_the_grace_is_over() -> None:
    assert advance(SAVING, Tick(), 109.9).actions == ()
    following = advance(SAVING, Tick(), 110.0)
    assert following.actions == (KillRanks(),)
    assert "2 ranks had not ended after 10 s and were killed" in following.state.detail


def test_a_rank_that_was_killed_is_to_blame_before_one_that_noticed_it() -> None:
    state = advance(RUNNING, RanksEnded((end(0, exit_code=1), end(1, signal=9))), 0.0).state
    assert state.first_failing == 1
    assert state.detail == "rank 1 was killed by signal 9"


def test_ranks_that_end_after_they_were_asked_to_are_victims() -> None:
    state = advance(ENDING, RanksEnded((end(0, signal=9),)), 1.0).state
    assert [(e.rank, e.requested) for e in state.ends] == [(1, False), (0, True)]
    assert state.first_failing == 1


events = st.one_of(
    st.just(GangReady(frozenset({0, 1, 2}))),
    st.lists(st.integers(0, 2), min_size=1, unique=True).flatmap(
        lambda ranks: st.sampled_from([{"exit_code": 0}, {"exit_code": 1}, {"signal": 9}]).map(
            lambda how: RanksEnded(tuple(end(rank, **how) for rank in ranks))
        )
    ),
    st.builds(StopOrdered, st.just("why"), st.booleans()),
    st.just(SignalReceived("SIGTERM")),
    st.just(LauncherFailed("why", "memory")),
    st.just(Tick()),
)


@given(st.lists(events, max_size=12))
def test_every_life_has_one_reason_and_ends_for_good(history: list[Event]) -> None:
    state = START
    for now, event in enumerate(history):
        before = state
        state, actions = advance(state, event, float(now * 4))
        if before.stage == "done":
            assert (state, actions) == (before, ())
        assert (state.stage == "done") <= (not state.alive and bool(state.reason))
        assert sum(isinstance(action, StartRanks) for action in actions) <= (before.stage == "joining")
        if before.reason not in ("", "told-to-stop"):
            assert state.reason == before.reason
    _, _, code = termination.conclude(replace(state, reason=state.reason or "completed"), "")
    assert (code == 0) <= all(e.exit_code == 0 for e in state.ends)


@pytest.mark.parametrize(
    ("goal", "seen", "said"),
    [
        (Goal(300, None, True, 0), SeenSteps(300, None, False), ""),
        (
            Goal(300, None, True, 0),
            SeenSteps(299, None, False),
            "exit 0 after step 299, before the planned last step 300",
        ),
        (Goal(300, None, True, 0), SeenSteps(None, None, True), "exit 0 without any step of the 300 planned ones"),
        (Goal(300, 20, True, 0), SeenSteps(None, None, True), "exit 0 without any step"),
        (Goal(300, 300, True, 0), SeenSteps(None, None, True), ""),
        (Goal(300, 310, True, 0), SeenSteps(None, None, False), ""),
        (Goal(0, None, True, 0), SeenSteps(None, None, True), ""),
        (Goal(300, None, False, 0), SeenSteps(None, None, True), ""),
        (Goal(305, None, True, 0), SeenSteps(300, None, False, 10), ""),
        (Goal(310, None, True, 0), SeenSteps(300, None, False, 10), "exit 0 after step 300"),
        (Goal(300, None, True, 1), SeenSteps(None, 300, True), ""),
        (Goal(300, None, True, 1), SeenSteps(None, 200, True), "exit 0 after step 200"),
        (Goal(300, None, True, 1), SeenSteps(None, None, False), ""),
        (Goal(300, None, True, 0), SeenSteps(None, None, False), "exit 0 without any step"),
    ],
)
def test_exit_0_is_success_only_after_the_planned_last_step(goal: Goal, seen: SeenSteps, said: str) -> None:
    found = termination.ended_early(goal, seen)
    assert found.startswith(said) if said else found == ""


@rows("programs/launcher/lifecycle")
def test_the_gangs_last_step_comes_from_the_coordinator_or_from_the_storage(
    status: dict[str, Any] | None, recorded: int | None, expected: SeenSteps
) -> None:
    assert termination.with_gang(SeenSteps(7, None, True, 2), status, lambda: recorded) == expected


@pytest.mark.parametrize(
    ("reason", "ends", "first", "early", "expected"),
    [
        ("completed", [end(0, exit_code=0)], None, "", ("completed", 0)),
        ("completed", [end(0, exit_code=0)], None, "too early", ("rank-failed", termination.EXIT_ENDED_EARLY)),
        ("rank-failed", [end(0, exit_code=3), end(1, signal=9, requested=True)], 0, "", ("rank-failed", 3)),
        ("rank-failed", [end(0, signal=11)], 0, "", ("rank-failed", 139)),
        ("signalled", [end(0, exit_code=0), end(1, exit_code=0)], None, "", ("signalled", 0)),
        ("signalled", [end(0, exit_code=0), end(1, exit_code=143)], None, "", ("signalled", 143)),
        ("signalled", [], None, "", ("signalled", 143)),
        ("told-to-stop", [end(0, signal=9, requested=True)], None, "", ("told-to-stop", 143)),
        ("launcher-error", [], None, "", ("launcher-error", termination.EXIT_LAUNCHER_ERROR)),
    ],
)
def test_the_exit_code_says_how_it_ended(
    reason: str, ends: list[RankEnd], first: int | None, early: str, expected: tuple[str, int]
) -> None:
    state = PodState(1.0, "done", ends=tuple(ends), reason=reason, first_failing=first)
    found = termination.conclude(state, early)
    assert (found[0], found[2]) == expected


def test_only_ranks_that_the_kernel_killed_are_out_of_memory(tmp_path: Path) -> None:
    events_file = tmp_path / "memory.events"
    events_file.write_text("low 0\noom 1\noom_kill 1\n")
    counter = OutOfMemoryCounter(str(tmp_path))
    assert not counter.has_grown()
    events_file.write_text("low 0\noom 2\noom_kill 2\n")
    assert counter.has_grown()
    assert not counter.has_grown()
    ends = (end(0, signal=9), end(1, exit_code=1), end(2, signal=9, requested=True), end(3, exit_code=137))
    assert [e.oom_killed for e in termination.with_oom(ends, True)] == [True, False, False, True]
    assert not any(e.oom_killed for e in termination.with_oom(ends, False))
    assert not OutOfMemoryCounter(str(tmp_path / "nothing")).has_grown()


def test_the_steps_of_other_pods_are_found_on_the_storage(tmp_path: Path) -> None:
    for name, text in (("trainer-0", ""), ("trainer-3", '{"step":7}\n{"step":8}\n'), ("reader-0", '{"step":99}\n')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "steps.jsonl").write_text(text)
    assert termination.last_recorded_step(str(tmp_path), "trainer") == 8
    assert termination.last_recorded_step(str(tmp_path / "nowhere"), "trainer") is None


def test_a_record_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    record = parse_place({"PRIMUS_RUN": "r"}).record("trainer", "completed", "")
    blocked = tmp_path / "file"
    blocked.write_text("")
    problems = termination.write(record, str(tmp_path / "message"), str(blocked / "termination.json"))
    assert json.loads((tmp_path / "message").read_text())["reason"] == "completed"
    assert len(problems) == 1
    assert str(blocked) in problems[0]


def test_a_rank_ends_once() -> None:
    ended = advance(RUNNING, RanksEnded((end(0, exit_code=0),)), 0.0).state
    assert advance(ended, RanksEnded((end(0, exit_code=1),)), 1.0).state == ended


def after(state: PodState, *restarts: Event, now: float = 100.0) -> PodState:
    for event in restarts:
        state = advance(state, event, now).state
    return state


def again(incarnation: int) -> RestartOrdered:
    return RestartOrdered(incarnation, "/c/20", 20, "rank 1 was killed")


KILLED = RanksEnded((end(1, signal=9),))
OTHER = RanksEnded((end(0, signal=9),))
IN_PLACE = after(PodState(grace_seconds=10.0, in_place=True), GangReady(frozenset({0, 1})))
HOLDING = after(IN_PLACE, KILLED)
ALL_DEAD = after(HOLDING, OTHER)
RESTARTING = after(IN_PLACE, again(2))
JOINING = after(ALL_DEAD, again(2))
SECOND = after(JOINING, GangReady(frozenset({0, 1}), 2))
PLAIN = after(PodState(grace_seconds=10.0), GangReady(frozenset({0, 1})))


@pytest.mark.parametrize(
    ("state", "event", "stage", "reason", "actions"),
    [
        (IN_PLACE, KILLED, "holding", "", [KillRanks]),
        (IN_PLACE, RanksEnded((end(0, signal=9), end(1, exit_code=1))), "holding", "", []),
        (IN_PLACE, RanksEnded((end(0, exit_code=0), end(1, exit_code=0))), "done", "completed", []),
        (HOLDING, OTHER, "holding", "", []),
        (HOLDING, again(2), "restarting", "", [KillRanks]),
        (HOLDING, StopOrdered("no rank was killed", False), "ending", "rank-failed", [KillRanks]),
        (HOLDING, StopOrdered("drain", True), "ending", "rank-failed", [KillRanks]),
        (HOLDING, SignalReceived("SIGTERM"), "ending", "rank-failed", [KillRanks]),
        (HOLDING, LauncherFailed("no memory", "memory"), "ending", "rank-failed", [KillRanks]),
        (ALL_DEAD, StopOrdered("no rank was killed", False), "done", "rank-failed", []),
        (ALL_DEAD, SignalReceived("SIGTERM"), "done", "rank-failed", []),
        (ALL_DEAD, again(2), "joining", "", [RejoinGang]),
        (IN_PLACE, again(2), "restarting", "", [KillRanks]),
        (IN_PLACE, again(1), "running", "", []),
        (RESTARTING, RanksEnded((end(0, signal=9), end(1, signal=9))), "joining", "", [RejoinGang]),
        (RESTARTING, SignalReceived("SIGTERM"), "ending", "signalled", [KillRanks, ReportStop]),
        (RESTARTING, StopOrdered("drain", True), "ending", "told-to-stop", [KillRanks]),
        (RESTARTING, again(2), "restarting", "", []),
        (RESTARTING, again(3), "restarting", "", [KillRanks]),
        (JOINING, GangReady(frozenset({0, 1}), 1), "joining", "", []),
        (JOINING, GangReady(frozenset({0, 1}), 2), "running", "", [StartRanks]),
        (JOINING, SignalReceived("SIGTERM"), "done", "signalled", [ReportStop]),
        (JOINING, StopOrdered("drain", True), "done", "told-to-stop", []),
        (JOINING, LauncherFailed("the folder is gone", "folder"), "done", "launcher-error", []),
        (JOINING, again(3), "joining", "", [RejoinGang]),
        (SECOND, RanksEnded((end(0, exit_code=0), end(1, exit_code=0))), "done", "completed", []),
        (SECOND, KILLED, "holding", "", [KillRanks]),
        (SECOND, again(2), "running", "", []),
        (PLAIN, again(2), "ending", "told-to-stop", [KillRanks]),
    ],
)
def test_how_ranks_begin_again(
    state: PodState, event: Event, stage: str, reason: str, actions: Sequence[type[Action]]
) -> None:
    following = advance(state, event, 101.0)
    assert (following.state.stage, following.state.reason) == (stage, reason)
    assert [type(action) for action in following.actions] == list(actions)


@pytest.mark.parametrize(
    ("state", "seconds", "stage", "reason"),
    [
        (HOLDING, HOLD_SECONDS, "ending", "rank-failed"),
        (ALL_DEAD, HOLD_SECONDS, "done", "rank-failed"),
        (RESTARTING, REJOIN_SECONDS, "ending", "launcher-error"),
        (JOINING, REJOIN_SECONDS, "done", "launcher-error"),
        (SECOND, 1e9, "running", ""),
    ],
)
def test_nobody_waits_for_ever(state: PodState, seconds: float, stage: str, reason: str) -> None:
    assert advance(state, Tick(), 100.0 + min(seconds, 1e8) - 0.1).state == state
    following = advance(state, Tick(), 100.0 + seconds).state
    assert (following.stage, following.reason) == (stage, reason)


def test_earlier_ranks_do_not_say_how_the_pod_ended() -> None:
    state = after(SECOND, RanksEnded((end(0, exit_code=0), end(1, exit_code=0))))
    assert len(state.ends) == 4
    assert [one.exit_code for one in state.present_ends] == [0, 0]
    assert (state.first_failing, termination.conclude(state, "")) == (None, ("completed", "", 0))
    failed = after(SECOND, RanksEnded((end(0, exit_code=5),)), StopOrdered("no rank was killed", False), KILLED)
    assert termination.conclude(failed, "") == ("rank-failed", "rank 0 exited with 5", 5)


restarts = st.one_of(
    st.builds(GangReady, st.just(frozenset({0, 1, 2})), st.integers(1, 4)),
    st.lists(st.integers(0, 2), min_size=1, unique=True).flatmap(
        lambda ranks: st.sampled_from([{"exit_code": 0}, {"exit_code": 1}, {"signal": 9}]).map(
            lambda how: RanksEnded(tuple(end(rank, **how) for rank in ranks))
        )
    ),
    st.builds(again, st.integers(1, 4)),
    st.builds(StopOrdered, st.just("why"), st.booleans()),
    st.sampled_from([SignalReceived("SIGTERM"), LauncherFailed("why", "memory"), Tick(), Tick()]),
)


@given(st.lists(restarts, max_size=25), st.booleans())
def test_two_incarnations_never_live_at_once(history: list[Event], in_place: bool) -> None:
    state = PodState(grace_seconds=10.0, in_place=in_place)
    for now, event in enumerate(history):
        before = state
        state, actions = advance(state, event, float(now * 4))
        assert state.incarnation >= before.incarnation
        for action in actions:
            if isinstance(action, (StartRanks, RejoinGang)):
                assert before.alive == frozenset() or isinstance(event, RanksEnded)
                assert isinstance(action, StartRanks) or state.alive == frozenset()
        if before.stage == "done":
            assert (state, actions) == (before, ())
        assert (state.stage == "done") <= (not state.alive and bool(state.reason))
        assert in_place or state.stage not in ("holding", "restarting")
