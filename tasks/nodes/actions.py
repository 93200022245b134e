"""What the node watch writes and does: findings settled in the ledger, nodes marked, results written down.

Always in that order, so that the next process continues where a killed one stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from profiles.cluster import ClusterProfile
from profiles.vocabulary import VerdictWord
from tasks.context import world
from tasks.ledger.nodes import key_of
from tasks.nodes.marks import Marked, Order, mark_of
from workflows.model.nodes import LedgerGround, Node, NodeFinding, Settlement, watcher_of
from workflows.model.records import ActionRecord, ApprovalRecord

Decide = Callable[[LedgerGround], Settlement]


def settle_findings(profile: ClusterProfile, findings: Sequence[NodeFinding], decide: Decide) -> Settlement:
    """Settle findings and write down what is to be done, before it is done.

    Raises:
        Fenced: another monitor has taken over.
        Unavailable: the ledger is away; nothing was written and nothing may be done.
    """
    if not findings:
        return Settlement()
    here = world()
    return here.ledger.settle(profile.name, findings, profile.brake.window_seconds, decide, here.fencing)


def orders_of(settlement: Settlement, nodes: Callable[[str], Node | None]) -> list[Order]:
    """The marks that a settlement asks for.

    `nodes` gives a node as it was seen last, by its name.
    """
    now = world().now()
    return [
        Order(item.finding.key, item.finding.node, mark_of(item.finding, now), nodes(item.finding.node))
        for item in settlement.of("quarantine")
    ]


def is_paused(profile: ClusterProfile) -> bool:
    """Whether everything is paused."""
    return world().ledger.paused(watcher_of(profile.name))


def left_over_orders(profile: ClusterProfile) -> list[Order]:
    """Marks that were written down and not seen to their end: a process was killed, or the cluster refused.

    A node that was released meanwhile is left alone, and its action is refused.

    Raises:
        Fenced, Unavailable.
    """
    here = world()
    planned = here.ledger.planned_node_actions(profile.name)
    if not planned:
        return []
    out = {item.node for item in here.ledger.nodes(profile.name) if item.state == "quarantined"}
    released = [(key_of(profile.name, one), "it was released before") for one in planned if one.target not in out]
    here.ledger.finish_node_actions(profile.name, released, here.fencing)
    return [_order(profile.name, one, here.now()) for one in planned if one.target in out]


def _order(cluster: str, action: ActionRecord, now: float) -> Order:
    """The mark that an action asks for; the node is read anew."""
    found = action.node_fault
    finding = NodeFinding(
        node=action.target,
        pool=found.pool,
        condition=found.condition,
        verdict=VerdictWord.FAIL,
        fault_class=found.fault_class,
        why=action.why,
    )
    return Order(key_of(cluster, action), action.target, mark_of(finding, now))


def finish_orders(profile: ClusterProfile, marked: Sequence[Marked]) -> None:
    """Write down what was carried out; what failed stays planned and is tried again.

    Raises:
        Fenced, Unavailable.
    """
    here = world()
    ended = [
        (item.order.key, "done" if item.there else "the node no longer exists") for item in marked if item.error is None
    ]
    here.ledger.finish_node_actions(profile.name, ended, here.fencing)


def carry_answers_over(profile: ClusterProfile) -> list[ApprovalRecord]:
    """Apply people's answers: what was approved is planned, the rest is refused.

    Raises:
        Fenced, Unavailable.
    """
    here = world()
    return here.ledger.answer_node_questions(profile.name, here.now(), here.fencing)
