"""When a gang leaves a slow node: never before waiting has cost as much as leaving, and never for nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.policy import policy_of
from flows.decisions.recovery.assess import Case, assess
from flows.decisions.recovery.decide import decide
from flows.decisions.recovery.decision import Situation
from flows.decisions.recovery.straggler import price_seconds, straggler_move
from profiles.loading import load
from profiles.recovery import Budget, RecoveryProfile, StragglerLimits
from profiles.run import RunBudget
from profiles.vocabulary import Action, FaultClass, Mode
from tests.support.nodes import a_node
from workflows.model.attempt import AttemptView, CoordinatorFacts, Evidence, Signal
from workflows.model.cluster import Pod
from workflows.model.fleet import NodeCandidate
from workflows.model.gang_status import GangNews
from workflows.model.records import AttemptRecord
from workflows.status import Straggler

SLOW = Straggler(1, "node-1", 2.0, since_step=20, cost_seconds=30.0)
ATTEMPT = AttemptRecord("r", 1, 0.0, "first", submitted_at=1.0, nodes=("node-0", "node-1"), first_step_at=20.0)
FACTS = CoordinatorFacts(
    at=99.9,
    step=100,
    last_checkpoint_step=95,
    steps_per_second=0.5,
    heard=(("p0", "node-0", 99.8), ("p1", "node-1", 99.8)),
    news=GangNews(stragglers=(SLOW,)),
)
"""A start took 20 s and 5 steps of 2 s are not saved: a new attempt costs 30 s, and as much was waited."""
PODS = (
    Pod("p0", "trainer", 0, "node-0", "Running", ranks=(0,)),
    Pod("p1", "trainer", 1, "node-1", "Running", ranks=(1,)),
    Pod("c", "coordinator", 0, "node-2", "Running"),
)
POOL = tuple(NodeCandidate(name) for name in ("node-0", "node-1", "node-2"))
VIEW = AttemptView(
    "r", 1, 100.0, jobset="Running", pods=PODS, nodes=(a_node("node-0", True), a_node("node-1", True)),
    coordinator=FACTS, pool=POOL,
)  # fmt: skip


def case(leave: bool = True) -> Case:
    resolved = load.resolve(load.load_run("demo"), load.load_cluster("local"))
    run = resolved.run
    recovery = run.recovery.model_copy(update={"straggler": StragglerLimits(leave=leave)})
    changed = run.model_copy(update={"recovery": recovery, "steps": 1000})
    return Case(resolved.model_copy(update={"run": changed}), ATTEMPT)


def slow(**changes: object) -> CoordinatorFacts:
    return replace(FACTS, news=GangNews(stragglers=(replace(SLOW, **changes),)))  # pyright: ignore


def test_the_price_is_a_start_like_this_one_and_what_is_not_saved() -> None:
    assert price_seconds(FACTS, ATTEMPT) == 20.0 + 5 / 0.5
    assert price_seconds(replace(FACTS, last_checkpoint_step=None), ATTEMPT) == 20.0 + 100 / 0.5
    assert price_seconds(replace(FACTS, last_checkpoint_step=None), replace(ATTEMPT, resumed_from_step=90)) == 40.0
    assert price_seconds(replace(FACTS, steps_per_second=None), ATTEMPT) is None
    assert price_seconds(FACTS, replace(ATTEMPT, first_step_at=None)) is None


@pytest.mark.parametrize(
    ("facts", "steps", "waits_for"),
    [
        (FACTS, 1000, ""),
        (FACTS, None, ""),
        (slow(cost_seconds=29.9), 1000, "a new attempt costs more (30 s)"),
        (slow(since_step=96), 1000, "no checkpoint has been proven since the rank became slow"),
        (
            replace(slow(cost_seconds=300.0), last_checkpoint_step=None),
            1000,
            "no checkpoint has been proven since the rank became slow",
        ),
        (FACTS, 129, "the rest of the run loses less (29 s) than a new attempt costs (30 s)"),
        (FACTS, 130, ""),
        (slow(node=""), 1000, "the node of the slow rank is not known"),
        (replace(FACTS, steps_per_second=None), 1000, "the cost of a new attempt is not known yet"),
    ],
)
def test_it_waits_until_the_move_pays(facts: CoordinatorFacts, steps: int | None, waits_for: str) -> None:
    found = straggler_move(facts, ATTEMPT, steps)
    assert found is not None
    assert found.blocked_by == waits_for


def test_nobody_leaves_where_nobody_lags_or_nobody_tells() -> None:
    assert straggler_move(None, ATTEMPT, 1000) is None
    assert straggler_move(replace(FACTS, news=GangNews()), ATTEMPT, 1000) is None
    assert straggler_move(replace(FACTS, news=GangNews(stragglers=())), ATTEMPT, 1000) is None


def test_the_costliest_is_left() -> None:
    other = Straggler(0, "node-0", 1.2, 20, 40.0)
    found = straggler_move(replace(FACTS, news=GangNews(stragglers=(SLOW, other))), ATTEMPT, 1000)
    assert found is not None
    assert found.straggler is other


@given(st.floats(1.1, 10), st.floats(0, 1e4), st.integers(0, 1000), st.floats(0.01, 10), st.floats(0, 1e4))
def test_never_more_than_twice_what_the_wiser_pays(
    ratio: float, cost: float, saved: int, rate: float, start: float
) -> None:
    facts = replace(FACTS, step=1000, last_checkpoint_step=saved, steps_per_second=rate)
    facts = replace(facts, news=GangNews(stragglers=(Straggler(1, "node-1", ratio, 0, cost),)))
    attempt = replace(ATTEMPT, first_step_at=start)
    found = straggler_move(facts, attempt, None)
    assert found is not None
    assert found.price_seconds is not None
    assert (found.blocked_by == "") == (cost >= found.price_seconds)


def test_the_watching_ends_where_another_node_is_free() -> None:
    found = assess(VIEW, case())
    assert found is not None
    assert (found.signal, found.nodes) == (Signal.STRAGGLER, ("node-1",))
    assert found.why == (
        "rank 1 on node-1 takes 2.00 times as long as its peers; the gang has lost 30 s waiting for it, "
        "as much as a new attempt costs (30 s)"
    )


@pytest.mark.parametrize(
    "view",
    [
        replace(VIEW, pool=None),
        replace(VIEW, pool=POOL[:2]),
        replace(VIEW, pool=(*POOL[:2], NodeCandidate("node-2", busy="another run"))),
        replace(VIEW, pool=(*POOL[:2], NodeCandidate("node-2", cordoned=True))),
        replace(VIEW, coordinator=slow(cost_seconds=1.0)),
    ],
)
def test_a_gang_that_has_nowhere_to_go_stays(view: AttemptView) -> None:
    assert assess(view, case()) is None


def test_the_profile_may_forbid_it() -> None:
    assert assess(VIEW, case(leave=False)) is None
    assert load.resolve(load.load_run("demo"), load.load_cluster("local")).run.recovery.straggler.leave is False
    assert RecoveryProfile().straggler.leave


def evidence(signal: Signal = Signal.STRAGGLER) -> Evidence:
    found = assess(VIEW, case())
    assert found is not None
    nodes = (a_node("node-0", True), a_node("node-1", True, cordoned=signal is Signal.NODE_CORDONED))
    detail = found.why if signal is Signal.STRAGGLER else "cordoned by somebody, and other nodes are free: node-1"
    return Evidence(signal, "r", 1, 100.0, pods=PODS, nodes=nodes, detail=detail)


def test_the_node_is_to_blame_and_avoided_and_nobody_is_quarantined() -> None:
    diagnosis = diagnose(evidence())
    assert (diagnosis.fault_class, diagnosis.culprits) == (FaultClass.STRAGGLER, (("node-1", None),))
    decision = decide(diagnosis, Situation(100.0, ended=False, spare_nodes=1))
    assert (decision.action, decision.avoid_nodes) == (Action.NEW_ATTEMPT, ("node-1",))
    assert (decision.node_actions, decision.charged) == ((), False)


@pytest.mark.parametrize("signal", [Signal.STRAGGLER, Signal.NODE_CORDONED])
@pytest.mark.parametrize(
    "limits",
    [
        {"attempts": 100},
        {"budget": RunBudget(gpu_hours=1.0), "gpu_hours": 2.0},
        {"highest_steps": (10, 10, 10, 10)},
        {"mode": Mode.ASK, "recovery": RecoveryProfile(ask_before=(Action.NEW_ATTEMPT,))},
    ],
)
def test_what_forbids_the_move_ends_no_training(signal: Signal, limits: dict[str, object]) -> None:
    diagnosis = diagnose(evidence(signal))
    assert policy_of(diagnosis.fault_class, diagnosis.rule).optional
    decision = decide(diagnosis, Situation(100.0, ended=False, spare_nodes=1, **limits))  # type: ignore[arg-type]
    assert decision.action is Action.NONE
    assert decision.approval is None
    assert decision.why.startswith("training continues, nothing is done: ")


def test_a_spent_budget_of_restarts_forbids_no_move() -> None:
    recovery = RecoveryProfile(restarts=Budget(tokens=1), free_classes=())
    decision = decide(diagnose(evidence()), Situation(100.0, ended=False, spare_nodes=1, recovery=recovery))
    assert (decision.action, decision.charged) == (Action.NEW_ATTEMPT, False)
