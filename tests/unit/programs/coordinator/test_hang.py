"""A gang that hangs, as its coordinator sees it: stacks asked for, somebody named, ranks begun again or let alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.builders.restarting_gangs import gang, joined, saved, told
from workflows.programs.coordinator import journal
from workflows.programs.coordinator.budgets import HangLimits
from workflows.programs.coordinator.hangs import ANSWER_SECONDS, TEXT_BYTES, TICK_SECONDS, HangWatch
from workflows.programs.coordinator.reducer import advance, orders_for
from workflows.programs.coordinator.state import (
    Event,
    HangConfirmed,
    HangSuspected,
    Meeting,
    MeetingPublished,
    PodCleared,
    RefusedError,
    State,
    StopRequested,
)
from workflows.programs.stacks.values import STOPPED, Dump, Frame, ProcessStacks, StackAnswer, Thread
from workflows.wire import PhaseSeen, RankEnd, StepSeen

LIMITS = HangLimits(init_seconds=30.0, step_floor_seconds=1.0, announces=True)
WAITS = [Frame("recv_into", "socket"), Frame("all_reduce", "workflows/programs/demo/collective.py", 46)]
WORKS = [Frame("matmul", "/site-packages/numpy/core.py", 3), Frame("forward", "/work/model.py", 40)]
PODS = 4


def dump(index: int, frames: list[Frame], state: str = "sleeping") -> StackAnswer:
    process = ProcessStacks(
        index, 100 + index, "python3", state=state, threads=[Thread(1, "MainThread", frames=frames)]
    )
    return StackAnswer(f"pod-{index}", "", Dump(f"node-{index}", 1.0, 0.1, [process]))


@dataclass
class Watched:
    """A gang of four pods on a clock that is moved by hand; launchers answer for stacks as `answers` says."""

    lent: int = 3
    answers: dict[int, StackAnswer] = field(default_factory=dict[int, StackAnswer])
    silent: tuple[int, ...] = ()
    limits: HangLimits = LIMITS
    planned: int = 0
    now: float = 100.0
    step: int = 0
    sequence: int = 10
    kept: list[Event] = field(default_factory=list[Event])
    said: list[Event] = field(default_factory=list[Event])
    heard: dict[Any, float] = field(default_factory=dict[Any, float])

    def __post_init__(self) -> None:
        self.state = gang(pods=PODS, lent=self.lent)
        self.hang = HangWatch(self.limits)
        self.start = State("trainer", PODS, 1, restarts_lent=self.lent, steps=self.planned)
        before, self.state = self.state, self.start
        for index in range(PODS):
            self.take(joined(index))
        for index in range(PODS):
            self.take(told(index, 1, state="running", pids={str(index): 100 + index}))
        assert self.state.members == before.members

    def take(self, event: Event) -> None:
        before = self.state
        worth = journal.for_journal(before, event)
        self.kept += [] if worth is None else [worth]
        self.state = advance(before, event).state
        self.hang.update(before, self.state, event)

    def tell(self, index: int, *reports: Any, **more: Any) -> None:
        self.sequence += 1
        self.take(told(index, self.sequence, *reports, **more))

    def steps(self, count: int, seconds: float = 0.1) -> None:
        for _ in range(count):
            self.wait(seconds)
            self.step += 1
            self.tell(0, StepSeen(self.step, self.now, incarnation=self.state.incarnation))

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.now = min(end, self.now + TICK_SECONDS)
            self.heard.update({key: self.now for key in self.state.members if key[1] not in self.silent})
            event = self.hang.tick(self.state, self.heard, self.now)
            if event is not None:
                self.said.append(event)
                self.take(event)
                self._answer(event)

    def _answer(self, event: Event) -> None:
        for index in range(PODS) if isinstance(event, HangSuspected) else ():
            (order,) = [one for one in orders_for(self.state, ("trainer", index), 0) if one.stacks]
            if index in self.answers:
                one = self.answers[index]
                self.hang.add_stacks(StackAnswer(one.pod, order.stacks, one.dump), self.state)

    def begin_again(self) -> None:
        """All pods have cleared their ranks and run the next incarnation."""
        number = self.state.incarnation
        for index in range(PODS):
            self.take(PodCleared(self.now, ("trainer", index), number))
        self.take(MeetingPublished(self.now, "trainer", Meeting(number, "127.0.0.5", 23456 + number)))
        for index in range(PODS):
            self.tell(index, state="running", pids={str(index): 200 + index}, incarnation=number)
        self.step = (self.state.restarts[-1].resume_step or 0) if self.state.restarts else 0

    @property
    def orders(self) -> list[str]:
        return [order.to_json()["order"] for order in self.state.orders]


ONE_WORKS = {0: dump(0, WAITS), 1: dump(1, WAITS), 2: dump(2, WORKS), 3: dump(3, WAITS)}
ONE_IS_STOPPED = {**{index: dump(index, WAITS) for index in range(PODS)}, 2: dump(2, [], STOPPED)}


def test_after_the_last_step_of_the_profile_the_end_may_take_as_long_as_the_beginning() -> None:
    one = Watched(answers=ONE_WORKS, planned=40)  # its lines say nothing of how many steps there are
    one.steps(40)
    one.wait(LIMITS.init_seconds - 1)
    assert not one.said
    one.wait(2.0)
    assert [type(event) for event in one.said] == [HangSuspected]
    earlier = Watched(answers=ONE_WORKS, planned=41)
    earlier.steps(40)
    earlier.wait(2.5)
    assert earlier.state.restarts


@pytest.mark.parametrize("answers", [ONE_WORKS, ONE_IS_STOPPED])
def test_the_rank_for_which_the_others_wait_is_named_and_all_begin_again(answers: dict[int, StackAnswer]) -> None:
    one = Watched(answers=answers)
    one.steps(40)
    began = one.now
    while not one.state.restarts:
        one.wait(TICK_SECONDS)
    assert one.now - began <= 2.0
    assert [type(event) for event in one.said] == [HangSuspected, HangConfirmed]
    (restart,) = one.state.restarts
    assert (restart.kind, restart.rank, restart.node, restart.step) == ("hang", 2, "node-2", 40)
    assert "no progress for" in restart.why
    assert "rank 2 on node-2" in restart.why
    assert "3 ranks (0, 1, 3), wait in all_reduce" in restart.stacks
    assert one.orders == ["stacks", "restart"]
    assert one.hang.status() is not None  # until it goes on
    one.begin_again()
    one.steps(30)
    assert one.hang.status() is None
    assert len(one.state.restarts) == 1


@pytest.mark.parametrize("early", [(1,), (1, 2), (1, 2, 3), (0,), (0, 1, 2)])
def test_those_who_wait_for_ranks_that_left_hang_as_any_others_and_the_first_who_left_is_named(
    early: tuple[int, ...],
) -> None:
    one = Watched()
    one.steps(40)
    for index in early:
        one.tell(index, RankEnd(index, 0, one.now + index / 100, 0, last_step=40), state="ended")
    one.silent = early
    began = one.now
    while not one.state.is_stopping:
        one.wait(TICK_SECONDS)
    assert one.now - began <= 2.0 + ANSWER_SECONDS
    why = one.state.orders[-1].why
    assert f"all wait for rank {early[0]} on node-{early[0]}, which has ended with exit code 0 after step 40" in why
    assert f"{len(early)} pods have ended" in why


def test_those_who_train_on_after_others_have_left_do_not_hang() -> None:
    one = Watched()
    one.steps(40)
    one.tell(0, RankEnd(0, 0, one.now, 0, last_step=40), state="ended")
    one.silent = (0,)
    for step in range(41, 81):
        one.wait(0.1)
        one.tell(1, StepSeen(step, one.now, rank=1))
    assert not one.said
    reference = one.hang.watch.reference
    assert reference is not None
    assert (reference.rank, reference.step) == (1, 80)
    for index in range(1, PODS):
        one.tell(index, RankEnd(index, 0, one.now, 0), state="ended")
    one.wait(100.0)
    assert not one.said


def test_a_rank_that_is_behind_trains_on_after_a_faster_one_has_done_all_and_left() -> None:
    one = Watched(planned=80, limits=HangLimits(init_seconds=30.0, step_floor_seconds=1.0, announces=True))
    for step in range(1, 81):
        one.wait(0.1)
        one.tell(1, StepSeen(step, one.now, rank=1))
        if step % 2 == 0:
            one.tell(0, StepSeen(step // 2, one.now, rank=0))
    one.tell(1, RankEnd(1, 0, one.now, 0, last_step=80), state="ended")
    one.silent = (1,)
    for step in range(41, 401):
        one.wait(0.2)
        one.tell(0, StepSeen(step, one.now, rank=0))
    assert not one.said


def test_a_save_that_nobody_has_read_makes_no_mistake_cheaper() -> None:
    gang = Watched()
    gang.steps(5)
    gang.tell(0, saved(5, "unknown"))
    assert gang.hang.watch.saved_step == 0
    gang.tell(0, saved(5))
    assert gang.hang.watch.saved_step == 5


def test_the_same_node_twice_ends_the_attempt_with_the_reason() -> None:
    one = Watched(answers=ONE_WORKS)
    one.steps(40)
    one.wait(3.0)
    one.begin_again()
    one.steps(60)
    one.wait(30.0)
    assert one.orders[-1] == "stop"
    assert "not restarted in place: it is the second time on node-2" in one.state.orders[-1].why
    assert one.hang.status() is None


def test_without_a_token_left_the_attempt_ends() -> None:
    one = Watched(lent=1, answers={0: dump(0, WAITS)})
    one.steps(40)
    one.wait(5.0)
    one.begin_again()
    one.steps(40)
    one.wait(30.0)
    assert one.state.orders[-1].why.endswith("not restarted in place: the right is used up (1 of 1)")


def test_without_the_right_a_hang_is_only_told() -> None:
    one = Watched(lent=0, answers=ONE_WORKS)
    one.steps(40)
    one.wait(60.0)
    assert one.orders == ["stacks"]
    assert [type(event) for event in one.said] == [HangSuspected, HangConfirmed]
    status = one.hang.status()
    assert status is not None
    assert (status.verdict, status.rank, status.node, status.phase) == ("confirmed", 2, "node-2", "step")
    assert status.waited_seconds > (status.budget_seconds or 0.0)
    one.steps(3)
    assert one.hang.status() is None


def test_where_nobody_gives_stacks_all_begin_again_and_nobody_is_blamed() -> None:
    one = Watched()
    one.steps(40)
    began = one.now
    while not one.state.restarts:
        one.wait(TICK_SECONDS)
    (restart,) = one.state.restarts
    assert (restart.rank, restart.node, restart.stacks) == (None, "", "")
    assert restart.why.endswith("no launcher gave stacks within 3 s")
    assert one.now - began <= 1.2 + ANSWER_SECONDS + 2 * TICK_SECONDS
    one.begin_again()
    one.steps(40)
    one.wait(40.0)
    # Nobody was named, so no node can have failed twice.
    assert [restart.node for restart in one.state.restarts] == ["", ""]


@pytest.mark.parametrize(
    ("silent", "verdict", "restarts"), [((0, 1, 2), "observer", 0), ((1,), "confirmed", 1), ((), "confirmed", 1)]
)
def test_while_most_launchers_are_silent_it_is_us_who_do_not_hear(
    silent: tuple[int, ...], verdict: str, restarts: int
) -> None:
    one = Watched(answers=ONE_WORKS)
    one.steps(40)
    one.silent = silent
    one.wait(20.0)
    status = one.hang.status()
    assert status is not None
    assert (status.verdict, len(one.state.restarts)) == (verdict, restarts)


def test_a_stop_of_a_second_a_slow_gang_and_announced_pauses_are_no_hang() -> None:
    one = Watched(answers=ONE_WORKS)
    one.steps(40)
    one.wait(1.0)
    one.steps(30)
    one.steps(30, 0.3)
    one.tell(0, PhaseSeen("checkpoint", one.now))
    one.wait(120.0)
    one.tell(0, PhaseSeen("step", one.now))
    one.steps(5)
    # A look at the stacks harms nobody.
    assert set(one.orders) <= {"stacks"}
    assert not any(isinstance(event, HangConfirmed) for event in one.said)


def test_ranks_that_never_come_to_a_first_step_hang_where_a_limit_is_known() -> None:
    one, never = Watched(answers=ONE_WORKS), Watched(limits=HangLimits(init_seconds=float("inf")), answers=ONE_WORKS)
    one.wait(50.0)
    never.wait(100_000.0 * TICK_SECONDS)
    assert [restart.step for restart in one.state.restarts] == [None]
    assert never.said == []
    assert never.hang.status() is None


def test_a_gang_that_was_told_to_stop_or_has_ended_is_not_watched() -> None:
    one, other = Watched(), Watched()
    for watched in (one, other):
        watched.steps(40)
    one.take(StopRequested(one.now, "asked", True))
    for index in range(PODS):
        other.tell(index, state="ended")
    for watched in (one, other):
        assert not watched.hang.is_watching
        watched.wait(100.0)
        assert watched.said == []


@pytest.mark.parametrize(("pod", "order"), [("pod-2", "s0"), ("pod-9", "s1"), ("", "s1"), ("pod-2", "")])
def test_stacks_that_nobody_asked_for_are_refused(pod: str, order: str) -> None:
    one = Watched()
    one.steps(40)
    one.wait(1.5)
    assert one.orders == ["stacks"]
    with pytest.raises(RefusedError) as refused:
        one.hang.add_stacks(StackAnswer(pod, order, dump(2, WORKS).dump), one.state)
    assert refused.value.status == 409


def test_a_launcher_speaks_for_its_own_ranks_only() -> None:
    lies = Dump("node-9", 1.0, 0.1, [*dump(2, WORKS).dump.processes, *dump(0, WORKS).dump.processes])
    one = Watched(answers={**ONE_WORKS, 2: StackAnswer("pod-2", "", lies)})
    one.steps(40)
    one.wait(3.0)
    (restart,) = one.state.restarts
    assert (restart.rank, restart.node) == (2, "node-2")


def test_the_text_of_many_different_stacks_is_bounded() -> None:
    frames = [Frame(f"{'f' * 300}{chr(97 + depth)}", "/x/y.py", depth) for depth in range(30)]
    answers = {index: dump(index, [Frame(f"own_{'abcd'[index]}", "/m.py"), *frames]) for index in range(PODS)}
    one = Watched(answers=answers)
    one.steps(40)
    one.wait(5.0)
    (restart,) = one.state.restarts
    assert 0 < len(restart.stacks.encode()) <= TEXT_BYTES


def test_a_journal_brings_back_restarts_orders_and_the_watch() -> None:
    one = Watched(answers=ONE_WORKS)
    one.steps(40)
    one.wait(3.0)
    state, watch = one.start, HangWatch(LIMITS)
    for event in journal.read_events(journal.to_line(event) for event in one.kept):
        before, state = state, advance(state, event).state
        watch.update(before, state, event)
    assert (state.restarts, state.orders, state.restarts_left(one.now)) == (one.state.restarts, one.state.orders, 2)
    assert state.incarnation == 2
    assert watch.watch.steps.count == one.hang.watch.steps.count > 20


def test_what_is_said_of_an_earlier_incarnation_starts_nothing() -> None:
    one = Watched(answers=ONE_WORKS)
    one.steps(40)
    one.wait(3.0)
    state = one.state
    for late in (HangSuspected(one.now, 1, "late"), HangConfirmed(one.now, 1, "late", 2, "node-2")):
        assert advance(state, late).state == state
