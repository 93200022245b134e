"""Findings about nodes in the ledger: written before anything is done, in one go, once, on both databases."""

from __future__ import annotations

import pytest

from flows.decisions.monitoring.node_decisions import NodePolicy, settle
from profiles.cluster import Brake
from profiles.errors import Fenced
from profiles.vocabulary import FaultClass, Mode, VerdictWord
from tasks.ledger.ledger import Ledger
from tests.support.builders.ledgers import Clock, a_person
from workflows.model.nodes import LedgerGround, NodeFinding, Settlement
from workflows.model.records import NodeRecord

pytest_plugins = ["tests.support.servers.ledger_fixtures"]

RUN = "monitor/local"


def fault(number: int, since: float = 10.0, pool: str = "gpu") -> NodeFinding:
    name = f"n{number}"
    return NodeFinding(
        name, pool, "KernelDeadlock", VerdictWord.FAIL, FaultClass.NODE_LOST, "hung", since, certain=True
    )


def policy(mode: Mode = Mode.ACT, evictions: int = 2) -> NodePolicy:
    return NodePolicy(mode, Brake(max_quarantined_share=1.0, max_evictions=evictions), {"gpu": 10, "cpu": 10}, 60.0)


def settled(ledger: Ledger, findings: list[NodeFinding], chosen: NodePolicy) -> Settlement:
    return ledger.settle("local", findings, 3600.0, lambda ground: settle(findings, ground, chosen), None)


def states(ledger: Ledger) -> dict[str, str]:
    return {item.target: item.state for item in ledger.actions(RUN)}


def test_what_is_to_be_done_is_written_with_its_reason(ledger: Ledger) -> None:
    made = settled(ledger, [fault(1)], policy())
    assert [item.finding.node for item in made.of("quarantine")] == ["n1"]
    [action] = ledger.planned_node_actions("local")
    assert (action.id, action.target, action.state) == (f"{RUN}/n1/KernelDeadlock/10-quarantine", "n1", "planned")
    node = ledger.node("local", "n1")
    assert node is not None
    assert (node.state, node.pool, node.incident) == ("quarantined", "gpu", f"{RUN}/n1/KernelDeadlock/10")
    [verdict] = ledger.verdicts("local", "n1")
    assert (verdict.verdict, verdict.depth, verdict.source) == (VerdictWord.FAIL, "condition", "KernelDeadlock")
    assert [line.kind for line in ledger.history(RUN)] == ["node", "action"]


def test_whoever_starts_over_writes_nothing_twice(ledger: Ledger) -> None:
    settled(ledger, [fault(1)], policy())
    again = settled(ledger, [fault(1)], policy())
    assert again.of("leave")
    assert len(list(ledger.history(RUN))) == 2
    ledger.finish_node_actions("local", [(fault(1).key, "done")], None)
    assert ledger.planned_node_actions("local") == []
    assert states(ledger) == {"n1": "done"}


def test_the_brake_counts_what_others_took_out(ledger: Ledger, clock: Clock) -> None:
    clock.now = 1000.0
    ledger.set_node(NodeRecord("local", "elsewhere", "quarantined", "a run's", 900.0, "i", "gpu"))
    made = settled(ledger, [fault(number) for number in range(3)], policy())
    assert [item.finding.node for item in made.of("quarantine")] == ["n0"]
    assert states(ledger) == {"n0": "planned", "n1": "waiting", "n2": "waiting"}
    [question] = ledger.approvals(RUN)
    assert "Take out n1 (KernelDeadlock), n2 (KernelDeadlock) of pool gpu?" in question.question
    assert ledger.brake_counts("local", "gpu", 0.0).evictions == 2, "the same counts as those of runs"


def test_a_second_question_waits_for_the_first_answer(ledger: Ledger) -> None:
    settled(ledger, [fault(1)], policy(Mode.ASK))
    assert settled(ledger, [fault(2)], policy(Mode.ASK)).of("leave")
    assert len(ledger.approvals(RUN)) == 1
    assert settled(ledger, [fault(3, pool="cpu")], policy(Mode.ASK)).of("ask"), "another pool"


