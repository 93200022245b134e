"""The failover flow: gather evidence, diagnose, examine suspects where that decides something, decide, act.

`train` calls the same functions inside its own flow run; the flow at the end of this file is a thin shell for people
and deployments. The brake on taking nodes out is checked twice: other runs decide at the same time, and a pause or a
mode may hold a decision for hours, so it is checked again in the very transaction that marks the nodes as taken out.
"""

from __future__ import annotations

from typing import assert_never

from prefect import flow

from flows.decisions.accounting.report import spent_gpu_seconds
from flows.decisions.diagnosis.diagnose import Diagnosis, diagnose
from flows.decisions.diagnosis.losses import lost_nodes
from flows.decisions.policy import POLICY
from flows.decisions.recovery.decide import decide
from flows.decisions.recovery.decision import STARTS, Decision
from flows.decisions.recovery.limits import brake_question
from flows.decisions.recovery.nodes import refusal
from flows.decisions.recovery.resume_rule import resume_proof
from flows.decisions.recovery.situation import (
    examination_text,
    ordinal,
    overlaps,
    pause_reason,
    situation,
    suspects,
    with_examination,
    with_experience,
)
from profiles.resolve import Resolved
from profiles.vocabulary import Action, NodeAction, RunState
from tasks.context import on_cluster, session, world
from tasks.lease import driving
from tasks.nodes.by_hand import Leaving, drain, quarantine, release, take_out
from tasks.prefect.automations import asked_by
from tasks.runs.actions import (
    Finding,
    Resolution,
    ask_instead,
    brake_state,
    finish_action,
    node_candidates,
    write_decision,
    write_diagnosis,
)
from tasks.runs.clear import begin_to_clear, clear_attempt
from tasks.runs.evidence import gather
from tasks.runs.examine import Look, examine, unexamined
from tasks.runs.open import resolved_of
from tasks.runs.state import read_story, recent_incidents, set_state, wait_until
from tasks.runs.submit import end_attempt
from workflows.model.attempt import Evidence
from workflows.model.records import ActionRecord, ApprovalRecord, AttemptRecord, Constraints, IncidentRecord
from workflows.wire import GateReport

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
    question = brake_question(reason, [node for node, _ in nodes], decided, incident.why)
    seconds = resolved.run.recovery.approval_timeout_seconds
    ask_instead(incident, question.question, question.why, question.would_change, seconds)
    return ()


def answer_to(incident: IncidentRecord) -> ApprovalRecord | None:
    """The question to a person about the incident, with the answer; None where none was asked."""
    return next((item for item in read_story(incident.run).approvals if item.incident == incident.id), None)


def _without_nodes(actions: tuple[ActionRecord, ...], why: str) -> tuple[ActionRecord, ...]:
    for action in actions:
        if action.target:
            finish_action(action, "refused", why)
    return tuple(action for action in actions if not action.target)


def finding_of(diagnosis: Diagnosis, evidence: Evidence) -> Finding:
    """The diagnosis as it is written down; what was seen first stays the first line of the evidence.

    What an examination found stands behind it, also where it found nothing.
    """
    seen = tuple(item for item in (evidence.detail, *map(examination_text, evidence.examined)) if item)
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
    approved_action = decision.if_approved if decision.action is Action.ASK else None
    return Resolution(
        action=decision.action,
        carried_out=approved_action or decision.action,
        node_actions=tuple((step.action, step.node, step.why) for step in decision.node_actions),
        charged=decision.charged,
        why=decision.why,
        would_change=decision.would_change,
        question=decision.approval or "",
        approval_seconds=resolved.run.recovery.approval_timeout_seconds,
        act=decision.act,
        constraints=Constraints(decision.max_resume_step, decision.exclude_checkpoints, decision.avoid_nodes),
        wait_seconds=decision.wait_seconds,
    )


async def recover(resolved: Resolved, incident: IncidentRecord) -> None:
    """Gather evidence, diagnose, examine suspects where that helps, and write down what is to be done."""
    story = read_story(incident.run)
    attempt = next(item for item in story.attempts if item.number == incident.attempt)
    set_state(incident.run, RunState.RECOVERING, f"{incident.signal}: {incident.seen}")
    evidence = gather(resolved, attempt, incident, story)
    diagnosis = diagnose(evidence)
    if nodes := suspects(diagnosis, evidence):
        reports = look_at(nodes, resolved, attempt, incident)
        evidence = with_examination(evidence, reports)
        diagnosis = diagnose(evidence)
    diagnosed = write_diagnosis(incident, finding_of(diagnosis, evidence))
    now = world().now()
    candidates = node_candidates(resolved, incident.run, incident.attempt)
    own = frozenset(attempt.nodes)
    spare = sum(not refusal(node, own) for node in candidates)
    spent = spent_gpu_seconds(story, resolved.gpus, now)
    facts = situation(resolved, story, evidence, now, brake_state(resolved), spent, spare)
    facts = with_experience(facts, recent_incidents(now))
    write_decision(diagnosed, resolution_of(decide(diagnosis, facts), resolved))


