"""Limits that ship, against what large gangs really meet: the real decisions over weeks of drawn stops.

Nothing ends a run for what the infrastructure does; a broken program and a crash loop still end soon on every size. The
story is what the ledger would hold, the situation is read from it as in production, and each stop is decided.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from functools import cache

import pytest

from flows.decisions.diagnosis.blame import memories
from flows.decisions.diagnosis.diagnose import Diagnosis
from flows.decisions.recovery.chance import Chance, Pace, row_needed
from flows.decisions.recovery.decide import decide
from flows.decisions.recovery.decision import STARTS, Decision, Situation
from flows.decisions.recovery.limits import rows_without_progress
from flows.decisions.recovery.situation import situation, with_experience
from profiles.loading.load import load_recovery
from profiles.resolve import Resolved
from profiles.vocabulary import Action, FaultClass, Mode, RunState, VerdictWord
from tests.proof import in_turn
from tests.support.builders.simulated_runs import resolved as a_gang
from workflows.model.attempt import Evidence, PastIncident, Signal
from workflows.model.fleet import PRIOR_RATE, BrakeState, brake_trips, expected_at_most
from workflows.model.records import AttemptRecord, CheckpointRecord, IncidentRecord, RunRecord, Story

F, A = FaultClass, Action
DAY = 86400.0
FREE = frozenset(load_recovery("default").free_classes)
MIX = (
    (F.GPU_HARDWARE, 0.55), (F.FABRIC, 0.10), (F.NODE_LOST, 0.06), (F.PREEMPTED, 0.07), (F.THERMAL_POWER, 0.015),
    (F.UNKNOWN, 0.13), (F.COLLECTIVE_TIMEOUT, 0.02), (F.HANG, 0.02), (F.PROCESS_KILLED, 0.02), (F.STORAGE, 0.008),
    (F.HOST_OOM, 0.007),
)  # fmt: skip
"""Causes of the 466 stops of Llama 3 in our classes; what its table calls software bugs counts as unknown."""


@dataclass
class Drawn:
    """A run whose stops are drawn: exponential distances, while it starts too. Seconds."""

    nodes: int
    days: float
    rate: float
    """Stops per node and day."""
    seed: int
    profile: str = "default"
    restart: float = 600.0
    save: float = 300.0
    step: float = 10.0
    now: float = 0.0
    attempts: list[AttemptRecord] = field(default_factory=list[AttemptRecord])
    incidents: list[IncidentRecord] = field(default_factory=list[IncidentRecord])
    checkpoints: list[CheckpointRecord] = field(default_factory=list[CheckpointRecord])
    past: list[PastIncident] = field(default_factory=list[PastIncident])

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.run = RunRecord("r", RunState.RECOVERING, "", "r", {}, "", "c", Mode.ACT, 0.0)
        self.resolved = gang(self.nodes, self.profile)
        self.saved = 0

    def live(self) -> Iterator[tuple[Diagnosis, Decision]]:
        """Each stop with what was decided about it, to the end of the time or of the run."""
        while self.now < self.days * DAY:
            began = self.now
            self.now += self.dice.expovariate(self.nodes * self.rate / DAY)
            kind = self.dice.choices([kind for kind, _ in MIX], [share for _, share in MIX])[0]
            where = f"node-{self.dice.randrange(self.nodes)}"
            found = self.stopped(began, kind, where)
            stands = not self.checkpoints or self.now - self.checkpoints[-1].at > 3600.0
            if kind in FREE and not stands:
                self.noted(found, Decision(A.NEW_ATTEMPT, "", ""))  # nothing but standing still could end it
                continue
            yield found, (decision := self.decided(found))
            if decision.action not in STARTS:
                return
            self.now += decision.wait_seconds

    def stopped(self, began: float, kind: FaultClass, where: str, die_at: int | None = None, **more: str) -> Diagnosis:
        """Write down an attempt from `began` to now and its end; what is diagnosed.

        `die_at`: the step after which the program dies, wherever the attempt began.
        """
        number, first_at = len(self.attempts) + 1, began + self.restart + self.step
        begin = self.saved
        last = begin + int((self.now - began - self.restart) // self.step)
        if die_at is not None:
            last = die_at
        saved, each = self.saved, int(self.save / self.step)
        for step in range(begin // each * each + each, last + 1, each):
            saved = step
        path = f"/c/{saved}"
        if saved > begin:
            at = first_at + (saved - begin) * self.step
            for step, when in ((saved - each, at - self.save), (saved, at)):
                if step > begin and (step == saved or number % 20 == 1):
                    record = CheckpointRecord("r", step, f"/c/{step}", number, when, VerdictWord.PASS)
                    self.checkpoints.append(record)
        trained = last > begin
        self.attempts.append(
            AttemptRecord(
                "r", number, began, "", submitted_at=began, applied_at=began, running_at=began + self.restart / 2,
                ended_at=self.now, outcome=str(kind), resumed_from_step=begin or None, resume_path=path,
                first_step=begin + 1 if trained else None, first_step_at=first_at if trained else None,
                last_step=last if trained else None,
                last_step_at=first_at + (last - begin) * self.step if trained else None,
            )
        )  # fmt: skip
        self.saved = saved
        step = last if trained else (begin or None)
        return Diagnosis(
            kind, 0.95, step=step, fingerprint=more.get("fingerprint", f"{kind}:x"), nodes=(where,),
            culprits=((where, None),), node_suspect=kind in (F.GPU_HARDWARE, F.NODE_LOST), why="drawn",
        )  # fmt: skip

    def fail(self, kind: FaultClass, lived: float, die_at: int | None = None, **more: str) -> Decision:
        """One more attempt that dies after so many seconds, on a node of its own, by the program's fault."""
        began = self.now
        self.now += lived
        where = f"node-{len(self.attempts) % self.nodes}"
        decision = self.decided(self.stopped(began, kind, where, die_at, **more))
        self.now += decision.wait_seconds
        return decision

    def decided(self, found: Diagnosis) -> Decision:
        """What is decided about the newest attempt's end, by the situation that its story makes."""
        last = self.attempts[-1]
        story = Story(self.run, tuple(self.attempts), tuple(self.incidents), checkpoints=tuple(self.checkpoints))
        evidence = Evidence(
            Signal.POD_FAILED, "r", last.number, self.now, past=tuple(self.past), last_step=last.last_step
        )
        brake = BrakeState(self.nodes, (), sum(item.at > self.now - 3600 for item in self.incidents[-60:]))
        known = situation(self.resolved, story, evidence, self.now, brake, 0.0, 50)
        decision = decide(found, with_experience(known, self.incidents[-50:]))
        self.noted(found, decision)
        return decision

    def noted(self, found: Diagnosis, decision: Decision) -> None:
        """Write the incident down."""
        number, last = len(self.attempts), self.attempts[-1]
        self.incidents.append(
            IncidentRecord(
                f"r-a{number}-i1", "r", number, self.now, self.now, "pod-failed", found.fault_class, step=found.step,
                action=decision.action, charged=decision.charged, resumed_at=self.now + self.restart,
            )
        )  # fmt: skip
        self.past.append(
            PastIncident(
                str(found.fault_class), found.fingerprint, found.step, found.nodes, self.now, str(decision.action),
                decision.charged, last.last_step,
            )
        )  # fmt: skip


