"""The failover flow: gather, diagnose, examine suspects where that decides something, decide, act. Every step says why.

`train` awaits the same sentences as tasks of its own flow run; the flow at the end is a thin shell over them for people
and deployments.
"""

from __future__ import annotations

from typing import assert_never

from prefect import flow

from flows.decisions.decide import decide
from flows.decisions.diagnose import diagnose
from flows.decisions.nodes import NodeNeed, refusal
from flows.decisions.overlap import overlaps
from flows.decisions.report import spent_gpu_seconds
from flows.decisions.situation import situation, with_experience
from flows.decisions.suspects import held, ordinal, suspects, with_examination
from flows.permission import permitted
from flows.translate import finding_of, resolution_of
from profiles.resolve import Resolved
from profiles.vocabulary import Action, FaultClass, NodeAction, RunState
from tasks.actions import constraints_of, finish_action, write_decision, write_diagnosis
from tasks.attempts import end_attempt
from tasks.candidates import brake_state, node_candidates
from tasks.clearing import begin_to_clear, clear_attempt
from tasks.evidence import gather
from tasks.examination import Look, examine, unexamined
from tasks.lease import driving
from tasks.nodes import drain, quarantine, release
from tasks.opening import resolved_of
from tasks.runs import read_story, recent_incidents, set_state
from tasks.session import on_cluster, session
from tasks.waiting import wait_until
from tasks.world import world
from workflows.records import ActionRecord, AttemptRecord, IncidentRecord
from workflows.reports import GateReport


async def recover(resolved: Resolved, incident: IncidentRecord) -> None:
    """Gather what is known, say what it is, after a look at suspects where that helps, and write down what is done."""
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
    spare = sum(not refusal(node, NodeNeed(1, avoid=attempt.nodes)) for node in candidates)
    spent = spent_gpu_seconds(story, resolved.gpus, now)
    facts = situation(resolved, story, evidence, now, brake_state(resolved), spent, spare)
    facts = with_experience(facts, recent_incidents(now))
    write_decision(diagnosed, resolution_of(decide(diagnosis, facts), resolved))


def look_at(
    nodes: tuple[str, ...], resolved: Resolved, attempt: AttemptRecord, incident: IncidentRecord
) -> tuple[GateReport, ...]:
    """Examine the suspects, unless nothing may be touched now."""
    story = read_story(incident.run)
    why_not = held(story)
    if why_not:
        return unexamined(nodes, why_not)
    return examine(resolved, attempt, Look(nodes, ordinal(incident, story), since=attempt.planned_at))


async def act(resolved: Resolved, incident: IncidentRecord, actions: tuple[ActionRecord, ...]) -> None:
    """Do what was decided and may be done now, one action after the other; each is safe to repeat."""
    for action in permitted(resolved, incident, actions):
        said = _on_node(resolved, action) if action.target else _on_run(resolved, incident, action)
        finish_action(action, "done", said)


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
    said = f"attempt {attempt.number} has ended"
    if attempt.ended_at is None:
        if _overlaps(resolved, incident, action):
            said = begin_to_clear(attempt, incident.lost_nodes)
        else:
            # Conditions may call a lost node ready for most of a minute. Where its loss is only supposed, or a log says
            # so however surely, they are waited for: old and new ranks must never run side by side.
            saves = incident.fault_class in (FaultClass.PREEMPTED, FaultClass.STRAGGLER)
            grace = resolved.run.save_grace_seconds if saves else 0.0
            said = clear_attempt(resolved, attempt, grace, incident.lost_nodes)
        end_attempt(attempt, str(incident.fault_class), incident.detected_at)
    until = float(constraints_of(action).get("wait_until", 0.0))
    if until > world().now():
        wait_until(incident.run, until)
    return said


def see_out(resolved: Resolved, attempt: AttemptRecord) -> None:
    """Wait until nothing can train any more of the attempt whose failure asked for this one."""
    story = read_story(attempt.run)
    incident = next((item for item in story.incidents if item.id == attempt.incident), None)
    asked = [item for item in story.actions if item.incident == attempt.incident and not item.target]
    if incident is None or not any(_overlaps(resolved, incident, action) for action in asked):
        return  # it was waited for when it was cleared away
    before = next(item for item in story.attempts if item.number == incident.attempt)
    clear_attempt(resolved, before, 0.0, incident.lost_nodes)


def _overlaps(resolved: Resolved, incident: IncidentRecord, action: ActionRecord) -> bool:
    until = float(constraints_of(action).get("wait_until", 0.0))
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
            await recover(resolved, incident)
            decided = next(item for item in read_story(run).incidents if item.id == incident.id)
            return f"{decided.action}: {decided.why}"
