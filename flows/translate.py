"""From the decisions' values to the ledger's records, so that neither knows the other."""

from __future__ import annotations

from flows.decisions.decide import Decision
from flows.decisions.diagnose import Diagnosis
from flows.decisions.lost import lost_nodes
from flows.decisions.suspects import told
from profiles.resolve import Resolved
from profiles.vocabulary import Action
from tasks.actions import Finding, Resolution
from workflows.evidence import Evidence


def finding_of(diagnosis: Diagnosis, evidence: Evidence) -> Finding:
    """The diagnosis as it is written down; what was seen first stays the first line of the evidence.

    What an examination found stands behind it, also where it found nothing.
    """
    seen = tuple(item for item in (evidence.detail, *map(told, evidence.examined)) if item)
    return Finding(
        fault_class=diagnosis.fault_class,
        confidence=diagnosis.confidence,
        culprits=diagnosis.culprits,
        fingerprint=diagnosis.fingerprint,
        evidence=(*seen, *(f"{clue.text} [{clue.rule}]" for clue in diagnosis.evidence)),
        alternatives=diagnosis.alternatives,
        step=diagnosis.step,
        why=diagnosis.why,
        lost_nodes=tuple(sorted(lost_nodes(evidence))),
    )


def resolution_of(decision: Decision, resolved: Resolved) -> Resolution:
    """The decision as it is written down and carried out."""
    asked = decision.if_approved if decision.action is Action.ASK else None
    return Resolution(
        action=decision.action,
        carried_out=asked or decision.action,
        node_actions=tuple((step.action, step.node, step.why) for step in decision.node_actions),
        charged=decision.charged,
        why=decision.why,
        would_change=decision.would_change,
        question=decision.approval or "",
        approval_seconds=resolved.run.recovery.approval_timeout_seconds,
        act=decision.act,
        constraints={
            "max_resume_step": decision.max_resume_step,
            "excluded_checkpoints": list(decision.exclude_checkpoints),
            "avoid_nodes": list(decision.avoid_nodes),
        },
        wait_seconds=decision.wait_seconds,
    )
