"""The fleet-wide brake under many drivers: what it allows holds however they interleave, on both databases."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from itertools import count
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from profiles.cluster import Brake
from tasks.ledger.ledger import Ledger
from workflows.model.fleet import BrakeState
from workflows.model.records import NodeRecord

pytest_plugins = ["tests.support.servers.ledger_fixtures"]

WIDE = Brake(max_quarantined_share=1.0, max_evictions=1000)


def out(node: str, at: float = 10.0, pool: str = "cpu", incident: str = "i") -> NodeRecord:
    return NodeRecord("local", node, "quarantined", "why", at, incident, pool)


def state_of(ledger: Ledger, node: str) -> str:
    found = ledger.node("local", node)
    return "" if found is None else found.state


def test_what_would_be_too_many_is_written_for_none(ledger: Ledger) -> None:
    brake = BrakeState(10, limits=Brake(max_quarantined_share=0.2))
    assert ledger.take_out([out("node-0")], brake) == ""
    assert "1 + 2 of 10" in ledger.take_out([out("node-1"), out("node-2")], brake)
    assert [state_of(ledger, node) for node in ("node-0", "node-1", "node-2")] == ["quarantined", "", ""]
    assert ledger.take_out([out("gpu-0", pool="gpu")], brake) == "", "another pool has a brake of its own"


def test_taking_out_what_is_out_costs_nothing(ledger: Ledger) -> None:
    brake = BrakeState(10, limits=Brake(max_evictions=1, window_seconds=100.0))
    assert ledger.take_out([out("node-0", 10.0)], brake) == ""
    assert ledger.take_out([out("node-0", 20.0, incident="another")], brake) == "", "a driver that starts over"
    newest = ledger.node("local", "node-0")
    assert newest is not None
    assert (newest.since, newest.incident) == (10.0, "i")
    assert ledger.brake_counts("local", "cpu", 0.0).evictions == 1
    assert "1 + 1 nodes taken out" in ledger.take_out([out("node-1", 109.0)], brake)
    assert ledger.take_out([out("node-1", 111.0)], brake) == "", "the window has moved on"


def test_a_person_may_take_out_more(ledger: Ledger) -> None:
    brake = BrakeState(4, limits=Brake(max_evictions=1))
    assert ledger.take_out([out("node-0")], brake) == ""
    assert ledger.take_out([out("node-1")], brake) != ""
    assert ledger.take_out([out("node-1")], None) == ""
    assert state_of(ledger, "node-1") == "quarantined"


def test_a_released_node_makes_room(ledger: Ledger) -> None:
    brake = BrakeState(4, limits=WIDE.model_copy(update={"max_quarantined_share": 0.25}))
    assert ledger.take_out([out("node-0")], brake) == ""
    assert ledger.take_out([out("node-1")], brake) != ""
    ledger.set_node(NodeRecord("local", "node-0", "schedulable", "repaired", 11.0))
    assert ledger.take_out([out("node-1", 12.0)], brake) == ""


POOLS = 25
PROCESSES = 4


def _race(url: str, me: int, gate: Barrier, answers: Any) -> None:
    """In every pool at the same moment as the others: take out a node of one's own, of which only one may go."""
    ledger = Ledger(url)
    won: list[int] = []
    for pool in range(POOLS):
        limits = Brake(max_quarantined_share=0.01) if pool % 2 else Brake(max_quarantined_share=1.0, max_evictions=1)
        gate.wait(60.0)
        if not ledger.take_out([out(f"p{pool}-n{me}", pool=f"p{pool}")], BrakeState(10, limits=limits)):
            won.append(pool)
    ledger.close()
    answers.put(won)


