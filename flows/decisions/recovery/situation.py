"""What a decision depends on beside the diagnosis, which nodes to examine, whether two attempts may overlap. Pure.

An examination costs seconds, so it is made only where it decides something: the class may be the hardware's fault, and
the evidence alone does not say surely whose. The next attempt may be prepared while pods of the last one still end,
because kubelets and the gate both take seconds: side by side they cost only the longer of the two. Ranks of two
attempts never run at once, since the token that the new ones need is handed out when the old ones are gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from flows.decisions.diagnosis.diagnose import Diagnosis
from flows.decisions.diagnosis.losses import lost_nodes
from flows.decisions.policy import policy_of
from flows.decisions.recovery.chance import Chance, Moved, Pace, held_node_days, pace_of
from flows.decisions.recovery.decision import Situation
from flows.decisions.recovery.odds import restart_seconds, tallies
from flows.decisions.recovery.resume_rule import CheckpointRule, lineage
from profiles.resolve import Resolved
from profiles.vocabulary import Action, FaultClass, Mode, VerdictWord
from workflows.model.attempt import LIVING, Evidence, LogLine, Signal
from workflows.model.checkpoints import seen, standing
from workflows.model.fleet import BrakeState
from workflows.model.records import ActionRecord, AttemptRecord, IncidentRecord, Story
from workflows.wire import GateReport, ResumeChoice

SURE = 0.9
"""From this confidence on, with somebody to blame, the evidence has decided already."""
MAX_SUSPECTS = 8
"""Nodes examined at most: more suspects are no suspects but a gang."""
KERNEL_CHECK = "kernel"
"""Name of the check that carries lines."""
EXAMINATION_CHARACTERS = 300

BROKEN = frozenset({Signal.NODE_NOT_READY, Signal.POD_FAILED, Signal.ATTEMPT_FAILED})
"""A gang that has lost a pod makes no further step, and so no checkpoint worth waiting for."""


def situation(
    resolved: Resolved,
    story: Story,
    evidence: Evidence,
    now: float,
    brake: BrakeState,
    spent_gpu_seconds: float,
    spare_nodes: int | None = None,
) -> Situation:
    """The situation of a run at the time `now` (Unix seconds), for the incident that `evidence` is of.

    `resolved` is the profile as it was when the run was submitted, `brake` the state of its pool's brake,
    `spent_gpu_seconds` counts all attempts; `spare_nodes`: usable nodes beside the gang's, None: not known.
    """
    looked_at = _looked_at(story, evidence)
    kept = lineage(story.attempts, looked_at)
    known = Situation(
        now=now,
        recovery=resolved.run.recovery,
        mode=story.run.mode,
        paused=story.paused,
        past=evidence.past,
        resumed_at=story.run.resumed_at,
        brake=brake,
        budget=resolved.run.budget,
        gpu_hours=spent_gpu_seconds / 3600.0,
        wall_seconds=now - story.run.created_at,
        choice=evidence.choice or _resumed(story, evidence.attempt),
        checkpoints=tuple(item for item in looked_at if _allowed(item, kept)),
        lineage=kept,
        roll_back_limits=_roll_back_limits(story),
        first_nan_step=evidence.first_nan_step,
        spare_nodes=spare_nodes,
        gpus=resolved.gpus,
        redo_seconds=_redo_seconds(story.attempts, looked_at),
        ended=evidence.signal not in LIVING,
    )
    return _with_attempts(known, story, evidence, resolved)


def _with_attempts(known: Situation, story: Story, evidence: Evidence, resolved: Resolved) -> Situation:
    """The situation with how far the attempts came since the run began, or a person resumed it, and what ended them."""
    begin = story.run.resumed_at
    counted = tuple(item for item in story.attempts if begin is None or item.planned_at >= begin)
    free = _free_ends(story)
    return replace(
        known,
        attempts=sum(item.number not in free for item in counted),
        highest_steps=_highest(counted, evidence),
        free_attempts=frozenset(place for place, item in enumerate(counted) if item.number in free),
        chance=_chance(counted, len(free), resolved, known.now),
        pace=_pace(story, counted, known.lineage, resolved, known.now),
    )


def _free_ends(story: Story) -> frozenset[int]:
    """Numbers of the attempts since the run began, or a person resumed it, that ended by nobody's fault."""
    begin = story.run.resumed_at
    return frozenset(
        item.attempt
        for item in story.troubles
        if not (item.went_on or item.charged or item.action is None) and (begin is None or item.detected_at >= begin)
    )


def _chance(attempts: tuple[AttemptRecord, ...], stops: int, resolved: Resolved, now: float) -> Chance:
    nodes, window = resolved.run.deciding_role.replicas, resolved.run.recovery.restarts.window_seconds
    return Chance(
        nodes,
        stops,
        held_node_days(attempts, nodes, 0.0, now),
        held_node_days(attempts, nodes, now - window, now),
    )