def look_at(
    nodes: tuple[str, ...], resolved: Resolved, attempt: AttemptRecord, incident: IncidentRecord
) -> tuple[GateReport, ...]:
    """Examine the suspects, unless nothing may be touched now (paused, or mode observe)."""
    story = read_story(incident.run)
    why_not = pause_reason(story)
    if why_not:
        return unexamined(nodes, why_not)
    return examine(resolved, attempt, Look(nodes, ordinal(incident, story), since=attempt.planned_at))


async def act(resolved: Resolved, incident: IncidentRecord, actions: tuple[ActionRecord, ...]) -> None:
    """Do what was decided and may be done now, one action after the other; each is safe to repeat."""
    for action in permitted(resolved, incident, actions):
        outcome = _on_node(resolved, action) if action.target else _on_run(resolved, incident, action)
        finish_action(action, "done", outcome)


def _on_node(resolved: Resolved, action: ActionRecord) -> str:
    kind = NodeAction(action.kind)
    match kind:
        case NodeAction.QUARANTINE:
            return quarantine(resolved, action.target, action.why, action.incident)
        case NodeAction.DRAIN:
            return drain(resolved, action.target, action.why)
        case NodeAction.RELEASE:
            return release(resolved, action.target, action.why)
        case NodeAction.REPAIR | NodeAction.VALIDATE:
            return f"{kind} is asked of the people who own {action.target}"
        case _:
            assert_never(kind)


def _on_run(resolved: Resolved, incident: IncidentRecord, action: ActionRecord) -> str:
    if Action(action.kind) is Action.NONE:
        return "nothing is touched"
    story = read_story(incident.run)
    attempt = next(item for item in story.attempts if item.number == incident.attempt)
    outcome = f"attempt {attempt.number} has ended"
    if attempt.ended_at is None:
        if _overlaps(resolved, incident, action):
            outcome = begin_to_clear(attempt, incident.lost_nodes)
        else:
            # Conditions may call a lost node ready for most of a minute. Where its loss is only supposed, or a log says
            # so however surely, they are waited for: old and new ranks must never run side by side.
            saves = incident.fault_class is not None and POLICY[incident.fault_class].saves_before_leaving
            grace = resolved.run.save_grace_seconds if saves else 0.0
            outcome = clear_attempt(resolved, attempt, grace, incident.lost_nodes)
        end_attempt(attempt, str(incident.fault_class), incident.detected_at, resume_proof(attempt, resolved.run))
    until = action.constraints.wait_until
    if until > world().now():
        wait_until(incident.run, until)
    return outcome


def see_out(resolved: Resolved, attempt: AttemptRecord) -> None:
    """Wait until no pod can train any more of the attempt whose failure asked for this one."""
    story = read_story(attempt.run)
    incident = next((item for item in story.incidents if item.id == attempt.incident), None)
    run_actions = [item for item in story.actions if item.incident == attempt.incident and not item.target]
    if incident is None or not any(_overlaps(resolved, incident, action) for action in run_actions):
        return  # it was waited for when it was cleared away
    before = next(item for item in story.attempts if item.number == incident.attempt)
    clear_attempt(resolved, before, 0.0, incident.lost_nodes)


def _overlaps(resolved: Resolved, incident: IncidentRecord, action: ActionRecord) -> bool:
    until = action.constraints.wait_until
    tests_first = bool(resolved.cluster.admission.depths.before_run)
    return ends_slowly(resolved) and overlaps(incident, action, until, tests_first=tests_first)


def ends_slowly(resolved: Resolved) -> bool:
    """Whether the end of a pod is worth overlapping with: kubelets take seconds, the embedded cluster milliseconds."""
    return resolved.cluster.engine == "kubernetes"


@flow(name="failover", flow_run_name="failover {run}")
async def failover(run: str) -> str:
    """Examine, diagnose and decide the newest open incident of a run, and act on it.

    Args:
        run: name of the run.

    Returns:
        What was decided, in words.
    """
    with session() as here:
        story = read_story(run)
        resolved = resolved_of(story.run)
        with driving(run), on_cluster(resolved, here):
            incident = story.open_incident
            if incident is None:
                return f"{run} has no open incident"
            if (by := asked_by()) is not None:
                here.ledger.act(run, "failover", f"asked to decide {incident.id}", by)
            await recover(resolved, incident)
            decided = next(item for item in read_story(run).incidents if item.id == incident.id)
            return f"{decided.action}: {decided.why}"
