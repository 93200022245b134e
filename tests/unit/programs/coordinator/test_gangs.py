"""Several gangs under one coordinator: who begins again with whom, what they share, and that one end is everybody's."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.support.builders.restarting_gangs import KILLED, RAISED, end
from workflows.programs.coordinator import journal
from workflows.programs.coordinator.reducer import meeting_of, orders_for
from workflows.programs.coordinator.scopes import (
    Gangs,
    Layout,
    RoleShape,
    advance_all,
    all_restarts,
    build_gangs,
    merge_gangs,
)
from workflows.programs.coordinator.state import (
    Announce,
    Event,
    HangConfirmed,
    HangSuspected,
    LauncherJoined,
    Meeting,
    MeetingPublished,
    Member,
    PodCleared,
    RefusedError,
    ReportsReceived,
    RightChanged,
    State,
    StopRequested,
    TimePassed,
)
from workflows.wire import CheckpointSeen, PhaseSeen, StepSeen

TRAINER = RoleShape("trainer", 4, 2)
DATA = RoleShape("data", 1, 1)
LIKE = State("trainer", restarts_lent=3)


def member(role: str, index: int) -> Member:
    found = Member(role, index, f"{role}-{index}", f"node-{role}-{index}")
    return dataclasses.replace(found, resume_from="/c/2", resume_step=2)


class One:
    """An attempt to which something happens."""

    def __init__(self, layout: Layout, like: State = LIKE) -> None:
        self.gangs, self.events = build_gangs(layout, like), list[Event]()
        self.sequence = 1
        for role, pods, _ in (layout.deciding_role, *layout.others):
            for index in range(pods):
                self.take(LauncherJoined(1.0, member(role, index)))
                pids = {str(index): 100}
                self.take(ReportsReceived(2.0, (role, index), 1, (), "running", pids=pids))

    def take(self, event: Event) -> None:
        self.events.append(event)
        self.gangs = advance_all(self.gangs, event).gangs

    def tell(self, role: str, index: int, *reports: Any, at: float = 10.0, **more: Any) -> None:
        self.sequence += 1
        self.take(ReportsReceived(at, (role, index), self.sequence, reports, **more))

    def orders(self, role: str, index: int) -> list[str]:
        key = (role, index)
        return [str(one.to_json()["order"]) for one in orders_for(self.gangs.of(key), key, 0)]


@pytest.mark.parametrize(
    ("scope", "groups", "others", "expected"),
    [
        ("gang", 1, (DATA,), [("trainer", 0, 4, ("data",), "gang")]),
        ("role", 1, (DATA,), [("trainer", 0, 4, (), "role"), ("data", 0, 1, (), "role")]),
        ("replica", 2, (DATA,), [("trainer", 0, 2, (), "replica"), ("trainer", 2, 2, (), "replica"),
                                 ("data", 0, 1, (), "role")]),
        ("gang", 1, (), [("trainer", 0, 4, (), "role")]),
    ],
)  # fmt: skip
def test_which_gangs_there_are(scope: str, groups: int, others: tuple[RoleShape, ...], expected: list[Any]) -> None:
    gangs = build_gangs(Layout(TRAINER, others, scope, groups), LIKE)
    found = [(one.deciding_role, one.first_pod, one.pods, one.companions, one.scope) for one in gangs.states]
    assert found == expected
    assert sum(one.share for one in gangs.trainers) == 1.0


def test_only_the_replica_group_of_a_killed_rank_begins_again() -> None:
    one = One(Layout(TRAINER, (DATA,), "replica", 2))
    one.tell("trainer", 3, end(6, **KILLED))
    assert [one.orders("trainer", index) for index in range(4)] == [[], [], ["restart"], ["restart"]]
    assert one.orders("data", 0) == []
    first, second, data = one.gangs.states
    assert [state.incarnation for state in one.gangs.states] == [1, 2, 1]
    (restart,) = all_restarts(one.gangs)
    assert (restart.rank, restart.pods, restart.share, restart.scope) == (6, (2, 4), 0.5, "replica")
    assert [state.restarts_left(11.0) for state in (first, second, data)] == [2, 2, 2], "one right for all"


def test_a_replica_group_meets_by_itself_and_only_when_nothing_of_it_lives() -> None:
    one = One(Layout(TRAINER, (), "replica", 2))
    one.tell("trainer", 3, end(6, **KILLED))
    one.take(MeetingPublished(11.0, "trainer", Meeting(2, "127.0.0.7", 1234), 2))
    one.take(PodCleared(11.0, ("trainer", 2), 2))
    assert meeting_of(one.gangs.of(("trainer", 3)), "trainer", 3) is None
    one.take(PodCleared(11.0, ("trainer", 3), 2))
    told = meeting_of(one.gangs.of(("trainer", 3)), "trainer", 3)
    assert told is not None
    assert (told["incarnation"], told["world_size"], told["assignments"]) == (2, 4, {"3": 6})
    with pytest.raises(RefusedError, match="incarnation 2 is not this one"):
        one.take(MeetingPublished(11.0, "trainer", Meeting(2, "127.0.0.5", 1234), 0))


def test_the_right_is_one_and_a_node_counts_for_all() -> None:
    one = One(Layout(TRAINER, (DATA,), "replica", 2), dataclasses.replace(LIKE, restarts_lent=2))
    one.tell("trainer", 0, end(0, **KILLED))
    one.tell("data", 0, end(0, **KILLED), at=11.0)
    assert [(item.number, item.node) for item in all_restarts(one.gangs)] == [(1, "node-trainer-0"), (2, "node-data-0")]
    one.tell("trainer", 3, end(6, **KILLED), at=12.0)
    assert all("stop" in one.orders("trainer", index) for index in range(4)), "the end of one is everybody's"
    assert one.orders("data", 0) == ["restart", "stop"]
    assert "the right is used up (2 of 2)" in one.gangs.states[1].orders[-1].why


def test_the_right_comes_back_with_time() -> None:
    one = One(Layout(TRAINER, (), "gang"), dataclasses.replace(LIKE, restarts_lent=1, window_seconds=100.0))
    one.tell("trainer", 0, end(0, **KILLED), at=10.0)
    assert [one.gangs.main.restarts_left(at) for at in (10.0, 109.9, 110.1)] == [0, 0, 1]
    one.tell("trainer", 1, end(2, 2, **KILLED), at=111.0, incarnation=2)
    assert one.orders("trainer", 0) == ["restart", "restart"]


def test_in_scope_gang_a_companion_begins_again_too_and_all_wait_for_all() -> None:
    one = One(Layout(TRAINER, (DATA,), "gang"))
    one.tell("data", 0, end(0, **KILLED))
    assert [one.orders("trainer", index) for index in range(4)] == [["restart"]] * 4
    assert one.orders("data", 0) == ["restart"]
    one.take(MeetingPublished(11.0, "trainer", Meeting(2, "127.0.0.5", 1234)))
    one.take(MeetingPublished(11.0, "data", Meeting(2, "127.0.0.9", 1235)))
    for index in range(4):
        one.take(PodCleared(11.0, ("trainer", index), 2))
    assert meeting_of(one.gangs.main, "trainer", 0) is None, "a rank of the companion may live"
    one.take(PodCleared(11.0, ("data", 0), 2))
    assert meeting_of(one.gangs.main, "trainer", 0) is not None
    assert meeting_of(one.gangs.main, "data", 0) is not None


def test_in_scope_role_another_role_begins_again_alone_from_the_checkpoint_that_was_proven_elsewhere() -> None:
    one = One(Layout(TRAINER, (DATA,), "role"))
    one.tell("trainer", 0, StepSeen(8, 9.0, 0), CheckpointSeen(7, "/c/7", 9.0, "pass", resume_from="/c/7"))
    one.tell("data", 0, end(0, **KILLED))
    assert [one.orders("trainer", index) for index in range(4)] == [[]] * 4
    (restart,) = all_restarts(one.gangs)
    assert (restart.node, restart.resume_step, restart.share) == ("node-data-0", 7, 0.0)


def test_another_role_does_not_begin_again_from_what_nobody_has_read() -> None:
    one = One(Layout(TRAINER, (DATA,), "role"))
    unread = CheckpointSeen(7, "/c/7", 9.0, "unknown", resume_from="/c/7", written_at=9.0)
    one.tell("trainer", 0, StepSeen(8, 9.0, 0), unread)
    assert [(state.progress.checkpoints, state.progress.saves.written) for state in one.gangs.states] == [((), 7)] * 2
    one.tell("data", 0, end(0, **KILLED))
    assert not all_restarts(one.gangs), "its proof may come"
    one.take(TimePassed(20.0, 1))
    assert [(use.resume_step, use.resume_from) for use in all_restarts(one.gangs)] == [(2, "/c/2")]


def test_an_exception_in_another_role_ends_the_attempt() -> None:
    one = One(Layout(TRAINER, (DATA,), "role"))
    one.tell("data", 0, end(0, **RAISED))
    one.take(TimePassed(20.0, 1))
    assert all(one.orders("trainer", index) == ["stop"] for index in range(4))


@pytest.mark.parametrize("scope", ["gang", "replica"])
def test_what_is_withheld_is_not_used_and_comes_back(scope: str) -> None:
    one = One(Layout(TRAINER, (), scope, 2 if scope == "replica" else 1))
    one.take(RightChanged(9.0, "the run is paused"))
    before = one.gangs
    one.take(HangConfirmed(9.5, 1, "no progress", 0, "node-trainer-0"))
    assert one.gangs.main.orders == before.main.orders, "nobody is killed for a hang while automation is paused"
    one.take(RightChanged(9.6, ""))
    one.tell("trainer", 0, end(0, **KILLED))
    assert one.orders("trainer", 0) == ["restart"]
    one.take(RightChanged(11.0, "the run is paused"))
    one.tell("trainer", 1, end(2, 2, **KILLED), at=12.0)
    assert one.orders("trainer", 1)[-1] == "stop"
    assert "not restarted in place: the run is paused" in one.gangs.main.orders[-1].why


def test_a_gang_that_waited_for_a_proof_of_another_hears_of_its_order_at_once() -> None:
    one = One(Layout(TRAINER, (), "replica", 2))
    one.tell("trainer", 2, StepSeen(7, 9.0, 4), PhaseSeen("checkpoint", 9.1, 4, "saving"))
    one.tell("trainer", 2, PhaseSeen("step", 9.2, 4, "saved"), at=10.1)
    one.tell("trainer", 3, end(6, **KILLED), at=10.2)
    assert one.orders("trainer", 2) == [], "the save that was told just before is waited for"
    proof = CheckpointSeen(7, "/c/7", 10.3, "pass", resume_from="/c/7")
    told = advance_all(one.gangs, ReportsReceived(10.4, ("trainer", 0), 99, (proof,)))
    (restart,) = all_restarts(told.gangs)
    assert (restart.pods, restart.resume_step) == ((2, 4), 7)
    assert any(isinstance(effect, Announce) for effect in told.effects)


def test_all_of_them_as_one() -> None:
    one = One(Layout(TRAINER, (DATA,), "replica", 2))
    one.tell("trainer", 0, StepSeen(5, 9.0, 0))
    one.tell("trainer", 2, StepSeen(6, 9.1, 4))
    one.tell("trainer", 0, end(1, **KILLED))
    whole = merge_gangs(one.gangs)
    assert (whole.progress.step, whole.progress.first_step) == (6, (5, 9.0))
    assert (whole.incarnation, len(whole.restarts), whole.restarts_left(11.0)) == (2, 1, 2)
    assert len(whole.members) == 5
    assert whole.launched_at is None, "a group is still to come up"
    alone = build_gangs(Layout(TRAINER), LIKE)
    assert merge_gangs(alone) is alone.main


def test_a_stop_that_is_asked_for_reaches_all() -> None:
    one = One(Layout(TRAINER, (DATA,), "replica", 2))
    one.take(StopRequested(20.0, "asked", save=True))
    assert [one.orders("trainer", index) for index in range(4)] == [["stop"]] * 4
    assert one.orders("data", 0) == ["stop"]


@pytest.mark.parametrize(
    "event", [TimePassed(1.0, 5), HangSuspected(1.0, 1, "x", -1), HangConfirmed(1.0, 1, "x", gang=3)]
)
def test_a_gang_that_is_not_there(event: Event) -> None:
    with pytest.raises(RefusedError, match="there are 2 gangs"):
        advance_all(build_gangs(Layout(TRAINER, (), "replica", 2), LIKE), event)


def test_a_journal_makes_the_same_gangs_again() -> None:
    layout = Layout(TRAINER, (DATA,), "replica", 2)
    one = One(layout)
    one.take(MeetingPublished(2.5, "trainer", Meeting(1, "127.0.0.7", 1234), 2))
    one.tell("trainer", 0, StepSeen(8, 9.0, 0), CheckpointSeen(7, "/c/7", 9.0, "pass", resume_from="/c/7"))
    one.take(HangSuspected(9.0, 1, "slow?", 1))
    one.take(HangConfirmed(9.5, 1, "hung", 4, "node-trainer-2", gang=1))
    one.take(RightChanged(9.6, "paused"))
    one.tell("data", 0, end(0, **RAISED))
    one.take(TimePassed(20.0, 2))
    again: Gangs = build_gangs(layout, LIKE)
    for event in journal.read_events([journal.to_line(item) for item in one.events]):
        again = advance_all(again, event).gangs
    assert again == one.gangs
    assert len(all_restarts(again)) == 1


@pytest.mark.parametrize("text", ["data", "data:1", "data:x:1", ":1:1", "data:0:1", "data:1:0", "a:b:c:d"])
def test_shapes_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"unpack|literal|:"):
        RoleShape.read(text)
    assert str(RoleShape.read("data:2:3")) == "data:2:3"
