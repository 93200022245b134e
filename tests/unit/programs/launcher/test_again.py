"""How a pod's ranks begin again in it: held for an order, killed, met again; and what ends that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    RestartOrdered,
    SignalReceived,
    StartRanks,
    StopOrdered,
    Tick,
    advance,
)
from workflows.wire import RankEnd


def end(rank: int, **how: Any) -> RankEnd:
    return RankEnd(rank=rank, local_rank=rank, at=1.0, **how)


def after(state: PodState, *events: Event, now: float = 100.0) -> PodState:
    for event in events:
        state = advance(state, event, now).state
    return state


def again(incarnation: int) -> RestartOrdered:
    return RestartOrdered(incarnation, "/c/20", 20, "rank 1 was killed")


KILLED = RanksEnded((end(1, signal=9),))
OTHER = RanksEnded((end(0, signal=9),))
RUNNING = after(PodState(grace_seconds=10.0, in_place=True), GangReady(frozenset({0, 1})))
HOLDING = after(RUNNING, KILLED)
ALL_DEAD = after(HOLDING, OTHER)
RESTARTING = after(RUNNING, again(2))
JOINING = after(ALL_DEAD, again(2))
SECOND = after(JOINING, GangReady(frozenset({0, 1}), 2))
PLAIN = after(PodState(grace_seconds=10.0), GangReady(frozenset({0, 1})))


@pytest.mark.parametrize(
    ("state", "event", "stage", "reason", "actions"),
    [
        (RUNNING, KILLED, "holding", "", [KillRanks]),
        (RUNNING, RanksEnded((end(0, signal=9), end(1, exit_code=1))), "holding", "", []),
        (RUNNING, RanksEnded((end(0, exit_code=0), end(1, exit_code=0))), "done", "completed", []),
        (HOLDING, OTHER, "holding", "", []),
        (HOLDING, again(2), "restarting", "", [KillRanks]),
        (HOLDING, StopOrdered("no rank was killed", False), "ending", "rank-failed", [KillRanks]),
        (HOLDING, StopOrdered("drain", True), "ending", "rank-failed", [KillRanks]),
        (HOLDING, SignalReceived("SIGTERM"), "ending", "rank-failed", [KillRanks]),
        (HOLDING, LauncherFailed("no memory"), "ending", "rank-failed", [KillRanks]),
        (ALL_DEAD, StopOrdered("no rank was killed", False), "done", "rank-failed", []),
        (ALL_DEAD, SignalReceived("SIGTERM"), "done", "rank-failed", []),
        (ALL_DEAD, again(2), "joining", "", [RejoinGang]),
        (RUNNING, again(2), "restarting", "", [KillRanks]),
        (RUNNING, again(1), "running", "", []),
        (RESTARTING, RanksEnded((end(0, signal=9), end(1, signal=9))), "joining", "", [RejoinGang]),
        (RESTARTING, SignalReceived("SIGTERM"), "ending", "signalled", [KillRanks, ReportStop]),
        (RESTARTING, StopOrdered("drain", True), "ending", "told-to-stop", [KillRanks]),
        (RESTARTING, again(2), "restarting", "", []),
        (RESTARTING, again(3), "restarting", "", [KillRanks]),
        (JOINING, GangReady(frozenset({0, 1}), 1), "joining", "", []),
        (JOINING, GangReady(frozenset({0, 1}), 2), "running", "", [StartRanks]),
        (JOINING, SignalReceived("SIGTERM"), "done", "signalled", [ReportStop]),
        (JOINING, StopOrdered("drain", True), "done", "told-to-stop", []),
        (JOINING, LauncherFailed("the folder is gone"), "done", "launcher-error", []),
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


events = st.one_of(
    st.builds(GangReady, st.just(frozenset({0, 1, 2})), st.integers(1, 4)),
    st.lists(st.integers(0, 2), min_size=1, unique=True).flatmap(
        lambda ranks: st.sampled_from([{"exit_code": 0}, {"exit_code": 1}, {"signal": 9}]).map(
            lambda how: RanksEnded(tuple(end(rank, **how) for rank in ranks))
        )
    ),
    st.builds(again, st.integers(1, 4)),
    st.builds(StopOrdered, st.just("why"), st.booleans()),
    st.sampled_from([SignalReceived("SIGTERM"), LauncherFailed("why"), Tick(), Tick()]),
)


@given(st.lists(events, max_size=25), st.booleans())
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