@cache
def gang(nodes: int, profile: str) -> Resolved:
    plain = a_gang(nodes)
    return plain.model_copy(update={"run": plain.run.model_copy(update={"recovery": load_recovery(profile)})})


SIZES = {"llama": (2_048, 54.0, 466 / 54 / 2_048, 600.0), "largest": (12_500, 14.0, PRIOR_RATE, 300.0)}
"""Nodes, days, stops per node and day, seconds between saves: what Llama 3 reported, and the largest gangs."""


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", in_turn(range(20), 4))
def test_nothing_that_the_infrastructure_does_ends_a_run(seed: int, size: str) -> None:
    nodes, days, rate, save = SIZES[size]
    run = Drawn(nodes, days, rate, seed, profile="patient" if seed >= 16 else "default", save=save)
    for found, decision in run.live():
        assert decision.action in STARTS, f"day {run.now / DAY:.1f}, {found.fault_class}: {decision.why}"
    assert len(run.attempts) > 350, "so many stops were drawn"


@cache
def _lived(nodes: int, days: float) -> Drawn:
    run = Drawn(nodes, days, PRIOR_RATE, 3, restart=120.0)
    for _ in run.live():
        pass
    return run


def aged(nodes: int, days: float) -> Drawn:
    """A run that has lived for so long: its budgets are as large as they become."""
    run = copy(_lived(nodes, days))
    run.attempts, run.incidents = list(run.attempts), list(run.incidents)
    run.checkpoints, run.past = list(run.checkpoints), list(run.past)
    return run


