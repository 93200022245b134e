from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from profiles.errors import Conflict, Fenced
from profiles.vocabulary import RunState, VerdictWord
from tasks.ledger.ledger import Ledger
from tasks.ledger.runs import LEASE_SECONDS
from tests.support.builders.ledgers import (
    HERE,
    THERE,
    a_run,
    an_attempt,
    an_incident,
    driven,
    everyone_died,
    nobody_knows,
)
from workflows.model.records import (
    ActionRecord,
    ApprovalRecord,
    CheckpointRecord,
    Driver,
    Lease,
    MarkRecord,
    NodeRecord,
    StepRow,
)

pytest_plugins = ["tests.support.servers.ledger_fixtures"]


def test_open_runs_are_told_with_who_drives_them(ledger: Ledger) -> None:
    for name in ("driven", "let-go", "never", "ended"):
        ledger.open_run(a_run(name))
    ledger.acquire("driven", HERE, 1000.0, nobody_knows)
    ledger.release(ledger.acquire("let-go", THERE, 1000.0, nobody_knows))
    ledger.set_run_state("ended", None, RunState.FAILED, "over", 1003.0)
    found = {run.name: run for run in ledger.open_runs(lambda driver: driver == THERE)}
    assert set(found) == {"driven", "let-go", "never"}
    assert found["driven"].lease == Lease("driven", 1, HERE, 1015.0)
    assert (found["driven"].alive, found["never"].alive) == (False, None)
    assert found["let-go"].lease is None
    assert found["never"].lease is None
    assert {(run.cluster, run.since, run.state) for run in found.values()} == {("local", 1000.0, RunState.PENDING)}
    ledger.resume_run("ended", "fixed", 2000.0)
    [resumed] = [run for run in ledger.open_runs(nobody_knows) if run.name == "ended"]
    assert resumed.since == 2000.0


def test_a_living_holder_keeps_others_out_and_is_named(ledger: Ledger) -> None:
    ledger.open_run(a_run())
    lease = ledger.acquire("demo", HERE, 1000.0, nobody_knows)
    assert lease == Lease("demo", 1, HERE, 1015.0)
    with pytest.raises(Conflict, match="process 100 on host-a"):
        ledger.acquire("demo", THERE, 1014.9, nobody_knows)
    assert ledger.lease("demo") == lease


def test_a_dead_holder_is_taken_over_at_once_and_a_silent_one_after_its_time(ledger: Ledger) -> None:
    first = ledger.acquire("demo", HERE, 1000.0, nobody_knows)
    second = ledger.acquire("demo", THERE, 1001.0, everyone_died)
    third = ledger.acquire("demo", HERE, 1001.0 + LEASE_SECONDS, nobody_knows)
    assert [first.fencing, second.fencing, third.fencing] == [1, 2, 3]
    for old in (first, second):
        with pytest.raises(Fenced, match="must stop"):
            ledger.renew(old, 1017.0)
        ledger.release(old)
    assert ledger.lease("demo") == third
    reasons = [line.why for line in ledger.history("demo") if line.kind == "lease"]
    assert ["first driver" in reasons[0], "dead" in reasons[1], "expired" in reasons[2]] == [True] * 3


def test_a_driver_that_starts_over_in_the_same_process_gets_a_new_number(ledger: Ledger) -> None:
    first = ledger.acquire("demo", HERE, 1000.0, nobody_knows)
    assert ledger.acquire("demo", HERE, 1001.0, nobody_knows).fencing == 2
    with pytest.raises(Fenced):
        ledger.renew(first, 1002.0)


def test_a_reused_pid_is_another_driver(ledger: Ledger) -> None:
    ledger.acquire("demo", HERE, 1000.0, nobody_knows)
    with pytest.raises(Conflict):
        ledger.acquire("demo", Driver(HERE.host, HERE.pid, HERE.started_at + 1), 1001.0, nobody_knows)


def test_a_released_lease_is_free_and_stays_released(ledger: Ledger) -> None:
    lease = ledger.acquire("demo", HERE, 1000.0, nobody_knows)
    ledger.release(lease)
    ledger.release(lease)
    assert ledger.lease("demo") is None
    with pytest.raises(Fenced, match="nobody"):
        ledger.renew(lease, 1001.0)
    assert ledger.acquire("demo", THERE, 1001.0, nobody_knows).fencing == 2