def _pace(
    story: Story, attempts: tuple[AttemptRecord, ...], kept: CheckpointRule, resolved: Resolved, now: float
) -> Pace:
    """The pace by checkpoints of the present lineage: when each was found, and what attempts were given to resume."""
    found = [
        Moved(item.step, item.at, item.attempt)
        for item in seen(story.checkpoints)
        if item.verdict is not VerdictWord.FAIL and _allowed((item.step, item.path), kept)
    ]
    found += [
        Moved(item.resumed_from_step, item.planned_at, item.number, saved=False)
        for item in story.attempts
        if item.resumed_from_step is not None and (kept.max_step is None or item.resumed_from_step <= kept.max_step)
    ]
    back = [item.planned_at for item in attempts if item.max_resume_step is not None]
    since = max(story.run.created_at, story.run.resumed_at or 0.0, *back)
    run = resolved.run
    told = next((item.interval_steps for item in reversed(attempts) if item.interval_steps), None)
    return pace_of(attempts, found, told or run.checkpoint.interval_steps, run.recovery.hang, since, now)


def with_experience(known: Situation, fleet: Sequence[IncidentRecord]) -> Situation:
    """The situation with what the incidents of all runs say of retries: how often they succeed, how long they take."""
    return replace(known, tallies=tallies(fleet), restart_seconds=restart_seconds(fleet))


def _redo_seconds(attempts: tuple[AttemptRecord, ...], looked_at: tuple[tuple[int, str], ...]) -> float:
    """Training time between the newest usable checkpoint and the last step of the newest attempt."""
    last = attempts[-1] if attempts else None
    if last is None or last.first_step is None or last.last_step is None:
        return 0.0
    if last.first_step_at is None or last.last_step_at is None or last.last_step <= last.first_step:
        return 0.0
    each = (last.last_step_at - last.first_step_at) / (last.last_step - last.first_step)
    begin = max((step for step, _ in looked_at if step <= last.last_step), default=0)
    return max(0.0, each) * (last.last_step - begin)


def _resumed(story: Story, number: int) -> ResumeChoice | None:
    """What the attempt was given, where its checkpoint step is not known any more; None: nothing, or not known."""
    attempt = next((item for item in story.attempts if item.number == number), None)
    if attempt is None or not attempt.resume_path:
        return None
    return ResumeChoice(attempt.resume_path, attempt.resumed_from_step, [], "pass", "as the attempt was given it")


def _highest(attempts: tuple[AttemptRecord, ...], evidence: Evidence) -> tuple[int | None, ...]:
    steps = [item.last_step for item in attempts]
    if attempts and attempts[-1].number == evidence.attempt and evidence.last_step is not None:
        steps[-1] = max(evidence.last_step, steps[-1] or 0)
    return tuple(steps)


def _looked_at(story: Story, evidence: Evidence) -> tuple[tuple[int, str], ...]:
    """Checkpoints that no look called bad: those of the ledger and those that the checkpoint step saw."""
    begun = next((item.planned_at for item in story.attempts if item.number == evidence.attempt), 0.0)
    found = standing(story.checkpoints)
    known = {(item.step, item.path): item.verdict is not VerdictWord.FAIL for item in found if item.at < begun}
    for state in evidence.choice.looked_at if evidence.choice else ():
        known[(state.step, state.path)] = state.usable  # the look before the attempt came after those findings
    known |= {(item.step, item.path): item.verdict is not VerdictWord.FAIL for item in found if item.at >= begun}
    return tuple(sorted(place for place, usable in known.items() if usable))


def _allowed(item: tuple[int, str], kept: CheckpointRule) -> bool:
    step, path = item
    return path not in kept.exclude and (kept.max_step is None or step <= kept.max_step)


def _roll_back_limits(story: Story) -> tuple[tuple[int, int], ...]:
    """(first NaN step, limit) of every attempt that a roll-back after NaN asked for."""
    by_number = {item.number: item for item in story.attempts}
    found: list[tuple[int, int]] = []
    for incident in story.incidents:
        after = by_number.get(incident.attempt + 1)
        rolled = incident.fault_class is FaultClass.NUMERIC and incident.action is Action.ROLL_BACK
        if rolled and incident.step is not None and after is not None and after.max_resume_step is not None:
            found.append((incident.step, after.max_resume_step))
    return tuple(found)


