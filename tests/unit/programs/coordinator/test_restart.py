"""Restart in place: when the coordinator orders it, from which checkpoint, and never more often than lent.

Whatever happens in whatever order: no restart too many, no two incarnations at once, nothing forgotten.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders.restarting_gangs import KILLED, LENT, RAISED, after, end, gang, joined, saved, told
from workflows.programs.coordinator import journal
from workflows.programs.coordinator.progress import STALLS
from workflows.programs.coordinator.reducer import advance, meeting_of, orders_for
from workflows.programs.coordinator.restarts import PROOF_SECONDS, SETTLE_SECONDS, choose_checkpoint
from workflows.programs.coordinator.service import Coordinator
from workflows.programs.coordinator.state import (
    AppendMoment,
    AppendStep,
    Event,
    LauncherJoined,
    Meeting,
    MeetingPublished,
    Member,
    PodCleared,
    RefusedError,
    ReportsReceived,
    State,
    StopRequested,
    TimePassed,
)
from workflows.programs.coordinator.store import ExpectedGang
from workflows.programs.runtime.http_server import DeferredResponse, Request
from workflows.wire import PhaseSeen, StepSeen


def kinds(state: State) -> list[str]:
    return [order.to_json()["order"] for order in state.orders]


SETTLED = TimePassed(13.0)


@pytest.mark.parametrize(
    ("events", "orders"),
    [
        ([told(0, 2, end(0, **KILLED))], ["restart"]),
        ([told(0, 2, end(0, signal=int(signal.SIGSEGV)))], ["restart"]),
        ([told(0, 2, end(0, **RAISED))], []),
        ([told(0, 2, end(0, **RAISED)), TimePassed(12.0)], []),
        ([told(0, 2, end(0, **RAISED)), SETTLED], ["stop"]),
        ([told(0, 2, end(0, **RAISED)), told(1, 2, end(1, **KILLED)), SETTLED], ["restart"]),
        ([told(0, 2, end(0, **RAISED)), told(1, 2, end(1, **RAISED)), SETTLED], ["stop"]),
        ([told(0, 2, end(0, signal=int(signal.SIGABRT))), SETTLED], ["stop"]),
        ([told(0, 2, end(0, oom_killed=True, **KILLED))], ["stop"]),
        ([told(0, 2, end(0, requested=True, **KILLED)), SETTLED], []),
        ([told(0, 2, end(0, exit_code=137)), SETTLED], ["stop"]),
        ([told(0, 2, end(0, **KILLED)), told(1, 2, end(1, **RAISED)), SETTLED], ["restart"]),
        ([told(1, 2, state="leaving", why="SIGTERM"), told(0, 2, end(0, **KILLED))], ["stop", "stop"]),
        ([told(1, 2, state="ended"), told(0, 2, end(0, **KILLED))], ["stop"]),
        ([StopRequested(5.0, "asked", True), told(0, 2, end(0, **KILLED))], ["stop", "stop"]),
        ([told(0, 2, end(0, **RAISED)), StopRequested(12.0, "asked", True), SETTLED], ["stop"]),
        ([told(0, 2, end(0, **KILLED)), told(1, 2, state="failed", why="held too long")], ["restart", "stop"]),
        ([told(0, 2, end(0, **KILLED)), told(1, 2, state="ended", why="completed")], ["restart", "stop"]),
    ],
)
def test_what_is_ordered_when_ranks_fail(events: Sequence[Event], orders: list[str]) -> None:
    assert kinds(gang(*events)) == orders


def test_a_restart_says_when_its_rank_ended_by_the_clock_of_its_launcher() -> None:
    def happened(at: float) -> float | None:
        return gang(told(0, 2, replace(end(0, **KILLED), at=at))).restarts[0].happened_at

    decided = gang(told(0, 2, end(0, **KILLED))).restarts[0].at
    assert (happened(decided - 0.4), happened(decided + 5.0), happened(decided - 1e6)) == (decided - 0.4, None, None)


def test_without_the_right_everything_is_as_it_was() -> None:
    state = gang(told(0, 2, end(0, **KILLED)), lent=0)
    assert [(order.to_json(), order.source) for order in state.orders] == [
        (
            {"number": 1, "order": "stop", "why": "rank 0 of pod-0 ended with signal 9", "save": False},
            ("trainer", 0),
        )
    ]


def test_an_order_to_begin_again_reaches_all_pods_of_the_gang_and_nobody_else() -> None:
    helper = LauncherJoined(1.0, Member("reader", 0, essential=False))
    state = gang(helper, told(0, 2, end(0, **KILLED)))
    (order,) = orders_for(state, ("trainer", 0), 0)
    assert order.to_json() == {
        "number": 1,
        "order": "restart",
        "why": "rank 0 of pod-0 ended with signal 9",
        "incarnation": 2,
        "resume_from": "",
        "resume_step": None,
    }
    assert orders_for(state, ("trainer", 1), 0) == [order]
    assert orders_for(state, ("reader", 0), 0) == []


def test_a_stop_that_a_failed_rank_causes_is_told_to_its_pod_too_for_it_holds() -> None:
    state = gang(told(0, 2, end(0, **RAISED)), SETTLED)
    assert [len(orders_for(state, ("trainer", index), 0)) for index in (0, 1)] == [1, 1]


def begun_again(state: State, incarnation: int) -> list[Event]:
    """Every pod has cleared its ranks, the first one says where they meet, and all run."""
    keys = list(state.members)
    cleared = [PodCleared(20.0, key, incarnation) for key in keys]
    runs = [told(key[1], 50 * incarnation, state="running", incarnation=incarnation) for key in keys]
    return [*cleared, MeetingPublished(20.0, "trainer", Meeting(incarnation, "127.0.0.5", 23457)), *runs]


@pytest.mark.parametrize(
    ("lent", "second", "why"),
    [
        (1, 1, "the right is used up (1 of 1)"),
        (3, 0, "it is the second time on node-0"),
    ],
)
def test_a_second_failure_may_be_one_too_many(lent: int, second: int, why: str) -> None:
    state = gang(told(0, 2, end(0, **KILLED)), lent=lent)
    state = after(state, *begun_again(state, 2), told(second, 200, end(second, incarnation=2, **KILLED)))
    assert kinds(state) == ["restart", "stop"]
    assert state.orders[-1].why == f"rank {second} of pod-{second} ended with signal 9; not restarted in place: {why}"


def test_on_another_node_ranks_begin_again_once_more() -> None:
    state = gang(told(0, 2, end(0, **KILLED)))
    state = after(state, *begun_again(state, 2), told(1, 200, end(1, incarnation=2, **KILLED)))
    assert [(one.number, one.incarnation, one.rank, one.node) for one in state.restarts] == [
        (1, 2, 0, "node-0"),
        (2, 3, 1, "node-1"),
    ]
    assert state.restarts_left(1000.0) == 1


def test_nobody_meets_before_all_earlier_ranks_are_gone() -> None:
    state = gang(told(0, 2, end(0, **KILLED)))
    first, second, published, *_ = begun_again(state, 2)
    for event in (first, published, first):
        state = after(state, event)
        assert meeting_of(state, "trainer") is None
    met = meeting_of(after(state, second), "trainer")
    assert met is not None
    assert met["incarnation"] == 2


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (PodCleared(20.0, ("trainer", 0), 1), 409),
        (PodCleared(20.0, ("trainer", 0), 3), 409),
        (PodCleared(20.0, ("trainer", 7), 2), 404),
        (MeetingPublished(20.0, "trainer", Meeting(1, "127.0.0.5", 1)), 409),
    ],
)
def test_words_of_another_incarnation_are_refused(event: Event, status: int) -> None:
    with pytest.raises(RefusedError) as refused:
        advance(gang(told(0, 2, end(0, **KILLED))), event)
    assert refused.value.status == status


def test_what_is_known_of_the_ranks_that_were_is_not_said_of_those_that_come() -> None:
    state = gang(told(0, 2, StepSeen(7, 5.0), end(0, **KILLED)))
    assert state.launched_at is None
    assert state.rank_ends == ()
    assert [(one.state, one.pids) for one in state.members.values()] == [("joined", {}), ("joined", {})]
    late = told(1, 2, end(1, **RAISED), StepSeen(9, 6.0, 1), state="running", pids={"1": 101})
    known = after(state, late)
    assert replace(known, members=state.members) == state
    assert (known.members["trainer", 1].pids, known.launched_at) == ({}, None)


def test_steps_that_were_done_before_a_restart_and_told_after_it_are_rows_that_were_rolled_back() -> None:
    state = gang(told(0, 2, StepSeen(7, 5.0), end(1, **KILLED)), resume_from="/c/7", resume_step=7)
    began = state.restarts[0].at
    late = (
        StepSeen(8, began - 0.1),
        StepSeen(9, began),
        StepSeen(10, began + 0.1),
        PhaseSeen("checkpoint", began - 0.05),
    )
    following = advance(state, told(0, 3, *late))
    assert following.effects == (AppendStep((8, began - 0.1, None, None)), AppendStep((9, began, None, None)))
    known = following.state
    assert (known.restarts[0].step, known.restarts[0].first_step, known.progress.phase) == (9, None, "init")
    assert (known.orders, known.rank_ends, known.incarnation) == (state.orders, (), 2)
    again = advance(known, told(0, 4, StepSeen(8, 30.0, incarnation=2)))
    assert again.effects == (AppendStep((8, 30.0, None, None)),)
    assert again.state.restarts[0].first_step == 8
    later = advance(again.state, told(0, 5, StepSeen(9, began - 0.01)))
    assert (later.effects, later.state.progress) == ((), again.state.progress), "the ranks that begin again have spoken"


def test_the_same_step_once_more_is_progress_after_a_restart() -> None:
    state = gang(told(0, 2, StepSeen(7, 5.0), StepSeen(8, 6.0), end(0, **KILLED)), resume_from="/c/7", resume_step=7)
    (restart,) = state.restarts
    assert (restart.step, restart.resume_step, restart.first_step) == (8, 7, None)
    following = advance(state, told(0, 3, StepSeen(8, 30.0, incarnation=2)))
    assert following.effects == (AppendStep((8, 30.0, None, None)),)
    (restart,) = following.state.restarts
    assert (restart.first_step, restart.first_step_at) == (8, 30.0)
    state = after(following.state, told(0, 4, StepSeen(9, 32.0, incarnation=2)))
    assert state.progress.first_step == (7, 5.0)
    assert state.progress.steps_per_second == 0.5
    assert state.restarts == following.state.restarts


@pytest.mark.parametrize(
    ("phase", "moment"), [("checkpoint", ("checkpoint-end", 5.0)), ("evaluation", ("evaluation-end", 12.0))]
)
def test_a_stall_ends_with_its_ranks_and_an_unfinished_save_is_taken_back(phase: str, moment: Any) -> None:
    state = gang(told(0, 2, PhaseSeen(phase, 5.0)))
    moments = [
        e.moment for e in advance(state, told(0, 2 + 0, end(0, **KILLED))).effects if isinstance(e, AppendMoment)
    ]
    assert moments == []  # a batch that was heard already
    effects = advance(state, replace(told(0, 3, end(0, **KILLED)), at=12.0)).effects
    assert [(e.moment.kind, e.moment.at) for e in effects if isinstance(e, AppendMoment)] == [moment]


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([], ("/c/20", 20)),
        ([StepSeen(25, 1.0), saved(25)], ("/c/25", 25)),
        ([StepSeen(31, 1.0), saved(25), saved(30)], ("/c/30", 30)),
        ([StepSeen(31, 1.0), saved(30), saved(25)], ("/c/30", 30)),
        ([StepSeen(31, 1.0), saved(25), saved(30, "fail")], ("/c/25", 25)),
        ([StepSeen(31, 1.0), saved(25), saved(30), saved(30, "fail")], ("/c/25", 25)),
        ([StepSeen(27, 1.0, loss=float("nan")), saved(25), saved(30)], ("/c/25", 25)),
        ([StepSeen(25, 1.0, loss=float("nan")), saved(25)], ("/c/20", 20)),
        ([StepSeen(27, 1.0), saved(300)], ("/c/20", 20)),
        ([StepSeen(27, 1.0), saved(10)], ("/c/20", 20)),
        ([StepSeen(31, 1.0), saved(25), saved(30, resume_from="")], None),
        ([saved(25)], ("/c/25", 25)),
        # Whole, and not read yet: nobody goes on from it, nor is the proof of another one forgotten.
        ([StepSeen(31, 1.0), saved(25), saved(30, "unknown")], ("/c/25", 25)),
        ([StepSeen(31, 1.0), saved(25), saved(25, "unknown")], ("/c/25", 25)),
        ([StepSeen(31, 1.0), saved(30, "unknown", resume_from="")], ("/c/20", 20)),
    ],
)
def test_the_newest_proven_checkpoint_of_this_attempt_is_chosen(reports: list[Any], expected: Any) -> None:
    state = gang(told(0, 2, *reports), resume_from="/c/20", resume_step=20)
    assert choose_checkpoint(state) == expected


@pytest.mark.parametrize("proof_first", [True, False])
def test_a_program_that_finds_a_newer_checkpoint_itself_is_said_to_have_taken_it(proof_first: bool) -> None:
    state = gang(told(0, 2, StepSeen(27, 1.0), end(0, **KILLED)), resume_from="/c/20", resume_step=20)
    assert state.restarts[-1].resume_step == 20, "25 is not proven yet"
    said = [saved(25), StepSeen(26, 30.0, incarnation=2)]
    for number, report in enumerate(said if proof_first else said[::-1], 3):
        state = after(state, told(0, number, report))
    assert (state.restarts[-1].resume_step, state.restarts[-1].resume_from) == (25, "/c/25")
    bad = gang(told(0, 2, StepSeen(27, 1.0), end(0, **KILLED)), resume_from="/c/20", resume_step=20)
    bad = after(bad, told(0, 3, saved(25, "unknown"), saved(25, "fail"), StepSeen(26, 30.0, incarnation=2)))
    assert bad.restarts[-1].resume_step == 20, "what was found bad was not meant"


SAVED = (PhaseSeen("checkpoint", 5.0, detail="saved in 0.1 s"), PhaseSeen("step", 5.1, detail="saved in 0.1 s"))


def test_a_save_that_was_just_told_is_waited_for_until_it_is_proven() -> None:
    state = gang(told(0, 2, StepSeen(25, 4.0), *SAVED), told(1, 3, end(1, **KILLED)))
    assert kinds(state) == []
    state = after(state, TimePassed(13.0 + 2 * SETTLE_SECONDS))
    assert kinds(state) == []
    unread = after(state, told(0, 4, saved(25, "unknown")))
    assert kinds(unread) == []
    assert [one.resume_step for one in after(unread, told(0, 5, saved(25))).restarts] == [25]
    assert [one.resume_step for one in after(state, told(0, 4, saved(25))).restarts] == [25]
    assert [one.resume_step for one in after(state, TimePassed(13.0 + PROOF_SECONDS)).restarts] == [None]


TRAINED = tuple(StepSeen(step, 2.0 * step) for step in range(1, 11))
"""Twenty seconds of training that would be lost without a checkpoint."""


def test_before_all_is_lost_the_first_save_is_waited_for() -> None:
    state = gang(told(0, 2, *TRAINED), told(1, 3, end(1, **KILLED)))
    assert kinds(state) == [], "the prover may not have come to the first save yet"
    assert [one.resume_step for one in after(state, told(0, 4, saved(10))).restarts] == [10]
    assert [one.resume_step for one in after(state, TimePassed(13.0 + PROOF_SECONDS)).restarts] == [None]
    assert kinds(gang(told(0, 2, *TRAINED[:1]), told(1, 3, end(1, **KILLED)))) == ["restart"]


def test_a_save_that_takes_long_to_read_is_waited_for_as_long_as_it_spares() -> None:
    state = gang(told(0, 2, *TRAINED, replace(saved(10, "unknown"), written_at=20.0)), told(1, 3, end(1, **KILLED)))
    state = after(state, TimePassed(13.0 + PROOF_SECONDS))
    assert kinds(state) == []
    assert [one.resume_step for one in after(state, told(0, 4, saved(10))).restarts] == [10]
    late = after(state, TimePassed(13.0 + 21.0))
    assert kinds(late) == ["stop"]
    assert "step 10 is saved and not read yet, a new attempt reads it" in late.orders[-1].why


def test_a_proof_says_nothing_about_ranks_that_raised() -> None:
    state = gang(told(0, 2, StepSeen(25, 4.0), *SAVED, end(0, **RAISED)), told(0, 3, saved(25)))
    assert kinds(state) == []
    assert kinds(after(state, TimePassed(14.0))) == ["stop"]


def test_where_only_a_new_attempt_can_go_on_the_attempt_ends() -> None:
    state = gang(told(0, 2, StepSeen(31, 1.0), saved(30, resume_from=""), end(0, **KILLED)))
    assert state.orders[-1].why.endswith("only a new attempt can go on from the newest checkpoint")


def test_a_memory_that_is_lost_leaves_no_right_and_no_order_unheard() -> None:
    state = gang(joined(1, incarnation=2, heard_order=1))
    assert (state.incarnation, state.restarts_left(1000.0)) == (2, 0)
    state = after(state, told(0, 2, end(0, incarnation=2, **KILLED)))
    assert [(order.number, order.resume) for order in state.orders] == [(2, None)]


def test_a_coordinator_that_dies_while_it_waits_decides_when_it_is_back(tmp_path: Path) -> None:
    path = str(tmp_path / "journal.jsonl")
    body = {"role": "trainer", "pod_index": 0, "sequence": 1}

    def ask(one: Coordinator, method: str, where: str, sent: dict[str, Any]) -> Any:
        answer = one.handle(Request(method, where, {"pod_index": "0"}, "t", sent))
        return ((answer.poll() or answer.timeout_response) if isinstance(answer, DeferredResponse) else answer).body

    statuses: list[Any] = []
    for number in range(3):
        one = Coordinator(ExpectedGang("trainer", 1, 1, 0, LENT), {"PRIMUS_TOKEN": "t"})
        one.open_journal(path)
        if number == 0:
            ask(one, "POST", "/v1/join", {"role": "trainer", "pod_index": 0, "pod": "p", "node": "n"})
            failure = {"report": "RankEnd", "rank": 0, "local_rank": 0, "at": 1.0, "exit_code": 1}
            ask(one, "POST", "/v1/report", {**body, "reports": [failure]})
            assert 0 < one.idle_seconds <= SETTLE_SECONDS
            assert ask(one, "GET", "/v1/orders", {}) == {"orders": []}
        else:
            while one.state.pending is not None:
                one.tick()
            statuses.append(ask(one, "GET", "/v1/orders", {})["orders"])
        one.close()
    assert [order["order"] for order in statuses[0]] == ["stop"]
    assert statuses[0] == statuses[1]


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
