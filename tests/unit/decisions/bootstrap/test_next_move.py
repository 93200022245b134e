"""What is done next: never what holds, never what nobody could look at; and in whatever order things fail, one end."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.bootstrap.next_move import (
    MOST_TRIES,
    CarryOutSteps,
    Halt,
    NextMove,
    Proven,
    next_steps,
    table_of,
)
from profiles.vocabulary import VerdictWord
from workflows.model.bootstrap import Stage, Step, StepProof, StepRecord

PASS = StepProof(VerdictWord.PASS, "it holds")
FAIL = StepProof(VerdictWord.FAIL, "it is not there")
SILENT = StepProof(VerdictWord.UNKNOWN, "no answer within 10 s")


def step(stage: Stage, subject: str, *after: str, alone: bool = False, wanted: str = "w1") -> Step:
    return Step(stage, subject, wanted, f"{stage} of {subject}", after, alone)


def three_planes(workers: int = 2) -> tuple[Step, ...]:
    """The plan of three control planes and some workers."""
    planes, others = ["n1", "n2", "n3"], [f"w{index}" for index in range(workers)]
    checks = [step(Stage.PRECHECKS, name) for name in (*planes, *others)]
    hosts = [step(Stage.HOSTS, name, *(item.id for item in checks)) for name in (*planes, *others)]
    first = step(Stage.CONTROL_PLANE, "n1", *(f"hosts/{name}" for name in planes), alone=True)
    joins = [step(Stage.CONTROL_PLANE, name, "control-plane/n1", alone=True) for name in planes[1:]]
    nodes = [
        step(Stage.WORKERS, name, f"hosts/{name}", *(f"control-plane/{item}" for item in planes)) for name in others
    ]
    return (*checks, *hosts, first, *joins, *nodes)


def move(
    plan: tuple[Step, ...], proofs: Mapping[str, StepProof], records: Mapping[str, StepRecord] | None = None
) -> NextMove:
    return next_steps(plan, proofs, records or {}, since=100.0, at_once=50)


def record(item: Step, tries: int, began_at: float = 101.0, wanted: str = "w1") -> StepRecord:
    return StepRecord("made", item.stage, item.subject, wanted, "failed", tries, began_at, began_at + 1, "no")


def test_where_everything_holds_nothing_is_done() -> None:
    plan = three_planes()
    assert move(plan, {item.id: PASS for item in plan}) == Proven()


def test_a_host_that_fails_its_check_stops_everything_before_the_first_change() -> None:
    plan = three_planes()
    proofs = {item.id: PASS if item.stage is Stage.PRECHECKS else FAIL for item in plan} | {"prechecks/w1": FAIL}
    found = move(plan, proofs)
    assert isinstance(found, Halt)
    assert found.failed == {"prechecks/w1": "it is not there"}
    assert len(found.waiting) == len([item for item in plan if item.stage is not Stage.PRECHECKS])
    assert found.why == "failed: prechecks/w1 (it is not there); 10 further steps wait for that"


def test_all_hosts_are_prepared_at_once_and_control_planes_join_one_by_one() -> None:
    plan = three_planes()
    proofs = {item.id: PASS if item.stage is Stage.PRECHECKS else FAIL for item in plan}
    found = move(plan, proofs)
    assert isinstance(found, CarryOutSteps)
    assert [item.id for item in found.steps] == ["hosts/n1", "hosts/n2", "hosts/n3", "hosts/w0", "hosts/w1"]
    proofs |= {item.id: PASS for item in found.steps} | {"control-plane/n1": PASS}
    found = move(plan, proofs)
    assert isinstance(found, CarryOutSteps)
    assert [item.id for item in found.steps] == ["control-plane/n2"]


def test_no_more_than_that_many_at_once() -> None:
    plan = three_planes(workers=9)
    proofs = {item.id: PASS if item.stage is Stage.PRECHECKS else FAIL for item in plan}
    found = next_steps(plan, proofs, {}, 100.0, at_once=4)
    assert isinstance(found, CarryOutSteps)
    assert len(found.steps) == 4


def test_a_silent_host_is_not_touched_and_what_does_not_need_it_goes_on() -> None:
    plan = three_planes()
    proofs = {item.id: FAIL if item.stage is Stage.WORKERS else PASS for item in plan} | {"workers/w0": SILENT}
    found = move(plan, proofs)
    assert isinstance(found, CarryOutSteps)
    assert [item.id for item in found.steps] == ["workers/w1"]
    found = move(plan, proofs | {"workers/w1": PASS})
    assert isinstance(found, Halt)
    assert (found.failed, found.unknown) == ({}, {"workers/w0": "no answer within 10 s"})


def test_what_failed_twice_in_this_command_wants_a_person_and_another_command_tries_again() -> None:
    plan = three_planes()
    proofs = {item.id: PASS for item in plan} | {"workers/w0": FAIL}
    tried = next(item for item in plan if item.id == "workers/w0")
    assert isinstance(move(plan, proofs, {tried.id: record(tried, MOST_TRIES - 1)}), CarryOutSteps)
    assert isinstance(move(plan, proofs, {tried.id: record(tried, MOST_TRIES)}), Halt)
    assert isinstance(move(plan, proofs, {tried.id: record(tried, MOST_TRIES, began_at=99.0)}), CarryOutSteps)
    assert isinstance(move(plan, proofs, {tried.id: record(tried, MOST_TRIES, wanted="w0")}), CarryOutSteps)


def test_the_table_says_not_yet_only_of_what_was_never_begun() -> None:
    plan = three_planes(workers=1)
    proofs = {item.id: FAIL for item in plan} | {"prechecks/n1": PASS, "prechecks/w0": SILENT}
    begun = next(item for item in plan if item.id == "hosts/n1")
    table = table_of(plan, proofs, {begun.id: record(begun, 1)})
    assert table["n1"] == {"prechecks": "pass", "hosts": "fail", "control-plane": "not yet"}
    assert table["w0"] == {"prechecks": "unknown", "hosts": "not yet", "workers": "not yet"}
    assert table["n2"]["prechecks"] == "fail"


class MadeWorld:
    """Hosts on which steps are carried out; some fail the first times, some are silent for a while."""

    def __init__(self, failures: dict[str, int], silences: dict[str, int]) -> None:
        self.failures, self.silences = dict(failures), dict(silences)
        self.holding: set[str] = set()
        self.carried_out: list[str] = []

    def proofs(self, plan: tuple[Step, ...]) -> dict[str, StepProof]:
        found: dict[str, StepProof] = {}
        for item in plan:
            silent = self.silences.get(item.subject, 0)
            fine = item.id in self.holding or item.stage is Stage.PRECHECKS
            found[item.id] = SILENT if silent else PASS if fine else FAIL
        self.silences = {name: left - 1 for name, left in self.silences.items() if left > 1}
        return found

    def carry_out(self, steps: tuple[Step, ...]) -> None:
        for item in steps:
            assert item.id not in self.holding
            assert all(before in self.holding or before.startswith("prechecks/") for before in item.after)
            self.carried_out.append(item.id)
            if self.failures.get(item.id, 0):
                self.failures[item.id] -= 1
            else:
                self.holding.add(item.id)


NAMES = st.sampled_from(["n1", "n2", "n3", "w0", "w1"])
IDS = st.sampled_from([item.id for item in three_planes() if item.stage is not Stage.PRECHECKS])


@given(
    st.dictionaries(IDS, st.integers(1, 5), max_size=4),
    st.dictionaries(NAMES, st.integers(1, 4), max_size=3),
    st.sets(st.integers(1, 40), max_size=6),
    st.integers(1, 5),
)
def test_in_whatever_order_things_fail_it_ends_the_same_and_nothing_is_done_twice(
    failures: dict[str, int], silences: dict[str, int], killed_at: set[int], at_once: int
) -> None:
    plan, world = three_planes(), MadeWorld(failures, silences)
    records: dict[str, StepRecord] = {}
    since, found = 0.0, Halt({}, {}, ())
    for clock in range(1, 200):
        found = next_steps(plan, world.proofs(plan), records, since, at_once)
        match found:
            case Proven():
                break
            case Halt():
                assert found.failed or found.unknown
                since = float(clock)  # the same command again
            case CarryOutSteps(steps):
                for item in steps:
                    before = records.get(item.id)
                    again = before is not None and before.began_at >= since
                    records[item.id] = record(item, before.tries + 1 if before and again else 1, float(clock))
                if clock in killed_at:
                    since = float(clock)  # written down, and not done
                else:
                    world.carry_out(steps)
    assert isinstance(found, Proven)
    wanted = {item.id for item in plan if item.stage is not Stage.PRECHECKS}
    assert world.holding == wanted
    assert len(world.carried_out) == len(wanted) + sum(failures.values())