def test_a_holder_that_renewed_while_it_was_looked_at_is_not_dead(ledger: Ledger) -> None:
    """Death is proven of the holder that was seen; one that took over meanwhile is another one."""
    ledger.acquire("demo", HERE, 1000.0, nobody_knows)

    def taken_over_while_we_look(driver: Driver) -> bool | None:
        ledger.acquire("demo", THERE, 1001.0, everyone_died)
        return False

    with pytest.raises(Conflict, match="host-b"):
        ledger.acquire("demo", Driver("host-c", 3, 1.0), 1001.0, taken_over_while_we_look)


FENCED_WRITES: dict[str, Callable[[Ledger, int], object]] = {
    "state": lambda ledger, number: ledger.set_run_state("demo", number, RunState.FAILED, "why"),
    "plan": lambda ledger, number: ledger.plan_attempt(number, an_attempt(2)),
    "update": lambda ledger, number: ledger.update_attempt(number, "demo", 1, last_step=9),
    "incident": lambda ledger, number: ledger.open_incident(number, an_incident(2)),
    "diagnosis": lambda ledger, number: ledger.update_incident(number, "demo", "demo-a1-i1", why="x"),
    "decision": lambda ledger, number: ledger.decide(number, an_incident(1, why="x"), (), None),
    "action": lambda ledger, number: ledger.plan_action(
        number, ActionRecord("new", "demo", "i", "wait", "", "planned", "why", 1.0)
    ),
    "done": lambda ledger, number: ledger.update_action(number, "demo", "act", state="done"),
    "ask": lambda ledger, number: ledger.ask(number, ApprovalRecord("q", "demo", "i", "?", "waiting", 1.0, 2.0)),
    "checkpoint": lambda ledger, number: ledger.add_checkpoint(
        number, CheckpointRecord("demo", 1, "/c", 1, 1.0, VerdictWord.PASS)
    ),
    "marks": lambda ledger, number: ledger.add_marks(number, [MarkRecord("demo", 1, "gate", 1.0)]),
    "steps": lambda ledger, number: ledger.add_steps("demo", 1, [StepRow(9, 9.0)], fencing=number),
    "node": lambda ledger, number: ledger.set_node(
        NodeRecord("local", "node-0", "quarantined", "why", 1.0), run="demo", fencing=number
    ),
    "request": lambda ledger, number: ledger.finish_request(number, "demo", "stop-1", 1.0),
}


@pytest.mark.parametrize("write", FENCED_WRITES)
def test_a_driver_that_was_taken_over_can_write_nothing(ledger: Ledger, write: str) -> None:
    old = driven(ledger)
    ledger.plan_attempt(old, an_attempt())
    ledger.open_incident(old, an_incident())
    ledger.plan_action(old, ActionRecord("act", "demo", "i", "wait", "", "planned", "why", 1.0))
    ledger.acquire("demo", THERE, 1001.0, everyone_died)
    before = (ledger.story("demo"), ledger.changes("demo"), ledger.nodes("local"), ledger.steps("demo"))
    with pytest.raises(Fenced, match="process 200 on host-b"):
        FENCED_WRITES[write](ledger, old)
    assert (ledger.story("demo"), ledger.changes("demo"), ledger.nodes("local"), ledger.steps("demo")) == before


def test_a_number_that_was_never_given_out_may_not_write(ledger: Ledger) -> None:
    ledger.open_run(a_run())
    with pytest.raises(Fenced, match="nobody"):
        ledger.plan_attempt(1, an_attempt())


def _race(url: str, runs: list[str]) -> list[tuple[str, int]]:
    """Take every run that is still free, and write as its driver; the runs that were won."""
    ledger = Ledger(url)
    won: list[tuple[str, int]] = []
    for run in runs:
        try:
            lease = ledger.acquire(run, Driver("host", os.getpid(), 1.0), 1000.0, nobody_knows)
        except Conflict:
            continue
        ledger.plan_attempt(lease.fencing, an_attempt(run=run))
        ledger.add_steps(run, 1, [StepRow(step, float(step)) for step in range(5)], fencing=lease.fencing)
        won.append((run, lease.fencing))
    ledger.close()
    return won


