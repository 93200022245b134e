"""What is done about bad nodes: never more than the brake allows, never twice, never where it must not be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.monitoring.node_decisions import NodePolicy, settle
from profiles.cluster import Brake
from profiles.vocabulary import FaultClass, Mode, VerdictWord
from workflows.model.nodes import LedgerGround, NodeFinding, Settlement

ACT = NodePolicy(Mode.ACT, Brake(max_quarantined_share=0.5, max_evictions=3), {"gpu": 10, "cpu": 10})
GROUND = LedgerGround(now=100.0)


def fault(number: int, pool: str = "gpu", **facts: object) -> NodeFinding:
    one = NodeFinding(
        f"n{number}", pool, "KernelDeadlock", VerdictWord.FAIL, FaultClass.NODE_LOST, "why", 10.0 + number
    )
    return replace(one, **facts)  # type: ignore[arg-type]


def taken(settlement: Settlement) -> list[str]:
    return [item.finding.node for item in settlement.of("quarantine")]


def test_as_many_as_the_brake_allows_and_one_question_for_the_rest() -> None:
    made = settle([fault(number) for number in range(5)], GROUND, ACT)
    assert taken(made) == ["n0", "n1", "n2"], "the oldest first"
    assert [item.finding.node for item in made.of("ask")] == ["n3", "n4"]
    [question] = made.questions
    assert (question.pool, question.nodes) == ("gpu", ("n3", "n4"))
    assert question.text.startswith("The brake tripped: 3 + 1 nodes taken out")


def test_each_pool_has_a_brake_of_its_own() -> None:
    many = [fault(number, pool) for pool in ("gpu", "cpu") for number in range(5)]
    assert len(taken(settle([replace(one, node=f"{one.pool}-{one.node}") for one in many], GROUND, ACT))) == 6


def test_certain_faults_go_before_older_ones() -> None:
    policy = replace(ACT, brake=Brake(max_evictions=1))
    assert taken(settle([fault(1), fault(2, certain=True)], GROUND, policy)) == ["n2"]


@pytest.mark.parametrize(
    ("ground", "policy", "step"),
    [
        (replace(GROUND, paused="maintenance"), ACT, "leave"),
        (replace(GROUND, out=frozenset({"n1"})), ACT, "leave"),
        (GROUND, replace(ACT, mode=Mode.OBSERVE), "record"),
        (GROUND, replace(ACT, mode=Mode.ASK), "ask"),
        (replace(GROUND, asked=frozenset({"gpu"})), replace(ACT, mode=Mode.ASK), "leave"),
        (replace(GROUND, asked=frozenset({"gpu"})), ACT, "quarantine"),
        (replace(GROUND, evictions={"gpu": 3}), ACT, "ask"),
        (replace(GROUND, quarantined={"gpu": 5}), ACT, "ask"),
        (replace(GROUND, quarantined={"cpu": 5}), ACT, "quarantine"),
    ],
)
def test_what_is_done(ground: LedgerGround, policy: NodePolicy, step: str) -> None:
    [one] = settle([fault(1)], ground, policy).settled
    assert one.step == step
    assert one.why


@pytest.mark.parametrize("state", ["planned", "waiting", "done", "refused"])
def test_a_finding_is_settled_once(state: str) -> None:
    ground = replace(GROUND, states={fault(1).key: state})
    assert settle([fault(1)], ground, ACT).of("leave")
    assert taken(settle([fault(1, since=99.0)], ground, ACT)) == ["n1"], "it happened again"


def test_what_was_only_written_down_is_done_once_it_may_be() -> None:
    ground = replace(GROUND, states={fault(1).key: "recorded"})
    assert settle([fault(1)], ground, replace(ACT, mode=Mode.OBSERVE)).of("leave")
    assert taken(settle([fault(1)], ground, ACT)) == ["n1"]


def test_what_is_not_known_leads_to_nothing() -> None:
    doubtful = fault(1, verdict=VerdictWord.UNKNOWN)
    for mode in Mode:
        assert settle([doubtful], GROUND, replace(ACT, mode=mode)).of("leave")


FINDINGS = st.lists(
    st.builds(
        fault,
        st.integers(0, 30),
        st.sampled_from(["gpu", "cpu"]),
        verdict=st.sampled_from([VerdictWord.FAIL, VerdictWord.UNKNOWN]),
        certain=st.booleans(),
    ),
    max_size=40,
    unique_by=lambda item: item.node,
)
GROUNDS = st.builds(
    LedgerGround,
    st.just(100.0),
    paused=st.sampled_from([None, "x"]),
    out=st.frozensets(st.sampled_from([f"n{number}" for number in range(30)])),
    quarantined=st.fixed_dictionaries({"gpu": st.integers(0, 12), "cpu": st.integers(0, 12)}),
    evictions=st.fixed_dictionaries({"gpu": st.integers(0, 12), "cpu": st.integers(0, 12)}),
    asked=st.frozensets(st.sampled_from(["gpu", "cpu"])),
)
POLICIES = st.builds(
    NodePolicy,
    st.sampled_from(list(Mode)),
    st.builds(Brake, max_quarantined_share=st.floats(0, 1), max_evictions=st.integers(1, 12)),
    st.just({"gpu": 10, "cpu": 10}),
)


@given(FINDINGS, GROUNDS, POLICIES)
def test_the_brake_holds_whatever_comes(findings: list[NodeFinding], ground: LedgerGround, policy: NodePolicy) -> None:
    made = settle(findings, ground, policy)
    assert sorted(item.finding.key for item in made.settled) == sorted(item.key for item in findings)
    for pool in ("gpu", "cpu"):
        new = sum(item.finding.pool == pool for item in made.of("quarantine"))
        if not new:
            continue
        assert (policy.mode, ground.paused) == (Mode.ACT, None)
        assert ground.quarantined[pool] + new <= max(1, int(policy.brake.max_quarantined_share * 10))
        assert ground.evictions[pool] + new <= policy.brake.max_evictions
    assert all(item.finding.verdict is VerdictWord.FAIL for item in made.settled if item.step != "leave")
    assert not {item.finding.node for item in made.of("quarantine")} & ground.out
    assert {question.pool for question in made.questions} == {item.finding.pool for item in made.of("ask")}


@given(FINDINGS, GROUNDS, POLICIES, st.randoms())
def test_the_order_of_findings_does_not_matter(
    findings: list[NodeFinding], ground: LedgerGround, policy: NodePolicy, random: object
) -> None:
    shuffled = list(findings)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert settle(findings, ground, policy) == settle(shuffled, ground, policy)