AGES = {"new": (12_500, 0.0), "a week old": (12_500, 7.0), "Llama's": (2_048, 7.0), "small": (8, 7.0)}


@pytest.mark.parametrize("age", AGES)
@pytest.mark.parametrize("kind", [F.UNKNOWN, F.PROCESS_KILLED, F.HANG, F.COLLECTIVE_TIMEOUT, F.RENDEZVOUS, F.HOST_OOM])
@pytest.mark.parametrize("fingerprint", ["", "exit 1: ValueError: no such key"])
def test_a_program_that_dies_at_one_step_is_given_up_after_three_attempts(
    age: str, kind: FaultClass, fingerprint: str
) -> None:
    run = aged(*AGES[age])
    step = run.saved + 7
    decisions = [run.fail(kind, 260.0, step, fingerprint=fingerprint) for _ in range(3)]
    assert A.GIVE_UP in [one.action for one in decisions], [one.why for one in decisions]


@pytest.mark.parametrize("age", AGES)
@pytest.mark.parametrize("kind", [F.UNKNOWN, F.PROCESS_KILLED, F.HANG, F.RENDEZVOUS, F.HOST_OOM, F.STORAGE])
@pytest.mark.parametrize("lived", [20.0, 110.0])
def test_a_crash_loop_without_a_step_is_given_up_after_six_attempts(age: str, kind: FaultClass, lived: float) -> None:
    run = aged(*AGES[age])
    decisions = [run.fail(kind, lived, fingerprint=f"{kind}:{turn}") for turn in range(6)]
    assert A.GIVE_UP in [one.action for one in decisions], [one.why for one in decisions]


@pytest.mark.parametrize("age", AGES)
@pytest.mark.parametrize("kind", [F.USER_CODE, F.CONFIG])
def test_an_exception_of_the_program_is_given_up_at_once_on_every_size(age: str, kind: FaultClass) -> None:
    assert aged(*AGES[age]).fail(kind, 200.0).action is A.GIVE_UP


def test_stops_between_two_of_the_programs_change_nothing() -> None:
    """Lost nodes neither count against a program nor hide that it is broken."""
    run = aged(12_500, 1.0)
    step = run.saved + 7
    for _ in range(2):
        assert run.fail(F.PROCESS_KILLED, 260.0, step, fingerprint="").action in STARTS
        assert run.fail(F.NODE_LOST, 50.0).action in STARTS
    given_up = run.fail(F.PROCESS_KILLED, 260.0, step, fingerprint="")
    assert given_up.action is A.GIVE_UP
    assert "3 attempts in a row ended at step" in given_up.why


def test_a_gang_that_gets_past_the_step_is_not_stuck_there() -> None:
    run = aged(12_500, 1.0)
    step = run.saved + 7
    for _ in range(2):
        run.fail(F.PROCESS_KILLED, 260.0, step, fingerprint="")
    run.fail(F.NODE_LOST, 400.0, step + 9)
    assert run.fail(F.PROCESS_KILLED, 260.0, step, fingerprint="").action in STARTS


