"""What a failed test of a node leads to: out of service, drained, repaired by its owner, or tested again. Pure.

The worst failed fatal check decides; its class decides what is done. A warning leads to nothing, and what is unknown is
no fault: it is tested again. A pass leads to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from flows.decisions.node_tests.grading.model import NodeGrade
from flows.decisions.node_tests.judge import STEADY_UNITS
from flows.decisions.policy import POLICY, FailedCheck
from profiles.checks.check import Check
from profiles.vocabulary import FaultClass, NodeAction, VerdictWord
from workflows.model.records import Json

F = FaultClass

EVIDENCE_CHARACTERS = 200
"""Of the evidence, as it stands in `NodeFault.why`."""
NAMED = 3
"""Checks that could not be answered, as they are named; the ledger holds all."""
TEST_AGAIN = "test again; look at the reason of each check that could not be answered"

TABLE: Mapping[FaultClass, FailedCheck] = {
    kind: found for found, kind in sorted((p.failed_check, kind) for kind, p in POLICY.items() if p.failed_check)
}
"""By class, the worst first. Classes that no check of a node has (`user_code`, …) are not here: `OTHERWISE`."""
OTHERWISE = FailedCheck(
    1 + len(TABLE), NodeAction.VALIDATE, False, "a class that says nothing about nodes: a person looks"
)


@dataclass(frozen=True)
class NodeFault:
    """What is wrong with a node, and what is to be done."""

    node: str
    fault_class: FaultClass
    """`unknown` where nothing is known to be wrong."""
    check: str
    """The check that decides."""
    why: str
    """What it saw, in one line."""
    action: NodeAction | None
    """None: nothing is done to the node; it is tested again."""
    certain: bool
    """It was counted or is a state, and does not come and go: the brake takes the certain ones out first."""
    what_to_do: str
    """One sentence for the person who mends the node."""


def consequence_of(fault_class: FaultClass) -> FailedCheck:
    """What the class leads to."""
    return TABLE.get(fault_class, OTHERWISE)


def actions_of(grade: NodeGrade, checks: Sequence[Check]) -> NodeFault | None:
    """What is to be done about a node; None where it passed, or where only warnings spoke against it."""
    by_name = {check.name: check for check in checks}
    fatal = [one for one in grade.reasons if one.get("severity") != "warning"]
    failed = [one for one in fatal if one.get("verdict") == VerdictWord.FAIL]
    if failed:
        return _fault(grade.node, min(failed, key=lambda one: _rank(by_name.get(str(one["check"])))), by_name)
    unknown = [one for one in fatal if one.get("verdict") == VerdictWord.UNKNOWN]
    if not unknown and grade.verdict is VerdictWord.PASS:
        return None
    named = [f"{one['check']}: {_evidence(one)}" for one in unknown[:NAMED]]
    more = f" (and {len(unknown) - NAMED} more)" if len(unknown) > NAMED else ""
    why = "; ".join(named) + more if named else "no fatal check was made"
    first = str(unknown[0]["check"]) if unknown else ""
    return NodeFault(grade.node, F.UNKNOWN, first, why, None, False, TEST_AGAIN)


def with_action(grade: NodeGrade, checks: Sequence[Check]) -> NodeGrade:
    """The grade, with the reason that decides marked as such: `"decides"`, `"action"` and `"certain"` beside the rest.

    Verdicts are acted upon by whoever reads them in the ledger, who has no suite at hand.
    """
    fault = actions_of(grade, checks)
    if fault is None or fault.action is None:
        return grade
    mark = {"decides": True, "action": str(fault.action), "certain": fault.certain}
    reasons = tuple({**one, **mark} if one["check"] == fault.check else one for one in grade.reasons)
    return replace(grade, reasons=reasons)


def _class_of(check: Check | None) -> FaultClass:
    return F.UNKNOWN if check is None else check.fault_class


def _is_certain(check: Check | None) -> bool:
    """A figure that varies was measured twice, and still may come and go; a counter or a state does not."""
    steady = check is not None and check.unit in STEADY_UNITS
    return steady and consequence_of(_class_of(check)).certain


def _rank(check: Check | None) -> tuple[int, bool]:
    """Smaller is worse; the suite's order decides between equals."""
    return (consequence_of(_class_of(check)).rank, not _is_certain(check))


def _fault(node: str, reason: Json, checks: Mapping[str, Check]) -> NodeFault:
    name = str(reason["check"])
    check = checks.get(name)
    found = _class_of(check)
    wanted = check.what_to_do if check is not None else str(reason.get("what_to_do", "")) or "look at the evidence"
    why = f"{name}: {_evidence(reason)}".rstrip(": ")
    return NodeFault(node, found, name, why, consequence_of(found).action, _is_certain(check), wanted)


def _evidence(reason: Json) -> str:
    return str(reason.get("evidence", ""))[:EVIDENCE_CHARACTERS]
