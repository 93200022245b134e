"""The node watch's turns: what is written down together, what is looked at in which turn, and what is not lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from flows.watching.nodes import AGAIN, BATCH, FINISH_SECONDS, RECONCILE_SECONDS, NodeNotice, Sentinel, WatchRounds
from profiles.errors import Unavailable
from profiles.vocabulary import FaultClass, VerdictWord
from tasks.context import World, standing_in
from tasks.ledger.ledger import Ledger
from tasks.nodes.marks import Mark, Marked, Order
from tasks.observe.reflector import NodeWatch
from tasks.settings import Settings
from tests.ledgers import Clock
from workflows.model.nodes import Node, NodeFinding


class Marker:
    """Patches that end when a test says so."""

    def __init__(self) -> None:
        self.done: list[Marked] = []

    def finished(self) -> list[Marked]:
        found, self.done = self.done, []
        return found

    def wait(self) -> list[Marked]:
        return self.finished()


class Watch:
    """A table of nodes that a test fills."""

    def __init__(self, *names: str) -> None:
        self.nodes = {name: Node(name, "cpu") for name in names}
        self.fresh: list[str] = []
        self.away = None

    def changed(self, limit: int) -> list[Node]:
        found, self.fresh = self.fresh[:limit], self.fresh[limit:]
        return [self.nodes[name] for name in found]

    @property
    def has_changed(self) -> bool:
        return bool(self.fresh)

    def look_again(self, names: list[str]) -> None:
        self.fresh += names

    def names(self) -> list[str]:
        return list(self.nodes)

    def node(self, name: str) -> Node | None:
        return self.nodes.get(name)


class Judge:
    """A sentinel that writes nothing: it remembers what it was asked."""

    def __init__(self) -> None:
        self.marker = Marker()
        self.findings: Mapping[str, NodeFinding] = {}
        self.looked: list[str] = []
        self.settled: list[list[str]] = []
        self.written: list[list[str]] = []
        self.lines: list[NodeNotice] = []
        self.planned_when: list[int] = []
        self.ledger_is_away = False

    def finding_for(self, node: Node, watch: Any = None) -> NodeFinding | None:
        self.looked.append(node.name)
        return self.findings.get(node.name)

    def settle(self, findings: list[NodeFinding], nodes: Any) -> None:
        if findings:
            self.settled.append([item.node for item in findings])

    def record_marks(self, marked: list[Marked]) -> None:
        if self.ledger_is_away:
            raise Unavailable("the ledger is away", retry_after_seconds=3.0)
        if marked:
            self.written.append([item.order.node for item in marked])

    def carry_out_left_overs(self) -> None:
        self.planned_when.append(len(self.written))

    def tell(self, line: NodeNotice) -> None:
        self.lines.append(line)


def ended(name: str) -> Marked:
    return Marked(Order(name, name, Mark()))


def fault(name: str, verdict: VerdictWord = VerdictWord.FAIL, due_at: float | None = None) -> NodeFinding:
    return NodeFinding(name, "cpu", "Acme", verdict, FaultClass.FABRIC, "", due_at=due_at)


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[Clock]:
    made, ledger = Clock(), Ledger(f"sqlite:///{tmp_path}/ledger.sqlite")
    with standing_in(World(Settings.from_environment({"PRIMUS_HOME": str(tmp_path)}), ledger, now=made)):
        yield made
    ledger.close()


def turns_of(judge: Judge, watch: Watch) -> WatchRounds:
    return WatchRounds(cast("Sentinel", judge), cast("NodeWatch", watch))


def test_ends_that_come_soon_after_each_other_are_written_together(clock: Clock) -> None:
    judge, watch = Judge(), Watch()
    turns = turns_of(judge, watch)
    turns.take()
    judge.marker.done = [ended("a")]
    assert turns.take() == pytest.approx(FINISH_SECONDS)
    judge.marker.done = [ended("b")]
    clock.now += FINISH_SECONDS / 2
    assert turns.take() == pytest.approx(FINISH_SECONDS / 2), "the first one's time counts"
    assert judge.written == []
    clock.now += FINISH_SECONDS / 2
    turns.take()
    assert judge.written == [["a", "b"]]
    judge.marker.done = [ended("c")]
    turns.end()
    assert judge.written == [["a", "b"], ["c"]], "nothing is left unwritten at the end"


def test_what_is_done_is_written_before_anybody_looks_for_left_overs(clock: Clock) -> None:
    judge = Judge()
    turns = turns_of(judge, Watch())
    turns.take()
    clock.now += RECONCILE_SECONDS
    judge.marker.done = [ended("a")]
    turns.take()
    assert (judge.written, judge.planned_when) == ([["a"]], [0, 1])


def test_a_ledger_that_is_away_loses_no_end(clock: Clock) -> None:
    judge = Judge()
    turns = turns_of(judge, Watch())
    turns.take()
    judge.marker.done, judge.ledger_is_away = [ended("a")], True
    turns.take()
    clock.now += FINISH_SECONDS
    assert turns.take() == 3.0
    judge.ledger_is_away = False
    turns.take()
    assert judge.written == [["a"]]
    assert [line.event for line in judge.lines] == ["away", "back"]


def test_what_changes_all_the_time_keeps_nobody_else_waiting(clock: Clock) -> None:
    names = [f"n{number}" for number in range(AGAIN * 2)]
    judge, watch = Judge(), Watch("busy", "slow", *names)
    judge.findings = {"slow": fault("slow", VerdictWord.UNKNOWN, clock.now + 5.0)}
    turns = turns_of(judge, watch)
    for _ in range(3):
        watch.fresh = ["busy"] * BATCH
        assert turns.take() == 0.0 or not turns.again
    assert set(judge.looked) == {"busy", "slow", *names}, "all were looked at again"
    judge.findings = {"slow": fault("slow")}
    clock.now += 5.0
    watch.fresh = ["busy"]
    turns.take()
    assert judge.settled == [["slow"]], "its time had come"