def test_of_many_processes_at_the_same_moment_one_gets_the_last_node(ledger_url: str, ledger: Ledger) -> None:
    assert ledger.nodes("local") == []
    ledger.close()  # no connection of ours goes into the children
    fork = multiprocessing.get_context("fork")
    gate, answers = fork.Barrier(PROCESSES), fork.Queue()
    racing = [fork.Process(target=_race, args=(ledger_url, me, gate, answers)) for me in range(PROCESSES)]
    for process in racing:
        process.start()
    won = sorted(pool for _ in racing for pool in answers.get(timeout=60.0))
    for process in racing:
        process.join(60.0)
    assert won == list(range(POOLS)), "each pool lost exactly one node"
    for pool in range(POOLS):
        assert ledger.brake_counts("local", f"p{pool}", 0.0).evictions == 1


_POOLS = count()
_DRIVERS = 3
_NODES = [f"node-{number}" for number in range(8)]


class BrakeMachine(RuleBasedStateMachine):
    """Drivers look, think and act in any order, start over, and release nodes; time passes.

    Each driver looks at the brake first, as a decision does, and acts on it later, whatever happened meanwhile. The
    ledgers under test are set by the test, one a driver.
    """

    ledgers: tuple[Ledger, ...]

    @initialize(share=st.sampled_from([0.1, 0.25, 0.5, 1.0]), most=st.integers(1, 5))
    def open(self, share: float, most: int) -> None:
        self.pool = f"machine-{next(_POOLS)}"
        self.limits = Brake(max_quarantined_share=share, max_evictions=most, window_seconds=100.0)
        self.now = 1000.0
        self.plans: dict[int, tuple[str, ...]] = {}
        self.taken_at: list[float] = []

    def name(self, node: str) -> str:
        return f"{self.pool}-{node}"

    def held(self) -> set[str]:
        return set(self.ledgers[0].brake_counts("local", self.pool, 0.0).out)

    @rule(seconds=st.sampled_from([1.0, 30.0, 101.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(driver=st.integers(0, _DRIVERS - 1), nodes=st.sets(st.sampled_from(_NODES), min_size=1, max_size=3))
    def decides(self, driver: int, nodes: set[str]) -> None:
        held = self.held()
        self.plans[driver] = tuple(sorted(self.name(node) for node in nodes if self.name(node) not in held))

    @rule(driver=st.integers(0, _DRIVERS - 1), again=st.booleans())
    def carries_out(self, driver: int, again: bool) -> None:
        nodes = self.plans.get(driver, ())
        if not nodes:
            return
        self.now += 1.0
        before = self.held()
        records = [out(node, self.now, self.pool) for node in nodes]
        reason = self.ledgers[driver].take_out(records, BrakeState(len(_NODES), limits=self.limits))
        assert self.held() == (before if reason else before | set(nodes)), "all of them or none"
        self.taken_at += [self.now] * len(self.held() - before)
        if not again:
            del self.plans[driver]

    @rule(node=st.sampled_from(_NODES))
    def releases(self, node: str) -> None:
        if self.name(node) in self.held():
            self.now += 1.0
            self.ledgers[0].set_node(NodeRecord("local", self.name(node), "schedulable", "repaired", self.now))

    @invariant()
    def no_limit_is_ever_exceeded(self) -> None:
        if not hasattr(self, "pool"):
            return
        assert len(self.held()) <= max(1, int(self.limits.max_quarantined_share * len(_NODES)))
        for end in self.taken_at:
            within = [at for at in self.taken_at if end - self.limits.window_seconds <= at <= end]
            assert len(within) <= self.limits.max_evictions


@pytest.fixture
def three_ledgers(tmp_path: Path) -> Iterator[tuple[Ledger, ...]]:
    opened = tuple(Ledger(f"sqlite:///{tmp_path}/ledger.sqlite") for _ in range(_DRIVERS))
    yield opened
    for one in opened:
        one.close()


def test_no_interleaving_of_drivers_exceeds_a_limit(three_ledgers: tuple[Ledger, ...]) -> None:
    def machine() -> BrakeMachine:
        made = BrakeMachine()
        made.ledgers = three_ledgers
        return made

    run_state_machine_as_test(machine, settings=settings(max_examples=30, stateful_step_count=25, deadline=None))