@pytest.mark.parametrize(("approved", "state", "node"), [(True, "planned", "quarantined"), (False, "refused", "")])
def test_an_answer_counts_for_all_nodes_it_is_about(ledger: Ledger, approved: bool, state: str, node: str) -> None:
    settled(ledger, [fault(number) for number in range(4)], policy(evictions=1))
    [question] = ledger.approvals(RUN)
    assert ledger.answer_node_questions("local", 20.0, None) == [], "nobody has answered yet"
    ledger.answer(question.id, approved, a_person(), "because", 20.0)
    assert settled(ledger, [fault(9)], policy(Mode.ASK)).of("leave"), "the answer is carried over first"
    [answered] = ledger.answer_node_questions("local", 20.0, None)
    assert answered.id == question.id
    assert ledger.answer_node_questions("local", 20.0, None) == []
    assert states(ledger) == {"n0": "planned", "n1": state, "n2": state, "n3": state}
    found = ledger.node("local", "n2")
    assert (found.state if found else "") == node
    assert settled(ledger, [fault(2)], policy(evictions=100)).of("leave")
    assert len(ledger.approvals(RUN)) == 1


def test_no_answer_in_time_means_that_nothing_is_done(ledger: Ledger, clock: Clock) -> None:
    settled(ledger, [fault(1)], policy(Mode.ASK))
    asked = ledger.approvals(RUN)[0]
    [lapsed] = ledger.answer_node_questions("local", asked.expires_at, None)
    assert lapsed.id == asked.id
    assert [item.state for item in ledger.approvals(RUN)] == ["expired"]
    assert states(ledger) == {"n1": "refused"}
    assert settled(ledger, [fault(2)], policy(Mode.ASK)).of("ask"), "the next one may be asked about"


def test_what_was_written_down_in_mode_observe_is_done_later(ledger: Ledger) -> None:
    settled(ledger, [fault(1)], policy(Mode.OBSERVE))
    assert (states(ledger), ledger.node("local", "n1")) == ({"n1": "recorded"}, None)
    settled(ledger, [fault(1)], policy())
    assert states(ledger) == {"n1": "planned"}


def test_a_pause_is_read_where_it_is_written(ledger: Ledger) -> None:
    ledger.pause(None, "maintenance")
    grounds: list[LedgerGround] = []
    ledger.settle("local", [fault(1)], 60.0, lambda ground: grounds.append(ground) or Settlement(), None)
    assert grounds[0].paused == "maintenance"
    assert settled(ledger, [fault(1)], policy()).of("leave")


def test_a_monitor_that_was_taken_over_writes_nothing(ledger: Ledger) -> None:
    with pytest.raises(Fenced):
        ledger.settle("local", [fault(1)], 60.0, lambda ground: settle([fault(1)], ground, policy()), 7)
    assert (ledger.actions(RUN), ledger.node("local", "n1")) == ([], None)


def test_what_others_write_between_two_settlements_counts(ledger: Ledger, clock: Clock) -> None:
    """Each change by somebody else is seen: what is kept of the last settlement is thrown away then."""
    clock.now, chosen = 1000.0, policy(evictions=3)
    assert settled(ledger, [fault(1)], chosen).of("quarantine")
    other = Ledger(ledger.database.url.render_as_string(hide_password=False), clock)
    other.set_node(NodeRecord("local", "elsewhere", "quarantined", "a run's", 1001.0, "i", "gpu"))
    assert settled(ledger, [fault(2)], chosen).of("quarantine"), "the third"
    assert settled(ledger, [fault(3)], chosen).of("ask"), "a fourth is too much"
    assert settled(ledger, [fault(2, since=20.0)], chosen).of("leave")[0].why == "we hold it out of service"
    other.set_node(NodeRecord("local", "n2", "schedulable", "repaired", 1002.0))
    clock.now = 1000.0 + 3601.0
    assert settled(ledger, [fault(2, since=20.0)], chosen).of("quarantine"), "released, and the window has moved on"
    other.close()


def test_another_cluster_is_counted_by_itself(ledger: Ledger) -> None:
    chosen = policy(evictions=1)
    assert settled(ledger, [fault(1)], chosen).of("quarantine")
    elsewhere = ledger.settle("far", [fault(1)], 3600.0, lambda ground: settle([fault(1)], ground, chosen), None)
    assert elsewhere.of("quarantine")
    assert settled(ledger, [fault(2)], chosen).of("ask")


def test_a_settlement_that_fails_is_not_counted(ledger: Ledger) -> None:
    chosen = policy(evictions=1)
    settled(ledger, [fault(9)], policy(Mode.OBSERVE))

    def dies(_ground: LedgerGround) -> Settlement:
        raise Fenced("taken over")

    with pytest.raises(Fenced):
        ledger.settle("local", [fault(1)], 3600.0, dies, None)
    assert settled(ledger, [fault(1)], chosen).of("quarantine")