def suspects(diagnosis: Diagnosis, evidence: Evidence) -> tuple[str, ...]:
    """Nodes worth a look, most suspicious first, at most `MOST`; empty where looking decides nothing.

    Only living nodes of the attempt whose own gate has not spoken against them: a lost node cannot be examined, and the
    gate looks at the same things.
    """
    policy = policy_of(diagnosis.fault_class, diagnosis.rule)
    # It may be sure that nothing is known: then the evidence has decided nothing.
    sure = diagnosis.fault_class is not FaultClass.UNKNOWN and diagnosis.confidence >= SURE
    if not policy.may_be_hardware or (sure and diagnosis.culprits):
        return ()
    refused = {report.node for report in evidence.gate if report.verdict != VerdictWord.PASS}
    living = {node.name for node in evidence.nodes if node.ready is True}
    worth = living - refused - set(lost_nodes(evidence)) - set(evidence.unreached_nodes)
    return tuple(node for node in _accused_nodes(diagnosis, evidence) if node in worth)[:MAX_SUSPECTS]


def _accused_nodes(diagnosis: Diagnosis, evidence: Evidence) -> tuple[str, ...]:
    """The nodes of the culprits, else where it happened, else that of the rank that failed first."""
    rank = diagnosis.first_failing_rank
    first = next((pod.node for pod in evidence.pods if pod.node and rank in pod.ranks), "")
    known = {node.name for node in evidence.nodes}
    blamed = tuple(dict.fromkeys(node for node, _ in diagnosis.culprits if node in known))
    scene = tuple(sorted((node for node in diagnosis.nodes if node in known), key=lambda node: node != first))
    return blamed or scene or tuple(node for node in (first,) if node in known)


def pause_reason(story: Story) -> str:
    """Why nothing may be touched now, in words; "" where it may."""
    if story.paused:
        return "paused: nothing is touched"
    return "mode observe: nothing is touched" if story.run.mode is Mode.OBSERVE else ""


def ordinal(incident: IncidentRecord, story: Story) -> int:
    """Number of the incident within its attempt, from 1: it names the examination."""
    return 1 + [item.id for item in story.troubles if item.attempt == incident.attempt].index(incident.id)


def with_examination(evidence: Evidence, reports: tuple[GateReport, ...]) -> Evidence:
    """The evidence with what the examination found: its reports, and the lines of the nodes' kernels."""
    lines = tuple(line for report in reports for line in _kernel_lines(report))
    return replace(evidence, examined=reports, lines=(*evidence.lines, *lines))


def examination_text(report: GateReport) -> str:
    """One examined node in words: `examined node-1: pass; …`."""
    why = "; ".join(
        f"{check.get('check')}: {check.get('evidence')}"
        for check in report.checks
        if check.get("verdict") == report.verdict != VerdictWord.PASS and check.get("check") != KERNEL_CHECK
    )
    parts = (f"examined {report.node}: {report.verdict}", why, *(_kernel(check) for check in _kernel_checks(report)))
    return "; ".join(part for part in parts if part)[:EXAMINATION_CHARACTERS]


def _kernel(check: dict[str, Any]) -> str:
    if check.get("verdict") == VerdictWord.PASS:
        return "its kernel log shows no fault"
    lines = check.get("lines")
    lines_text = (
        f"its kernel log has {len(lines)} {'line' if len(lines) == 1 else 'lines'} about faults" if lines else ""
    )
    return lines_text or f"its kernel log could not be read ({check.get('evidence')})"


def _kernel_checks(report: GateReport) -> Iterator[dict[str, Any]]:
    return (check for check in report.checks if check.get("check") == KERNEL_CHECK)


def _kernel_lines(report: GateReport) -> Iterator[LogLine]:
    """Lines as the gate program reports them: [Unix seconds, text]; what has another form is left out."""
    for check in _kernel_checks(report):
        found = check.get("lines")
        for item in cast("list[object]", found) if isinstance(found, list) else ():
            match item:
                case [float() | int() as at, str() as text]:
                    yield LogLine(text, KERNEL_CHECK, node=report.node, at=float(at))
                case _:
                    pass


def overlaps(incident: IncidentRecord, action: ActionRecord, wait_until: float, *, tests_first: bool) -> bool:
    """Whether the attempt of this incident may still be ending while the next one is tested and placed.

    `tests_first`: nodes are tested before each attempt.
    Not where its pods are given time to save or train on, where the next attempt waits or goes back to an older
    checkpoint anyway, nor where nodes are tested for it first: they would find the old ranks there. Nor where a node is
    only supposed to be lost: until that is known its pods may take most of a minute, and nodes are better chosen then.
    """
    if Action(action.kind) is not Action.NEW_ATTEMPT or incident.signal not in BROKEN:
        return False
    saves = incident.fault_class is FaultClass.PREEMPTED
    supposed = incident.fault_class is FaultClass.NODE_LOST and not incident.lost_nodes
    waits = wait_until > action.planned_at
    return not (saves or supposed or waits or tests_first)
