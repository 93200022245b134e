"""Whether what was decided about nodes may be carried out now: the fleet-wide brake, and what a person answered.

A decision was made on what the brake said then. Other runs decide at the same time, and a pause or a mode may hold a
decision for hours: so the brake is asked again in the very transaction that writes the nodes as taken out.
"""

from __future__ import annotations

from flows.decisions.decision import STARTS
from flows.decisions.limits import braked
from profiles.resolve import Resolved
from profiles.vocabulary import Action, NodeAction
from tasks.actions import ask_instead, finish_action
from tasks.nodes import Leaving, take_out
from tasks.runs import read_story
from workflows.records import ActionRecord, ApprovalRecord, IncidentRecord

SAID_NO = ("denied", "expired")


def permitted(
    resolved: Resolved, incident: IncidentRecord, actions: tuple[ActionRecord, ...]
) -> tuple[ActionRecord, ...]:
    """What may be carried out now, of actions that are not done yet; nodes to be quarantined are written as taken out.

    Nodes that a person spared, or the brake where the run ends anyway, are refused for good. Where the brake trips and
    the run is to train again a person is asked first: then nothing is carried out now.
    """
    nodes = tuple((item.target, item.why) for item in actions if item.kind == NodeAction.QUARANTINE)
    answer = answer_to(incident)
    if answer is not None and answer.state in SAID_NO:
        return _without_nodes(actions, f"{answer.state}: {answer.why}")
    allowed = answer is not None and answer.state == "approved"
    reason = take_out(resolved, Leaving(nodes, incident.id), allowed=allowed) if nodes else ""
    if not reason:
        return actions
    decided = next((Action(item.kind) for item in actions if not item.target), None)
    if decided is None or decided not in STARTS:
        return _without_nodes(actions, f"the brake: {reason}")
    asked = braked(reason, [node for node, _ in nodes], decided, incident.why)
    seconds = resolved.run.recovery.approval_timeout_seconds
    ask_instead(incident, asked.question, asked.why, asked.would_change, seconds)
    return ()


def answer_to(incident: IncidentRecord) -> ApprovalRecord | None:
    """What was asked of a person about the incident, with the answer; None where nobody was asked."""
    return next((item for item in read_story(incident.run).approvals if item.incident == incident.id), None)


def _without_nodes(actions: tuple[ActionRecord, ...], why: str) -> tuple[ActionRecord, ...]:
    for action in actions:
        if action.target:
            finish_action(action, "refused", why)
    return tuple(action for action in actions if not action.target)
