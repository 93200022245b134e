"""What a node's conditions say against it: a fault, perhaps one, or nothing. Three-valued, and pure.

A fault is a condition of the table whose bad status is fresh and has stood its time. Whatever is silent, stale, absent
or too young is unknown, and nothing is ever done about an unknown one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flows.decisions.node_faults import STALE_SECONDS, FaultRule, FaultRules, only_programs_xids
from profiles.vocabulary import FaultClass, VerdictWord
from workflows import labels
from workflows.node_sight import ConditionSeen, NodeFinding, NodeSeen

YOUNG_SECONDS = 600.0
"""A node that joined a shorter time ago may still be starting its network, its drivers, its plug-ins."""
OURS = (labels.QUARANTINE_TAINT, labels.HOLD_TAINT)
NOTHING: Mapping[str, float] = {}


def held(node: NodeSeen) -> str:
    """Who keeps the node out of service already; "": nobody, and only then anything is done about it."""
    if node.leaving:
        return "it is being deleted"
    ours = next((taint.key for taint in node.taints if taint.key in OURS), "")
    if ours:
        return f"it carries our taint {ours}"
    return "somebody cordoned it" if node.cordoned else ""


def find(node: NodeSeen, rules: FaultRules, now: float, turned: Mapping[str, float] = NOTHING) -> NodeFinding | None:
    """The worst that the node's conditions say against it; None where they say nothing.

    Args:
        node: as it was seen last.
        rules: which conditions mean what.
        now: Unix seconds.
        turned: condition type -> when we ourselves saw it change; the node's clock may be wrong.
    """
    found = [_judge(node, item, rule, now, turned) for item, rule in _told(node, rules)]
    if all(item.type != "Ready" for item in node.conditions):
        found.append(_unknown(node, "Ready", FaultClass.NODE_LOST, "it says nothing about being ready"))
    return worst(found)


def worst(found: Iterable[NodeFinding]) -> NodeFinding | None:
    """Faults before suppositions, certain ones first, then the older; ties by name. None where there is none."""
    return min(found, key=_order, default=None)


def _order(item: NodeFinding) -> tuple[bool, bool, float, str]:
    return item.verdict is not VerdictWord.FAIL, not item.certain, item.since or 0.0, item.condition


def _told(node: NodeSeen, rules: FaultRules) -> list[tuple[ConditionSeen, FaultRule]]:
    """Conditions that the table knows and that are not as they should be."""
    known = ((item, rules.of(item.type)) for item in node.conditions)
    good = {"True": "False", "False": "True"}
    return [(item, rule) for item, rule in known if rule is not None and item.status != good[rule.status]]


def _judge(
    node: NodeSeen, item: ConditionSeen, rule: FaultRule, now: float, turned: Mapping[str, float]
) -> NodeFinding:
    said = f"{item.type} is {item.status}" + (f" ({item.reason})" if item.reason else "")
    if item.status != rule.status:
        return _unknown(node, item.type, rule.fault_class, said, item.since)
    if doubt := _doubt(node, item, rule, now):
        return _unknown(node, item.type, rule.fault_class, f"{said}: {doubt}", item.since)
    begun = max((at for at in (item.since, turned.get(item.type)) if at is not None), default=None)
    if rule.stands_seconds and begun is None:
        return _unknown(node, item.type, rule.fault_class, f"{said}: it does not say since when")
    due_at = (begun or 0.0) + rule.stands_seconds
    if rule.stands_seconds and now < due_at:
        return _unknown(
            node,
            item.type,
            rule.fault_class,
            f"{said}: for {max(0.0, now - (begun or 0.0)):.0f} s; it counts after {rule.stands_seconds:g} s",
            item.since,
            due_at,
        )
    why = f"{said}: {item.message}" if item.message else said
    return NodeFinding(
        node.name, node.pool, item.type, VerdictWord.FAIL, rule.fault_class, why, item.since, not rule.stands_seconds
    )


def _doubt(node: NodeSeen, item: ConditionSeen, rule: FaultRule, now: float) -> str:
    """Why a bad status says nothing now; "" where it does."""
    if rule.coming_up and node.created_at is not None and now - node.created_at < YOUNG_SECONDS:
        return "the node has just joined"
    heard_at = item.heard_at if item.heard_at is not None else item.since
    if rule.beats and heard_at is None:
        return "it does not say when that was"
    if rule.beats and heard_at is not None and now - heard_at > STALE_SECONDS:
        return f"nobody has said so for {now - heard_at:.0f} s"
    if rule.names_xids and only_programs_xids(f"{item.reason} {item.message}"):
        return "it names only Xids that programs cause"
    return ""


def _unknown(
    node: NodeSeen,
    condition: str,
    fault_class: FaultClass,
    why: str,
    since: float | None = None,
    due_at: float | None = None,
) -> NodeFinding:
    return NodeFinding(
        node.name, node.pool, condition, VerdictWord.UNKNOWN, fault_class, why, since, certain=False, due_at=due_at
    )