@pytest.mark.parametrize("nodes", [8, 12_500])
def test_a_run_that_saves_nothing_any_more_ends_though_nobody_is_at_fault(nodes: int) -> None:
    run = aged(nodes, 1.0)
    began = run.now
    while (decision := run.fail(F.PREEMPTED, 200.0)).action in STARTS:
        assert run.now - began < 10 * DAY
    assert decision.action is A.GIVE_UP
    assert decision.why.startswith("no progress: the newest durable step is still ")
    assert run.now - began > 3 * 3600.0, "not before the profile's own limits of silence"


def test_what_chance_allows() -> None:
    assert [expected_at_most(mean, 1.0) for mean in (0.0, 1e-5, 0.013, 0.27, 3.39, 20.3)] == [0, 0, 1, 4, 26, 143]
    assert expected_at_most(20.3, 1000.0) == 36, "as of Poisson, where the rate is known"
    assert Chance(8).allows(0.0) == 0
    assert Chance(12_500, 1_000, 150_000.0).rate == pytest.approx(1001 / (1 / PRIOR_RATE + 150_000))
    assert Chance(8, 0, 1e6).rate == PRIOR_RATE, "a quiet fleet is no reason for a smaller budget"


def test_how_many_in_a_row_are_no_chance() -> None:
    assert [row_needed(each, 3) for each in (0.0, 1e-4, 0.05, 0.43, 1.0)] == [3, 3, 5, 17, 1375]


def test_the_brake_follows_the_size_of_the_pool() -> None:
    assert brake_trips(BrakeState(12_500, (), 25), 1) == ""
    assert "26 + 1 nodes taken out within 3600 s, at most 26 are allowed" in brake_trips(BrakeState(12_500, (), 26), 1)
    assert "8 + 1" in brake_trips(BrakeState(2_048, (), 8), 1)


def test_a_spent_budget_says_how_it_was_made() -> None:
    past = tuple(PastIncident("hang", f"x{i}", i, (), 99_000.0, "new-attempt", True, i) for i in range(7))
    chance = Chance(8, 0, 2.0, 2.0)
    spent = decide(Diagnosis(F.PROCESS_KILLED, 0.9, step=40), Situation(100_000.0, past=past, chance=chance))
    assert spent.action is A.GIVE_UP
    assert "the budget of 7 restarts in 21600 s (6 of the profile, 1 that chance may bring 8 nodes" in spent.why
    assert spent.why.endswith("what to do: mend what ends the attempts, then `primus resume`, which renews the budget")
    assert decide(Diagnosis(F.PROCESS_KILLED, 0.9), Situation(1e5, past=past[1:], chance=chance)).action in STARTS


@pytest.mark.parametrize(("gang", "before", "code"), [(8, 1, True), (12_500, 1, False), (12_500, 2, True)])
def test_one_coincidence_on_a_very_large_gang_does_not_blame_the_code(gang: int, before: int, code: bool) -> None:
    past = [PastIncident("hang", "x", 40, (f"n{i}",), 10.0 * i, "new-attempt", True, 40) for i in range(before)]
    assert bool(memories(F.HANG, "", "x", 40, ["n9"], gang, past)) is code
    passed = PastIncident("node_lost", "y", 60, ("n8",), 90.0, "new-attempt", False, 60)
    assert memories(F.HANG, "", "x", 40, ["n9"], gang, [*past, passed]) == (), "it got past that step since"


def test_rows_leave_out_what_the_infrastructure_ended() -> None:
    assert rows_without_progress((100, 90, 80, 70), frozenset({1, 2, 3})) == (0, 0)
    assert rows_without_progress((40, None, None, None), frozenset({2})) == (2, 2)
    assert rows_without_progress((40, 90, 40), frozenset({1})) == (1, 0)


def test_the_expected_time_to_a_durable_step() -> None:
    chance = Chance(12_500)
    assert Pace(40, 0.0, 300.0).expected_seconds(chance, 600.0) == pytest.approx(600 + 1063.4 * 1.758 * 0.326, rel=0.01)
    assert Pace().expected_seconds(chance, 600.0) is None, "nothing is known: nothing ends for it"
