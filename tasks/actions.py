"""Writing down what was diagnosed and decided, before anything is done about it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from profiles.vocabulary import Action, FaultClass, NodeAction
from tasks.world import patient, touch, world
from workflows.records import ActionRecord, ApprovalRecord, IncidentRecord, Json, MarkRecord


@dataclass(frozen=True)
class Finding:
    """What an incident is; the flow's diagnosis in the ledger's terms."""

    fault_class: FaultClass
    confidence: float
    culprits: tuple[tuple[str, int | None], ...]
    fingerprint: str
    evidence: tuple[str, ...]
    alternatives: tuple[tuple[FaultClass, float], ...]
    step: int | None
    why: str
    lost_nodes: tuple[str, ...]


@dataclass(frozen=True)
class Resolution:
    """What is to be done; the flow's decision in the ledger's terms."""

    action: Action
    """What was decided; `ask`: a person decides."""
    carried_out: Action
    """What is done about the run (with `ask`: when the person says yes)."""
    node_actions: tuple[tuple[NodeAction, str, str], ...]
    charged: bool
    why: str
    would_change: str
    question: str = ""
    """Asked of a person before anything is done; "" when nobody is asked."""
    approval_seconds: float = 0.0
    wait_seconds: float = 0.0
    act: bool = True
    """False in mode observe: everything is recorded and nothing is done."""
    constraints: Json | None = None
    """What the next attempt must heed: `max_resume_step`, `excluded_checkpoints`, `avoid_nodes`, `wait_until`."""


@touch("diagnoses {finding.fault_class} ({finding.confidence:.2f})")
def write_diagnosis(incident: IncidentRecord, finding: Finding) -> IncidentRecord:
    """The incident with its diagnosis."""
    here = world()
    here.ledger.add_marks(here.fencing, [MarkRecord(incident.run, incident.attempt, "diagnosed", here.now())])
    return here.ledger.update_incident(
        here.fencing,
        incident.run,
        incident.id,
        fault_class=finding.fault_class,
        confidence=finding.confidence,
        culprits=finding.culprits,
        fingerprint=finding.fingerprint,
        evidence=finding.evidence,
        alternatives=finding.alternatives,
        step=finding.step,
        lost_nodes=finding.lost_nodes,
    )


@touch("decides {resolution.action}, because {resolution.why}")
def write_decision(incident: IncidentRecord, resolution: Resolution) -> IncidentRecord:
    """The incident with its decision, and every action of it, planned. Written in one go before anything is done."""
    here = world()
    now = here.now()
    state = "planned" if resolution.act else "recorded"
    actions = [
        ActionRecord(f"{incident.id}-{kind}-{node}", incident.run, incident.id, kind, node, state, why, now)
        for kind, node, why in resolution.node_actions
    ]
    constraints = {**(resolution.constraints or {}), "wait_until": now + resolution.wait_seconds}
    actions.append(
        ActionRecord(
            id=f"{incident.id}-{resolution.carried_out}",
            run=incident.run,
            incident=incident.id,
            kind=resolution.carried_out,
            target="",
            state=state,
            why=resolution.why,
            planned_at=now,
            detail=json.dumps(constraints),
        )
    )
    decided = replace(
        incident,
        action=resolution.action,
        why=resolution.why,
        would_change=resolution.would_change,
        charged=resolution.charged,
    )
    here.ledger.add_marks(here.fencing, [MarkRecord(incident.run, incident.attempt, "decided", now)])
    return here.ledger.decide(here.fencing, decided, tuple(actions), _question(incident, resolution, now))


def _question(incident: IncidentRecord, resolution: Resolution, now: float) -> ApprovalRecord | None:
    if not (resolution.question and resolution.act):
        return None
    return _approval(incident, resolution.question, now, resolution.approval_seconds)


def _approval(incident: IncidentRecord, question: str, now: float, seconds: float) -> ApprovalRecord:
    return ApprovalRecord(
        id=f"{incident.id}-approval",
        run=incident.run,
        incident=incident.id,
        question=question,
        state="waiting",
        asked_at=now,
        expires_at=now + seconds,
    )


@touch("asks instead: {question}")
def ask_instead(
    incident: IncidentRecord, question: str, why: str, would_change: str, approval_seconds: float
) -> IncidentRecord:
    """Put a decided incident to a person, in one go: what was planned stays planned until there is an answer."""
    here = world()
    now = here.now()
    asked = replace(incident, action=Action.ASK, why=why, would_change=would_change)
    return here.ledger.decide(here.fencing, asked, (), _approval(incident, question, now, approval_seconds))


def constraints_of(action: ActionRecord) -> Json:
    """What the next attempt must heed."""
    return json.loads(action.detail) if action.detail else {}


@patient
def finish_action(action: ActionRecord, state: str, said: str) -> None:
    """Write down that the action was carried out (or refused)."""
    here = world()
    here.ledger.update_action(
        here.fencing, action.run, action.id, state=state, done_at=here.now(), why=f"{action.why} [{said}]"
    )
