"""Whatever happens in whatever order: no restart too many, no two incarnations at once, nothing forgotten."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders.restarting_gangs import KILLED, RAISED, after, end, gang, joined, saved
from workflows.programs.coordinator import journal
from workflows.programs.coordinator.progress import STALLS
from workflows.programs.coordinator.reducer import advance, meeting_of
from workflows.programs.coordinator.state import (
    Event,
    Meeting,
    MeetingPublished,
    PodCleared,
    RefusedError,
    ReportsReceived,
    State,
    StopRequested,
    TimePassed,
)
from workflows.wire import PhaseSeen, StepSeen


def event_of(state: State, number: int, move: tuple[str, int, int]) -> Event:
    """A move as an event of the gang as it is now; `age` incarnations late.

    Args:
        state: of the gang.
        number: of the move.
        move: what happens, to which pod, and how late that is told.
    """
    kind, index, age = move[0], move[1] % state.pods, move[2]
    at, key, now = 20.0 + number * 0.06, ("trainer", index), max(1, state.incarnation - age)
    said: dict[str, Event] = {
        "clear": PodCleared(at, key, now),
        "publish": MeetingPublished(at, "trainer", Meeting(now, "127.0.0.5", 20000 + number)),
        "tick": TimePassed(at),
        "stop": StopRequested(at, "why", index > 1),
        "join": joined(index, incarnation=now),
        "run": ReportsReceived(at, key, number, (), "running", "", {str(index): number}, now),
        "leave": ReportsReceived(at, key, number, (), "leaving", "SIGTERM"),
    }
    reports: dict[str, Any] = {
        "kill": end(index, now, **KILLED),
        "raise": end(index, now, **RAISED),
        "finish": end(index, now, exit_code=0),
        "step": StepSeen(number, at, index, 0.5, incarnation=now),
        "save": PhaseSeen(STALLS[index % len(STALLS)], at, index, incarnation=now),
        "saved": PhaseSeen("step", at, index, "saved in 0.1 s", now),
        "prove": saved(max(0, number - index)),  # a step before the first one comes through no door
    }
    return said[kind] if kind in said else ReportsReceived(at, key, number, (reports[kind],))


often = ["kill", "kill", "raise", "step", "clear", "clear", "clear", "publish", "run", "tick", "prove", "save", "saved"]
moves = st.tuples(
    st.sampled_from([*often, *often, "finish", "join", "stop", "leave"]),
    st.integers(0, 3),
    st.sampled_from([0, 0, 0, 0, 1]),
)
histories = st.lists(moves, max_size=60)


def play(state: State, history: Sequence[tuple[str, int, int]]) -> tuple[list[State], list[Event]]:
    """Every state of the gang, and what its journal would hold."""
    states, kept = [state], list[Event]()
    for number, move in enumerate(history, start=2):
        event = event_of(states[-1], number, move)
        remembered = journal.for_journal(states[-1], event)
        try:
            states.append(advance(states[-1], event).state)
        except RefusedError:
            continue
        kept += [] if remembered is None else [remembered]
    return states, kept


@given(histories, st.integers(1, 3))
def test_never_more_restarts_than_lent_nor_an_order_lost_or_doubled(
    history: list[tuple[str, int, int]], lent: int
) -> None:
    states, _ = play(gang(pods=4, lent=lent), history)
    for before, state in itertools.pairwise(states):
        assert len(state.restarts) <= lent
        assert state.orders[: len(before.orders)] == before.orders
        assert [order.number for order in state.orders] == list(range(1, len(state.orders) + 1))
        resumes = [order.resume for order in state.orders if order.resume is not None]
        assert [one.incarnation for one in resumes] == [one.incarnation for one in state.restarts]
        assert len({one.node for one in state.restarts}) == len(state.restarts)
        # After a stop nobody is ordered to begin again.
        assert not (before.is_stopping and len(state.restarts) > len(before.restarts))


@given(histories)
def test_a_gang_meets_only_when_no_earlier_rank_lives(history: list[tuple[str, int, int]]) -> None:
    states, _ = play(gang(pods=2), history)
    for state in states:
        met = meeting_of(state, "trainer")
        if met is not None and state.incarnation > 1:
            assert met["incarnation"] == state.incarnation
            assert all(one.cleared == state.incarnation for one in state.members.values())


@given(histories, st.sampled_from(["kill", "raise", "step", "save", "run"]), st.integers(0, 3))
def test_a_report_of_an_old_incarnation_changes_no_progress(
    history: list[tuple[str, int, int]], kind: str, index: int
) -> None:
    killed: list[tuple[str, int, int]] = [("kill", index, 0)]
    state = play(gang(pods=4), [*killed, *history])[0][-1]
    following, effects = advance(state, event_of(state, 1000, (kind, index, 1)))
    assert state.incarnation > 1
    assert effects == ()
    assert replace(following, members=state.members) == state
    assert following.members["trainer", index].pids == state.members["trainer", index].pids


@given(histories)
def test_a_journal_brings_back_the_same_decisions(history: list[tuple[str, int, int]]) -> None:
    states, kept = play(gang(pods=4), history)
    again = after(gang(pods=4), *journal.read_events(journal.to_line(event) for event in kept))
    for name in ("orders", "restarts", "pending", "rank_ends", "incarnation", "meetings", "cleared_pods", "progress"):
        assert getattr(again, name) == getattr(states[-1], name), name
