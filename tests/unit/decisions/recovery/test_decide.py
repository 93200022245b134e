"""Decisions: a table of situations, and what must hold for all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.decisions.diagnosis.clues import Clue
from flows.decisions.diagnosis.diagnose import Diagnosis
from flows.decisions.diagnosis.history import SAME_NODE
from flows.decisions.policy import POLICY
from flows.decisions.recovery.decide import decide
from flows.decisions.recovery.decision import STARTS, Decision, Situation, restarts_left
from flows.decisions.recovery.limits import attempts_without_progress
from profiles.cluster import Brake
from profiles.recovery import Budget, RecoveryProfile
from profiles.run import RunBudget
from profiles.vocabulary import Action, FaultClass, Mode, NodeAction
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


def choice(verdict: str, path: str = "", step: int | None = None, looked: int = 0) -> ResumeChoice:
    states = [
        CheckpointState(n, f"/c/{n}", "durable", "primus", 1, True, "bad", False, "digest") for n in range(looked)
    ]
    return ResumeChoice(path, step, states, verdict, "")


SAVED = ((10, "/c/10"), (20, "/c/20"), (30, "/c/30"))

CASES: dict[str, tuple[Diagnosis, Situation, Action]] = {
    "an exception in the user's code is not tried again": (is_(F.USER_CODE), at(), A.GIVE_UP),
    "unless the profile says so": (
        is_(F.USER_CODE),
        at(recovery=RecoveryProfile(retry_user_code=True)),
        A.NEW_ATTEMPT,
    ),
    "and even then not twice at the same step": (
        is_(F.USER_CODE),
        at(past(F.USER_CODE), recovery=RecoveryProfile(retry_user_code=True)),
        A.GIVE_UP,
    ),
    "but at another step it is another failure": (
        is_(F.USER_CODE),
        at(past(F.USER_CODE, step=12, last_step=12), recovery=RecoveryProfile(retry_user_code=True)),
        A.NEW_ATTEMPT,
    ),
    "a class that is not sure does not end a run": (is_(F.USER_CODE, 0.4), at(), A.NEW_ATTEMPT),
    "configuration is not tried again": (is_(F.CONFIG), at(), A.GIVE_UP),
    "the GPU's memory runs out again for sure": (is_(F.GPU_OOM), at(), A.GIVE_UP),
    "another model's checkpoint does not fit next time": (is_(F.CHECKPOINT_MISMATCH), at(), A.GIVE_UP),
    "the host's memory gets one more try": (is_(F.HOST_OOM), at(), A.NEW_ATTEMPT),
    "and no second one": (is_(F.HOST_OOM), at(past(F.HOST_OOM, step=7)), A.GIVE_UP),
    "unless the first was long ago": (is_(F.HOST_OOM), at(past(F.HOST_OOM, at=0.0)), A.NEW_ATTEMPT),
    "a killed process is started again": (is_(F.PROCESS_KILLED), at(past(F.PROCESS_KILLED)), A.NEW_ATTEMPT),
    "a lost node is replaced": (on_node(F.NODE_LOST), at(), A.NEW_ATTEMPT),
    "broken hardware is replaced": (on_node(F.GPU_HARDWARE), at(), A.NEW_ATTEMPT),
    "a sick NIC is tried once more": (on_node(F.FABRIC), at(), A.NEW_ATTEMPT),
    "storage gets time": (is_(F.STORAGE), at(), A.NEW_ATTEMPT),
    "a full disk gets time once": (is_(F.STORAGE, rule="disk-full"), at(), A.NEW_ATTEMPT),
    "and not twice": (is_(F.STORAGE, rule="disk-full"), at(past(F.STORAGE)), A.GIVE_UP),
    "a memory fault of a GPU may be the machine's": (is_(F.USER_CODE, rule="cuda-illegal-access"), at(), A.NEW_ATTEMPT),
    "past a checkpoint that cannot be read": (
        is_(F.CHECKPOINT_CORRUPT),
        at(choice=choice("pass", "/c/30", 30), checkpoints=SAVED),
        A.ROLL_BACK,
    ),
    "no usable checkpoint ends the run rather than its results": (
        is_(F.CHECKPOINT_CORRUPT),
        at(choice=choice("fail", looked=3), checkpoints=()),
        A.GIVE_UP,
    ),
    "or asks where people want to be asked": (
        is_(F.CHECKPOINT_CORRUPT),
        at(choice=choice("fail", looked=3), mode=Mode.ASK),
        A.ASK,
    ),
    "preemption is free of charge": (is_(F.PREEMPTED), at(*[past(F.PREEMPTED, charged=False)] * 20), A.NEW_ATTEMPT),
    "NaN goes back before it": (is_(F.NUMERIC), at(checkpoints=SAVED, first_nan_step=35), A.ROLL_BACK),
    "and further the second time": (
        is_(F.NUMERIC),
        at(checkpoints=SAVED, first_nan_step=35, roll_back_limits=((35, 30),)),
        A.ROLL_BACK,
    ),
    "but not a third time": (
        is_(F.NUMERIC),
        at(checkpoints=SAVED, first_nan_step=35, roll_back_limits=((35, 30), (35, 20))),
        A.GIVE_UP,
    ),
    "an old NaN that was trained past is another cause": (
        is_(F.NUMERIC),
        at(checkpoints=((40, "/c/40"), (60, "/c/60")), first_nan_step=65, roll_back_limits=((35, 30), (35, 20))),
        A.ROLL_BACK,
    ),
    "a collective time-out blames nobody": (is_(F.COLLECTIVE_TIMEOUT), at(), A.NEW_ATTEMPT),
    "rendezvous gets a new namespace": (is_(F.RENDEZVOUS), at(past(F.RENDEZVOUS)), A.NEW_ATTEMPT),
    "room is waited for": (is_(F.SCHEDULING), at(pending_seconds=10.0), A.WAIT),
    "but not for ever": (is_(F.SCHEDULING), at(pending_seconds=3600.0), A.GIVE_UP),
    "an observer in trouble leaves training alone": (is_(F.CONTROL_PLANE), at(ended=False), A.NONE),
    "but where nothing trains any more, it starts again": (is_(F.CONTROL_PLANE), at(ended=True), A.NEW_ATTEMPT),
    "a straggler is left alone": (is_(F.STRAGGLER), at(ended=False), A.NONE),
    "starting over must not overwrite anything": (is_(F.STARTED_OVER, 0.3), at(), A.GIVE_UP),
    "the unknown is tried": (is_(F.UNKNOWN), at(), A.NEW_ATTEMPT),
    "the same unknown at the same step twice is the code or the data": (is_(F.UNKNOWN), at(past(F.UNKNOWN)), A.GIVE_UP),
    "what cannot be compared is not the same": (is_(F.UNKNOWN, fingerprint=""), at(past(F.UNKNOWN)), A.NEW_ATTEMPT),
    "three attempts without a step of progress are enough": (
        is_(F.PREEMPTED),
        at(highest_steps=(40, 40, 39, None)),
        A.GIVE_UP,
    ),
    "two are not": (is_(F.PREEMPTED), at(highest_steps=(40, 41, 39, None)), A.NEW_ATTEMPT),
    "free attempts end too": (is_(F.PREEMPTED), at(attempts=100), A.GIVE_UP),
    "a spent budget ends charged restarts": (is_(F.PROCESS_KILLED), at(*[past(F.HANG)] * 6), A.GIVE_UP),
    "but not free ones": (is_(F.PREEMPTED), at(*[past(F.HANG)] * 6), A.NEW_ATTEMPT),
    "old restarts have left the window": (is_(F.PROCESS_KILLED), at(*[past(F.HANG, at=1.0)] * 6), A.NEW_ATTEMPT),
    "a person who resumes the run renews the budget": (
        is_(F.PROCESS_KILLED),
        at(*[past(F.HANG)] * 6, resumed_at=NOW - 1),
        A.NEW_ATTEMPT,
    ),
    "GPU-hours run out": (is_(F.PREEMPTED), at(budget=RunBudget(gpu_hours=10), gpu_hours=10.0), A.GIVE_UP),
    "wall time runs out": (is_(F.PREEMPTED), at(budget=RunBudget(wall_seconds=10), wall_seconds=11.0), A.GIVE_UP),
    "the brake stops the second node of a small pool": (
        on_node(F.NODE_LOST),
        at(brake=BrakeState(4, ("node-3",))),
        A.ASK,
    ),
    "the brake stops too many evictions": (on_node(F.NODE_LOST), at(brake=BrakeState(1000, (), 8)), A.ASK),
    "one node may always go": (on_node(F.NODE_LOST), at(brake=BrakeState(2)), A.NEW_ATTEMPT),
    "a node already in quarantine does not count again": (
        on_node(F.NODE_LOST),
        at(brake=BrakeState(4, ("node-1",))),
        A.NEW_ATTEMPT,
    ),
    "in mode ask, people approve what the profile names": (
        on_node(F.NODE_LOST),
        at(mode=Mode.ASK, recovery=RecoveryProfile(ask_before=(NodeAction.QUARANTINE,))),
        A.ASK,
    ),
    "in mode ask, the rest is done": (on_node(F.NODE_LOST), at(mode=Mode.ASK), A.NEW_ATTEMPT),
    "the same hang after one that was restarted in place at the same step is the code's": (
        is_(F.HANG),
        at(past(F.HANG, action="restart-in-place", charged=False)),
        A.GIVE_UP,
    ),
    "a restart in place of another class is not the same failure, whatever its signal": (
        is_(F.HANG),
        at(past(F.PROCESS_KILLED, action="restart-in-place", charged=False, fingerprint=f"{F.HANG}:x")),
        A.NEW_ATTEMPT,
    ),
    "the same failure always on one node is not the code's": (
        replace(
            on_node(F.GPU_DRIVER), evidence=(Clue(F.GPU_DRIVER, 0.6, "twice, always on node-1", SAME_NODE, "node"),)
        ),
        at(past(F.GPU_DRIVER, nodes=("node-1",))),
        A.NEW_ATTEMPT,
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_what_is_done(sentence: str) -> None:
    diagnosis, situation, action = CASES[sentence]
    decision = decide(diagnosis, situation)
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
    decision = decide(on_node(F.GPU_HARDWARE), at(attempts=100))
    assert (decision.action, [step.node for step in decision.node_actions]) == (A.GIVE_UP, ["node-1"])
    braked = decide(on_node(F.GPU_HARDWARE), at(attempts=100, brake=BrakeState(4, ("node-3",))))
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
    for diagnosis, situation, _ in CASES.values():
        if situation.mode is Mode.ASK:
            continue
        acting = decide(diagnosis, situation)
        watching = decide(diagnosis, replace(situation, mode=mode, paused=paused))
        assert watching == replace(acting, act=False)


def test_what_earlier_roll_backs_forbid_holds_for_every_later_attempt() -> None:
    from flows.decisions.recovery.checkpoints import CheckpointRule

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
HISTORY = st.lists(
    st.builds(
        lambda kind, step, when, charged, node: past(kind, NOW - when, step=step, charged=charged, nodes=node),
        CLASSES,
        STEPS,
        st.floats(0, 50_000),
        st.booleans(),
        st.sampled_from([(), ("node-1",), ("node-2",)]),
    ),
    max_size=12,
).map(tuple)
DIAGNOSES = st.builds(
    lambda kind, confidence, step, node, suspect: is_(
        kind, confidence, step=step, culprits=((node, None),) if node else (), node_suspect=suspect and bool(node)
    ),
    CLASSES,
    st.floats(0, 1),
    STEPS,
    st.sampled_from(["", "node-1", "node-2"]),
    st.booleans(),
)
SITUATIONS = st.builds(
    lambda history, mode, attempts, highest, saved, nan, quarantined, ended: at(
        *history,
        mode=mode,
        attempts=attempts,
        highest_steps=tuple(highest),
        checkpoints=tuple((step, f"/c/{step}") for step in sorted(saved)),
        first_nan_step=nan,
        brake=BrakeState(10, tuple(f"node-{number}" for number in range(quarantined))),
        ended=ended,
    ),
    HISTORY,
    st.sampled_from(Mode),
    st.integers(1, 101),
    st.lists(STEPS, max_size=5),
    st.sets(st.integers(1, 50), max_size=5),
    STEPS,
    st.integers(0, 4),
    st.booleans(),
)


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
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(DIAGNOSES, STEPS), min_size=1, max_size=8), st.booleans())
def test_every_run_ends_whatever_happens_to_it(outcomes: list[tuple[Diagnosis, int | None]], endless: bool) -> None:
    """Attempts fail for ever with the same sequence of outcomes: the loop of decisions ends all the same."""
    situation = at(attempts=0, highest_steps=(), mode=Mode.ACT, checkpoints=SAVED)
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
