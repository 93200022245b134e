"""Diagnoses and decisions, written down before anything is done about them.

For decisions about nodes it also reads the pool's nodes, and where the brake stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from profiles.errors import PrimusError
from profiles.resolve import Resolved
from profiles.vocabulary import Action, FaultClass, NodeAction
from tasks.cluster import current, each
from tasks.context import patient, touch, world
from tasks.nodes.by_hand import busy_nodes
from tasks.observe.objects import node_candidate, pool_selector
from workflows.model.attempt import AttemptView
from workflows.model.fleet import BrakeState, NodeCandidate
from workflows.model.records import ActionRecord, ApprovalRecord, AttemptRecord, Constraints, IncidentRecord, MarkRecord

ROOM_SECONDS = 2.0
"""Between two looks at the pool for a gang that is to move: each lists the namespace's pods."""
SLOW_ROOM_SECONDS = 15.0
"""The same for a gang with a slow rank, which is in no hurry."""


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
    constraints: Constraints = field(default_factory=Constraints)
    """What the next attempt must heed, but for the wait."""


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
            detail=replace(resolution.constraints, wait_until=now + resolution.wait_seconds),
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


@patient
def finish_action(action: ActionRecord, state: str, said: str) -> None:
    """Write down that the action was carried out (or refused)."""
    here = world()
    here.ledger.update_action(
        here.fencing, action.run, action.id, state=state, done_at=here.now(), why=f"{action.why} [{said}]"
    )


@patient
def node_candidates(resolved: Resolved, run: str, attempt: int) -> list[NodeCandidate]:
    """Every node of the run's pool with what the cluster and the ledger know of it."""
    return _now(resolved, run, attempt)


class PoolRoom:
    """What the pool has for an attempt with a cordoned or slow node."""

    def __init__(self, resolved: Resolved, attempt: AttemptRecord) -> None:
        self._resolved, self._attempt = resolved, attempt
        self._asked_at = -ROOM_SECONDS
        self._pool: tuple[NodeCandidate, ...] | None = None

    def look(self, view: AttemptView) -> AttemptView:
        """The view with the pool, where a node of the gang is cordoned or slow; without an answer it asks later."""
        cordoned = any(node.cordoned for node in view.nodes)
        slow = view.coordinator is not None and bool(view.coordinator.news.stragglers)
        if view.away or not (cordoned or slow):
            return view
        now = world().now()
        if now - self._asked_at >= (ROOM_SECONDS if cordoned else SLOW_ROOM_SECONDS):
            self._asked_at = now
            try:
                self._pool = tuple(_now(self._resolved, self._attempt.run, self._attempt.number))
            except PrimusError:
                self._pool = None
        return replace(view, pool=self._pool)


def _now(resolved: Resolved, run: str, attempt: int) -> list[NodeCandidate]:
    here = world()
    # What is left of the run's own earlier attempts is gone before ranks of the next one start.
    busy = {node: owner for node, owner in busy_nodes(run, attempt).items() if owner != run}
    ours = {item.node: item for item in here.ledger.nodes(resolved.cluster.name)}
    out = {name: item.why for name, item in ours.items() if item.state == "quarantined"}
    nodes = each(current(), "Node", pool_selector(resolved))
    found = {item.name: item for item in (node_candidate(node, resolved, busy, out, run) for node in nodes)}
    return [found[name] for name in sorted(found)]


@patient
def brake_state(resolved: Resolved) -> BrakeState:
    """Where the fleet-wide brake stands for the run's pool, over all runs of this ledger."""
    here = world()
    limits, name = resolved.cluster.brake, resolved.cluster.name
    counts = here.ledger.brake_counts(name, resolved.pool.name, here.now() - limits.window_seconds)
    return BrakeState(resolved.pool.nodes, counts.out, counts.evictions, limits)
