"""The coordinator's decisions as tables, and its memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders.damaged import damaged, reaches
from workflows.programs.coordinator import journal
from workflows.programs.coordinator.progress import STALLS, Progress, apply_report
from workflows.programs.coordinator.reducer import advance, meeting_of, orders_for
from workflows.programs.coordinator.state import (
    AppendMoment,
    AppendStep,
    Event,
    GiveOrder,
    LauncherJoined,
    Meeting,
    MeetingPublished,
    Member,
    RefusedError,
    ReplaceStep,
    ReportsReceived,
    State,
    StopRequested,
)
from workflows.wire import CheckpointSeen, PhaseSeen, RankEnd, StepSeen


def joined(index: int, role: str = "trainer", pod: str = "", essential: bool = True) -> LauncherJoined:
    return LauncherJoined(1.0, Member(role, index, pod or f"{role}-{index}", f"node-{index}", essential=essential))


def told(
    index: int, sequence: int, *reports: Any, state: str = "", why: str = "", role: str = "trainer"
) -> ReportsReceived:
    return ReportsReceived(10.0 + sequence, (role, index), sequence, reports, state, why)


def after(state: State, *events: Event) -> State:
    for event in events:
        state = advance(state, event).state
    return state


def gang(pods: int = 2, processes: int = 2, *events: Event) -> State:
    start = State("trainer", pods, processes)
    return after(start, *(joined(index) for index in range(pods)), *events)


def end(rank: int, **how: Any) -> RankEnd:
    return RankEnd(rank=rank, local_rank=0, at=1.0, **how)


MEETING = MeetingPublished(2.0, "trainer", Meeting(1, "127.0.0.5", 23456))


def test_a_gang_meets_when_all_have_joined_and_the_first_has_published() -> None:
    state = State("trainer", 2, 4)
    for event in (joined(1), MEETING, joined(0)):
        assert meeting_of(state, "trainer") is None
        state = after(state, event)
    assert meeting_of(state, "trainer") == {
        "incarnation": 1,
        "master_addr": "127.0.0.5",
        "master_port": 23456,
        "world_size": 8,
        "assignments": {"0": 0, "1": 4},
    }
    named = meeting_of(state, "trainer", 1)
    assert named is not None
    assert named["assignments"] == {"1": 4}


def test_another_role_meets_by_itself() -> None:
    helper = replace(joined(0, "reader").member, pods=1, processes=3)
    state = gang(2, 2, LauncherJoined(1.0, helper), MeetingPublished(2.0, "reader", Meeting(1, "127.0.0.7", 1)))
    found = meeting_of(state, "reader")
    assert found is not None
    assert found["world_size"] == 3
    assert meeting_of(state, "trainer") is None


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (joined(0, pod="an impostor"), 409),
        (joined(7), 409),
        (MeetingPublished(2.0, "trainer", Meeting(2, "127.0.0.5", 1)), 409),
        (told(5, 1, StepSeen(1, 1.0)), 404),
    ],
)
def test_what_contradicts_the_gang_is_refused(event: Event, status: int) -> None:
    with pytest.raises(RefusedError) as refused:
        advance(gang(), event)
    assert refused.value.status == status


def test_joining_again_keeps_what_is_known_of_the_member() -> None:
    state = gang(2, 2, told(0, 4, state="running"), joined(0))
    member = state.members["trainer", 0]
    assert (member.state, member.sequence) == ("running", 4)


@pytest.mark.parametrize(
    ("event", "orders"),
    [
        (told(0, 1, end(0, exit_code=0)), []),
        (told(0, 1, end(0, exit_code=1)), [(False, ("trainer", 0))]),
        (told(0, 1, end(0, signal=9)), [(False, ("trainer", 0))]),
        (told(0, 1, end(0, signal=9, requested=True)), []),
        (told(0, 1, end(0, exit_code=143, requested=True)), []),
        (told(0, 1, state="leaving", why="SIGTERM"), [(True, ("trainer", 0))]),
        (told(0, 1, state="failed", why="exit 0 too early"), [(False, ("trainer", 0))]),
        (told(0, 1, state="ended"), []),
        (StopRequested(5.0, "asked", True), [(True, None)]),
        (StopRequested(5.0, "asked", False), [(False, None)]),
    ],
)
def test_what_ends_a_gang_and_whether_it_may_save(event: Event, orders: list[tuple[bool, Any]]) -> None:
    state = after(gang(), event)
    assert [(order.save, order.source) for order in state.orders] == orders


def test_the_one_who_caused_an_order_is_not_told_and_everybody_else_is() -> None:
    state = after(gang(3), told(1, 1, end(2, signal=9)))
    assert [len(orders_for(state, ("trainer", index), 0)) for index in range(3)] == [1, 0, 1]
    assert orders_for(state, ("trainer", 0), 1) == []


def test_a_stop_is_said_once_and_again_only_when_it_becomes_urgent() -> None:
    state = after(
        gang(3),
        StopRequested(1.0, "drain", True),
        StopRequested(2.0, "drain", True),
        told(0, 1, end(0, signal=9)),
        told(1, 1, end(2, signal=9)),
        StopRequested(3.0, "drain", True),
    )
    assert [(order.number, order.save) for order in state.orders] == [(1, True), (2, False)]


def test_a_member_that_is_not_essential_may_fail() -> None:
    state = after(
        gang(), joined(0, "reader", essential=False), told(0, 1, end(0, signal=9), state="failed", role="reader")
    )
    assert state.orders == ()


def test_a_batch_that_is_sent_twice_counts_once() -> None:
    batch = told(0, 1, StepSeen(1, 5.0), end(0, exit_code=0))
    once = after(gang(), batch)
    assert advance(once, batch) == (once, ())


def test_the_gang_is_launched_when_its_last_pod_is() -> None:
    state = after(gang(), told(0, 1, state="running"))
    assert state.launched_at is None
    assert after(state, told(1, 5, state="running")).launched_at == 15.0


def test_only_the_lowest_rank_that_reports_steps_is_counted() -> None:
    reports = [StepSeen(1, 1.0, rank=2), StepSeen(2, 2.0, rank=2), StepSeen(3, 3.0, rank=0), StepSeen(9, 4.0, rank=2)]
    effects = [effect for n, r in enumerate(reports) for effect in advance(gang(), told(0, n + 1, r)).effects]
    assert len(effects) == 4
    state = after(gang(), told(0, 1, *reports))
    assert [row[0] for row in state.progress.recent] == [1, 2, 3]
    assert state.progress.first_step == (1, 1.0)


def test_where_it_ends_first_the_next_rank_is_counted_from_there_on() -> None:
    first = (StepSeen(1, 1.0, rank=0), StepSeen(2, 2.0, rank=0), end(0, exit_code=0))
    others = [StepSeen(step, float(step), rank=rank) for step in (1, 2, 3, 4) for rank in (1, 2)]
    state = after(gang(), told(0, 1, *first), told(1, 1, *others))
    assert [row[0] for row in state.progress.recent] == [1, 2, 3, 4]
    assert state.progress.reporting_rank == 1
    assert after(gang(), told(0, 1, *first[:2], end(0, signal=9)), told(1, 1, *others)).progress.step == 2


def test_a_loss_that_arrives_later_completes_the_row() -> None:
    state, effects = advance(
        gang(), told(0, 1, StepSeen(5, 1.0), StepSeen(5, 1.2, loss=2.5), StepSeen(5, 1.3, loss=2.5))
    )
    assert effects == (AppendStep((5, 1.0, None, None)), ReplaceStep((5, 1.0, None, 2.5)))
    assert state.progress.loss == 2.5


def test_progress_knows_rate_interval_and_the_first_nan() -> None:
    steps = [StepSeen(10, 0.0, loss=1.0), StepSeen(20, 5.0, loss=float("nan")), StepSeen(30, 10.0, loss=float("inf"))]
    progress = after(gang(), told(0, 1, *steps)).progress
    assert (progress.steps_per_second, progress.interval, progress.first_nan_step) == (2.0, 10, 20)


def test_a_rate_is_not_guessed() -> None:
    assert gang().progress.steps_per_second is None
    back = after(gang(), told(0, 1, StepSeen(10, 0.0), StepSeen(3, 5.0)))
    assert back.progress.steps_per_second is None
    assert back.progress.step == 3


def test_only_proven_checkpoints_count_as_last() -> None:
    seen = [CheckpointSeen(10, "/c/10", 1.0, "pass"), CheckpointSeen(20, "/c/20", 2.0, "fail")]
    progress = after(gang(), told(0, 1, *seen)).progress
    assert (progress.last_checkpoint_step, len(progress.checkpoints)) == (10, 2)


def test_phases_of_higher_ranks_do_not_hide_the_reporting_ranks() -> None:
    state = after(gang(), told(0, 1, StepSeen(1, 1.0, rank=0), PhaseSeen("checkpoint", 2.0, rank=3)))
    assert state.progress.phase == "step"
    assert after(state, told(0, 2, PhaseSeen("checkpoint", 3.0, rank=0))).progress.phase == "checkpoint"


reports = st.one_of(
    st.builds(StepSeen, st.integers(1, 50), st.floats(0, 100), st.integers(0, 3), st.floats() | st.none()),
    st.builds(PhaseSeen, st.sampled_from(["init", "step", *STALLS]), st.floats(0, 100), st.integers(0, 3)),
    st.builds(CheckpointSeen, st.integers(1, 50), st.just("/c"), st.floats(0, 100), st.sampled_from(["pass", "fail"])),
    st.builds(
        RankEnd, st.integers(0, 3), st.just(0), st.floats(0, 9), st.integers(0, 2) | st.none(), st.none() | st.just(9)
    ),
)
events = st.one_of(
    st.builds(joined, st.integers(0, 3)),
    st.builds(
        ReportsReceived,
        st.floats(0, 100),
        st.tuples(st.just("trainer"), st.integers(0, 3)),
        st.integers(1, 30),
        st.lists(reports, max_size=4).map(tuple),
        st.sampled_from(["", "running", "leaving", "failed", "ended"]),
    ),
    st.just(MEETING),
    st.builds(StopRequested, st.floats(0, 100), st.text(max_size=5), st.booleans()),
)


def play(history: list[Event]) -> tuple[State, list[Event], list[Any]]:
    state = State("trainer", 4, 1)
    kept: list[Event] = []
    rows: list[Any] = []
    for event in history:
        remembered = journal.for_journal(state, event)
        try:
            state, effects = advance(state, event)
        except RefusedError:
            continue
        kept += [] if remembered is None else [remembered]
        rows += [effect for effect in effects if isinstance(effect, (AppendStep, AppendMoment))]
    return state, kept, rows


def as_launchers_number(history: list[Event]) -> list[Event]:
    """Batches are numbered in the order in which they are sent, and one that is sent again is the same."""
    sent: dict[tuple[str, int], dict[int, ReportsReceived]] = {}
    told: list[Event] = []
    for event in history:
        if isinstance(event, ReportsReceived):
            before = sent.setdefault(event.key, {})
            if event.sequence not in before and event.sequence < max(before, default=0):
                continue
            told.append(before.setdefault(event.sequence, event))
        else:
            told.append(event)
    return told


@given(st.lists(events, max_size=25).map(as_launchers_number))
def test_a_journal_brings_back_the_same_state(history: list[Event]) -> None:
    state, kept, rows = play(history)
    again, _, rows_again = play(journal.read_events(journal.to_line(event) for event in kept))
    for name in ("orders", "rank_ends", "incarnation", "meetings"):
        assert repr(getattr(again, name)) == repr(getattr(state, name))
    assert repr(again.progress) == repr(state.progress)
    assert repr(rows_again) == repr(rows)
    assert {key: (m.state, m.started_at) for key, m in again.members.items()} == {
        key: (m.state, m.started_at) for key, m in state.members.items()
    }


@given(st.lists(events, max_size=25))
def test_orders_are_numbered_and_at_most_two(history: list[Event]) -> None:
    state, _, _ = play(history)
    assert [order.number for order in state.orders] == list(range(1, len(state.orders) + 1))
    assert len(state.orders) <= 2
    assert [order.save for order in state.orders] in ([], [True], [False], [True, False])


JOURNALS = damaged(
    [
        *(journal.to_line(event) for event in (joined(0), MEETING, StopRequested(1.0, "why", True))),
        journal.to_line(told(0, 1, StepSeen(3, 5.0), end(0, exit_code=1), state="failed", why="x")),
    ],
    ["null", "{}", "[]", '"', "NaN", "1e999", '{"event":', '"Joined"', '"Reported"', ","],
)


@given(JOURNALS | st.text())
def test_no_line_breaks_the_reading_of_a_journal(text: str) -> None:
    event = journal.from_line(text)
    if event is not None:  # what was read is written and read again as the same
        assert repr(journal.from_line(journal.to_line(event))) == repr(event)


def test_such_lines_are_events_and_broken_events() -> None:
    whole = journal.to_line(MEETING)
    assert reaches(JOURNALS, lambda text: text != whole and isinstance(journal.from_line(text), MeetingPublished))
    assert reaches(JOURNALS, lambda text: '{"event":' in text and journal.from_line(text) is None)


def test_a_line_that_was_cut_off_is_left_out() -> None:
    whole = journal.to_line(joined(0))
    assert journal.read_events([whole, whole[: len(whole) // 2]]) == [joined(0)]


def test_effects_name_their_order() -> None:
    effects = advance(gang(), StopRequested(1.0, "why", True)).effects
    assert [effect.order.why for effect in effects if isinstance(effect, GiveOrder)] == ["why"]


def test_what_a_higher_rank_has_told_already_is_no_step_once_more() -> None:
    progress, rows = Progress(), list[int]()
    for rank, steps in ((2, range(1, 8)), (0, range(1, 8)), (2, range(8, 10)), (0, range(8, 10))):
        for step in steps:
            told = apply_report(progress, StepSeen(step, 10.0 + step, rank))
            progress = told.progress
            rows += [] if told.row is None or told.replaces_last else [told.row[0]]
    assert rows == list(range(1, 10))
    assert progress.reporting_rank == 0
