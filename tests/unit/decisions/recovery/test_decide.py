"""Decisions: a table of situations, and what must hold for all of them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.decisions.diagnosis.blame import SAME_NODE
from flows.decisions.diagnosis.clues import Clue
from flows.decisions.diagnosis.diagnose import Diagnosis
from flows.decisions.policy import POLICY
from flows.decisions.recovery.chance import Pace
from flows.decisions.recovery.decide import decide
from flows.decisions.recovery.decision import STARTS, Decision, Situation, restarts_left
from flows.decisions.recovery.limits import attempts_without_progress
from profiles.cluster import Brake
from profiles.recovery import Budget, RecoveryProfile
from profiles.run import RunBudget
from profiles.vocabulary import Action, FaultClass, Mode, NodeAction
from tests.support.cases.rows import values
from workflows.model.attempt import PastIncident
from workflows.model.fleet import BrakeState, brake_trips
from workflows.wire import CheckpointState, ResumeChoice

F, A = FaultClass, Action
NOW = 100_000.0


def is_(fault_class: FaultClass, confidence: float = 0.9, **more: object) -> Diagnosis:
    facts = {"fingerprint": f"{fault_class}:x", "step": 40, "why": "as the evidence says"} | more
    return Diagnosis(fault_class, confidence, **facts)  # type: ignore[arg-type]


def on_node(fault_class: FaultClass, node: str = "node-1") -> Diagnosis:
    return is_(fault_class, culprits=((node, None),), nodes=(node,), node_suspect=True)


def past(fault_class: FaultClass, at: float = NOW - 60, **more: object) -> PastIncident:
    facts: dict[str, object] = {
        "fingerprint": f"{fault_class}:x",
        "step": 40,
        "nodes": (),
        "at": at,
        "action": "new-attempt",
        "charged": True,
        "last_step": 40,
    }
    return PastIncident(fault_class.value, **(facts | more))  # type: ignore[arg-type]


def at(*history: PastIncident, **more: object) -> Situation:
    return Situation(NOW, past=history, **more)  # type: ignore[arg-type]


def choice(verdict: str, path: str = "", step: int | None = None, damaged: int = 0) -> ResumeChoice:
    states = [
        CheckpointState(n, f"/c/{n}", "durable", "primus", 1, True, "bad", False, "digest") for n in range(damaged)
    ]
    return ResumeChoice(path, step, states, verdict, "")


SAVED = ((10, "/c/10"), (20, "/c/20"), (30, "/c/30"))


@dataclass(frozen=True)
class Before:
    """So many equal incidents before, as `past` makes them."""

    fault: FaultClass
    at: float = NOW - 60
    step: int = 40
    last_step: int = 40
    nodes: tuple[str, ...] = ()
    action: str = "new-attempt"
    charged: bool = True
    fingerprint: str = ""
    times: int = 1

    def incidents(self) -> list[PastIncident]:
        facts = {name: getattr(self, name) for name in ("step", "last_step", "nodes", "action", "charged")}
        facts["fingerprint"] = self.fingerprint or f"{self.fault}:x"
        return [past(self.fault, self.at, **facts)] * self.times


@dataclass(frozen=True)
class Case:
    """A row of the table: what was diagnosed, when, and what is done; the rest is as `is_` and `at` have it."""

    fault: FaultClass
    action: Action
    confidence: float = 0.9
    node: str = ""
    """A node that is to blame."""
    always_on_it: bool = False
    rule: str = ""
    fingerprint: str | None = None
    past: tuple[Before, ...] = ()
    choice: dict[str, Any] = field(default_factory=dict[str, Any])
    recovery: RecoveryProfile = field(default_factory=RecoveryProfile)
    mode: Mode = Mode.ACT
    budget: RunBudget = field(default_factory=RunBudget)
    gpu_hours: float = 0.0
    wall_seconds: float = 0.0
    pool_size: int = 1_000_000
    quarantined: tuple[str, ...] = ()
    evictions: int = 0
    resumed_at: float | None = None
    attempts: int = 1
    highest_steps: tuple[int | None, ...] = ()
    checkpoints: tuple[tuple[int, str], ...] = ()
    roll_back_limits: tuple[tuple[int, int], ...] = ()
    first_nan_step: int | None = None
    pending_seconds: float | None = None
    ended: bool = True

    def diagnosis(self) -> Diagnosis:
        found = on_node(self.fault, self.node) if self.node else is_(self.fault, self.confidence, rule=self.rule)
        if self.fingerprint is not None:
            found = replace(found, fingerprint=self.fingerprint)
        clue = Clue(self.fault, 0.6, f"twice, always on {self.node}", SAME_NODE, "node")
        return replace(found, evidence=(clue,)) if self.always_on_it else found

    def situation(self) -> Situation:
        same = {one.name for one in fields(Situation)} & {one.name for one in fields(self)} - {"past", "choice"}
        history = [incident for before in self.past for incident in before.incidents()]
        facts = {name: getattr(self, name) for name in same}
        facts["brake"] = BrakeState(self.pool_size, self.quarantined, self.evictions)
        return at(*history, choice=choice(**self.choice) if self.choice else None, **facts)


CASES = values("recovery/decide", "situations", Case)


@pytest.mark.parametrize("sentence", CASES)
def test_what_is_done(sentence: str) -> None:
    case = CASES[sentence]
    action, decision = case.action, decide(case.diagnosis(), case.situation())
    assert decision.action is action, decision.why
    assert decision.why
    assert decision.would_change
    assert (decision.approval is not None) is (action is A.ASK)
    assert (decision.if_approved is not None) is (action is A.ASK)


def test_every_class_has_a_treatment() -> None:
    assert set(POLICY) == set(FaultClass)


def test_infrastructure_faults_are_free_and_others_are_charged() -> None:
    free = set(RecoveryProfile().free_classes)
    for kind in FaultClass:
        decision = decide(is_(kind, fingerprint=""), at(checkpoints=SAVED, choice=choice("pass", "/c/30", 30)))
        assert decision.charged is (decision.action in STARTS and kind not in free), kind
        assert decision.budget_left == (5 if decision.charged else 6), kind


def test_a_lost_node_is_quarantined_and_avoided() -> None:
    decision = decide(on_node(F.NODE_LOST), at())
    assert [step[:2] for step in decision.node_actions] == [(NodeAction.QUARANTINE, "node-1")]
    assert (decision.avoid_nodes, decision.charged) == (("node-1",), False)


def test_a_symptom_with_several_owners_is_moved_without_blame_where_others_are_free() -> None:
    assert decide(on_node(F.FABRIC), at()).avoid_nodes == ()
    first = decide(on_node(F.FABRIC), at(spare_nodes=1))
    assert (first.avoid_nodes, first.node_actions) == (("node-1",), ())
    again = decide(on_node(F.FABRIC), at(past(F.FABRIC, nodes=("node-1",))))
    assert [step[:2] for step in again.node_actions] == [(NodeAction.QUARANTINE, "node-1")]
    assert again.avoid_nodes == ("node-1",)


def test_another_class_on_that_node_before_does_not_count() -> None:
    assert decide(on_node(F.FABRIC), at(past(F.THERMAL_POWER, nodes=("node-1",)))).node_actions == ()


def test_restarts_left_is_never_negative() -> None:
    assert restarts_left(at(*[past(F.HANG)] * 10)) == 0


def test_a_rank_alone_never_brings_its_node_into_quarantine() -> None:
    for kind in FaultClass:
        blamed = is_(kind, culprits=(("node-1", 1),), nodes=("node-1",))
        assert decide(blamed, at(past(kind, nodes=("node-1",)), checkpoints=SAVED)).node_actions == ()


def test_waits_double_and_stay_bounded() -> None:
    recovery = RecoveryProfile(restarts=Budget(tokens=50), no_progress_attempts=50)
    waits = [decide(is_(F.STORAGE), at(*[past(F.STORAGE)] * n, recovery=recovery)).wait_seconds for n in range(4)]
    assert waits == [5.0, 10.0, 20.0, 40.0]
    many = [past(F.CONTROL_PLANE, charged=False)] * 40
    assert decide(is_(F.CONTROL_PLANE), at(*many)).wait_seconds == 600.0


def test_giving_up_still_takes_the_broken_node_out() -> None:
    spent: dict[str, Any] = {"budget": RunBudget(gpu_hours=1.0), "gpu_hours": 2.0}
    decision = decide(on_node(F.GPU_HARDWARE), at(**spent))
    assert (decision.action, [step.node for step in decision.node_actions]) == (A.GIVE_UP, ["node-1"])
    braked = decide(on_node(F.GPU_HARDWARE), at(brake=BrakeState(4, ("node-3",)), **spent))
    assert (braked.action, braked.node_actions) == (A.GIVE_UP, ())
    assert "the brake" in braked.why


def test_the_question_says_what_would_be_done() -> None:
    decision = decide(on_node(F.NODE_LOST), at(brake=BrakeState(4, ("node-3",))))
    assert decision.if_approved is A.NEW_ATTEMPT
    assert decision.approval is not None
    assert "node-1" in decision.approval
    assert [step.node for step in decision.node_actions] == ["node-1"]


@pytest.mark.parametrize(("mode", "paused"), [(Mode.OBSERVE, False), (Mode.ACT, True)])
def test_observing_and_pausing_decide_the_same_and_touch_nothing(mode: Mode, paused: bool) -> None:
    for diagnosis, situation in [(case.diagnosis(), case.situation()) for case in CASES.values()]:
        if situation.mode is Mode.ASK:
            continue
        acting = decide(diagnosis, situation)
        watching = decide(diagnosis, replace(situation, mode=mode, paused=paused))
        assert watching == replace(acting, act=False)


def test_what_earlier_roll_backs_forbid_holds_for_every_later_attempt() -> None:
    from flows.decisions.recovery.resume_rule import CheckpointRule

    decision = decide(on_node(F.NODE_LOST), at(lineage=CheckpointRule(55, ("/c/60",))))
    assert (decision.max_resume_step, decision.exclude_checkpoints) == (55, ("/c/60",))
    deeper = decide(is_(F.NUMERIC), at(lineage=CheckpointRule(55), checkpoints=SAVED, first_nan_step=35))
    assert deeper.max_resume_step == 30


@pytest.mark.parametrize(
    ("steps", "row"),
    [
        ((), 0),
        ((5,), 0),
        ((None,), 1),
        ((5, 5), 1),
        ((5, 4, 3), 2),
        ((5, 4, 6), 0),
        ((None, None, None), 3),
        ((0, 0), 1),
    ],
)
def test_attempts_without_progress(steps: tuple[int | None, ...], row: int) -> None:
    assert attempts_without_progress(steps) == row


def test_the_brake_counts_shares_and_evictions() -> None:
    limits = Brake(max_quarantined_share=0.2, max_evictions=8)
    assert brake_trips(BrakeState(10, ("a",), 0, limits), 1) == ""
    assert "2 + 1 of 10" in brake_trips(BrakeState(10, ("a", "b"), 0, limits), 1)
    assert "8 + 1" in brake_trips(BrakeState(1000, (), 8, limits), 1)


STEPS = st.none() | st.integers(0, 50)
CLASSES = st.sampled_from(FaultClass)


def _past(
    kind: FaultClass, step: int | None, seconds_ago: float, charged: bool, nodes: tuple[str, ...]
) -> PastIncident:
    return past(kind, NOW - seconds_ago, step=step, charged=charged, nodes=nodes)


def _diagnosis(kind: FaultClass, confidence: float, step: int | None, node: str, suspect: bool) -> Diagnosis:
    culprits = ((node, None),) if node else ()
    return is_(kind, confidence, step=step, culprits=culprits, node_suspect=suspect and bool(node))


def _situation(history: list[PastIncident], saved: set[int], quarantined: int, facts: dict[str, Any]) -> Situation:
    checkpoints = tuple((step, f"/c/{step}") for step in sorted(saved))
    brake = BrakeState(10, tuple(f"node-{number}" for number in range(quarantined)))
    return at(*history, checkpoints=checkpoints, brake=brake, **facts)


NODES = st.sampled_from([(), ("node-1",), ("node-2",)])
HISTORY = st.lists(st.builds(_past, CLASSES, STEPS, st.floats(0, 50_000), st.booleans(), NODES), max_size=12)
BLAMED = st.sampled_from(["", "node-1", "node-2"])
DIAGNOSES = st.builds(_diagnosis, CLASSES, st.floats(0, 1), STEPS, BLAMED, st.booleans())
FACTS = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(Mode),
        "attempts": st.integers(1, 101),
        "highest_steps": st.lists(STEPS, max_size=5).map(tuple[int | None, ...]),
        "first_nan_step": STEPS,
        "ended": st.booleans(),
    }
)
SITUATIONS = st.builds(_situation, HISTORY, st.sets(st.integers(1, 50), max_size=5), st.integers(0, 4), FACTS)


@settings(max_examples=150, deadline=None)
@given(DIAGNOSES, SITUATIONS)
def test_a_decision_is_total_and_budgets_never_go_negative(diagnosis: Diagnosis, situation: Situation) -> None:
    decision = decide(diagnosis, situation)
    assert decision == decide(diagnosis, situation)
    assert 0 <= decision.budget_left <= situation.recovery.restarts.tokens
    assert 0 <= decision.wait_seconds <= 3600
    if decision.charged:
        assert restarts_left(situation) > 0
        assert decision.budget_left == restarts_left(situation) - 1


@settings(max_examples=150, deadline=None)
@given(DIAGNOSES, SITUATIONS)
def test_a_roll_back_never_goes_forward(diagnosis: Diagnosis, situation: Situation) -> None:
    decision = decide(diagnosis, situation)
    if decision.action is A.ROLL_BACK and diagnosis.fault_class is F.NUMERIC:
        assert decision.max_resume_step is not None
        known = [step for step, _ in situation.checkpoints]
        newest = situation.first_nan_step if situation.first_nan_step is not None else max([*known, 1])
        assert decision.max_resume_step < max(newest, 1)
        assert decision.max_resume_step in {0, *known}


@settings(max_examples=150, deadline=None)
@given(DIAGNOSES, SITUATIONS)
def test_only_blamed_nodes_are_touched(diagnosis: Diagnosis, situation: Situation) -> None:
    decision = decide(diagnosis, situation)
    blamed = {node for node, rank in diagnosis.culprits if node and rank is None}
    assert {step.node for step in decision.node_actions} <= (blamed if diagnosis.node_suspect else set())
    assert set(decision.avoid_nodes) <= {node for node, _ in diagnosis.culprits} | set(diagnosis.avoid)


def _after(situation: Situation, diagnosis: Diagnosis, decision: Decision, last: int | None) -> Situation:
    """The next situation, as the train flow's ledger would have it, after an attempt that ended at `last`."""
    happened = PastIncident(
        diagnosis.fault_class.value,
        diagnosis.fingerprint,
        diagnosis.step,
        diagnosis.nodes,
        situation.now,
        decision.action.value,
        decision.charged,
        last,
    )
    return replace(
        situation,
        now=situation.now + 1000.0 + decision.wait_seconds,
        past=(*situation.past, happened),
        attempts=situation.attempts + 1,
        highest_steps=(*situation.highest_steps, last),
        pace=replace(situation.pace, still_seconds=situation.pace.still_seconds + 1000.0),
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(DIAGNOSES, STEPS), min_size=1, max_size=8), st.booleans())
def test_every_run_ends_whatever_happens_to_it(outcomes: list[tuple[Diagnosis, int | None]], endless: bool) -> None:
    """Attempts fail for ever with the same sequence of outcomes: the loop of decisions ends all the same.

    Where the infrastructure ends each of them that is because no attempt saves anything any more.
    """
    situation = at(attempts=0, highest_steps=(), mode=Mode.ACT, checkpoints=SAVED, pace=Pace(30, 0.0, 600.0))
    for turn in range(110):
        diagnosis, step = outcomes[turn % len(outcomes)]
        last = turn if endless else step  # endless: every attempt makes one step of progress
        situation = replace(situation, attempts=situation.attempts + 1, highest_steps=(*situation.highest_steps, last))
        decision = decide(diagnosis, situation)
        assert decision.action is not A.NONE, "the attempt has ended: doing nothing would be an endless wait"
        if decision.action in (A.GIVE_UP, A.ASK):
            return
        before = _after(situation, diagnosis, decision, last)
        situation = replace(before, attempts=before.attempts - 1, highest_steps=situation.highest_steps)
    pytest.fail("no end after 110 attempts")