def test_of_many_processes_exactly_one_drives_each_run(ledger_url: str, ledger: Ledger) -> None:
    runs = [f"run-{number}" for number in range(12)]
    for run in runs:
        ledger.open_run(a_run(run))
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("fork")) as pool:
        won = [
            pair for pairs in pool.map(_race, [ledger_url] * 4, [runs, runs[::-1], runs, runs[::-1]]) for pair in pairs
        ]
    assert sorted(won) == sorted((run, 1) for run in runs)
    assert all(len(ledger.steps(run)) == 5 for run in runs)


def _add_steps(url: str, offset: int) -> int:
    ledger = Ledger(url)
    added = sum(ledger.add_steps("demo", 1, [StepRow(step, float(step))]) for step in range(offset, offset + 40))
    ledger.close()
    return added


def test_many_processes_add_the_same_steps_and_each_is_stored_once(ledger_url: str, ledger: Ledger) -> None:
    driven(ledger)
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("fork")) as pool:
        added = sum(pool.map(_add_steps, [ledger_url] * 4, [0, 20, 0, 20]))
    assert added == 60
    assert [row.step for row in ledger.steps("demo")] == list(range(60))


_NAMES = count()
_DRIVERS = [Driver("host-a", 1, 1.0), Driver("host-a", 2, 1.0), Driver("host-b", 1, 1.0)]


class LeaseMachine(RuleBasedStateMachine):
    """Drivers come, go, die and sleep; time passes. The ledger under test is set by the test."""

    ledger: Ledger

    @initialize()
    def open(self) -> None:
        self.run = f"machine-{next(_NAMES)}"
        self.now = 1000.0
        self.dead: set[Driver] = set()
        self.leases: list[Lease] = []
        self.valid: Lease | None = None
        self.ledger.open_run(a_run(self.run))

    def holder_now(self) -> Lease | None:
        return self.valid if self.valid is not None and self.valid.expires_at > self.now else None

    def alive(self, driver: Driver) -> bool | None:
        # Another host can never prove a death.
        return None if driver.host == "host-b" else driver not in self.dead

    @rule(seconds=st.sampled_from([0.0, 1.0, 5.0, 14.9, 15.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(driver=st.sampled_from(_DRIVERS))
    def dies(self, driver: Driver) -> None:
        self.dead.add(driver)

    @rule(driver=st.sampled_from(_DRIVERS))
    def acquires(self, driver: Driver) -> None:
        self.dead.discard(driver)
        holder = self.holder_now()
        taken = holder is not None and holder.driver != driver and self.alive(holder.driver) is not False
        try:
            lease = self.ledger.acquire(self.run, driver, self.now, self.alive)
        except Conflict:
            assert taken
            return
        assert not taken
        assert all(lease.fencing > old.fencing for old in self.leases)
        self.leases.append(lease)
        self.valid = lease

    @rule(data=st.data())
    def renews_or_writes(self, data: st.DataObject) -> None:
        if not self.leases:
            return
        lease = data.draw(st.sampled_from(self.leases))
        newest = lease.fencing == self.leases[-1].fencing
        try:
            self.ledger.plan_attempt(lease.fencing, an_attempt(lease.fencing, self.run))
        except Fenced:
            assert not newest
        else:
            assert newest
        try:
            renewed = self.ledger.renew(lease, self.now)
        except Fenced:
            assert self.valid is None or not newest
        else:
            assert newest
            self.valid = renewed

    @rule(data=st.data())
    def releases(self, data: st.DataObject) -> None:
        if self.leases:
            lease = data.draw(st.sampled_from(self.leases))
            self.ledger.release(lease)
            if self.valid is not None and lease.fencing == self.valid.fencing:
                self.valid = None

    @invariant()
    def the_ledger_knows_the_one_holder(self) -> None:
        assert self.ledger.lease(self.run) == self.valid


@pytest.fixture
def machine_ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger(f"sqlite:///{tmp_path}/ledger.sqlite")
    yield opened
    opened.close()


def test_there_are_never_two_valid_holders(machine_ledger: Ledger) -> None:
    def machine() -> LeaseMachine:
        made = LeaseMachine()
        made.ledger = machine_ledger
        return made

    run_state_machine_as_test(machine, settings=settings(max_examples=25, stateful_step_count=25, deadline=None))
