"""Limits on a decision, in a fixed order: repetition, progress, attempts, budgets, the brake, people to be asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from flows.decisions.diagnosis.blame import SAME_NODE
from flows.decisions.diagnosis.diagnose import Diagnosis
from flows.decisions.policy import policy_of
from flows.decisions.recovery.decision import STARTS, Decision, Situation, give_up, recent, restarts_left, since_resume
from flows.decisions.recovery.nodes import NAMES
from flows.decisions.text import first_names
from profiles.vocabulary import Action, Mode, NodeAction
from workflows.model.attempt import PastIncident
from workflows.model.fleet import brake_trips

Limit = Callable[[Diagnosis, Situation, Decision], Decision | None]
"""The decision in its place, or None where the limit does not bite."""


def _end(decision: Decision, why: str, would_change: str) -> Decision:
    """Give up in the place of a decision; what was to be done about nodes is done all the same."""
    return replace(give_up(why, would_change), node_actions=decision.node_actions)


def _repeated(diagnosis: Diagnosis, situation: Situation, decision: Decision) -> Decision | None:
    policy = policy_of(diagnosis.fault_class, diagnosis.rule)
    if decision.action not in STARTS or not policy.repeats_are_code or not diagnosis.fingerprint:
        return None
    if any(clue.rule == SAME_NODE for clue in diagnosis.evidence):
        return None
    same = [
        item
        for item in since_resume(situation)
        if item.fingerprint == diagnosis.fingerprint and item.failed_at(diagnosis.step) and _alike(item, diagnosis)
    ]
    if len(same) + 1 < situation.recovery.same_failure_limit:
        return None
    return _end(
        decision,
        f"{diagnosis.fault_class}: the same failure {len(same) + 1} times at step {diagnosis.step}, so the code or the "
        f"data is at fault: {diagnosis.why}",
        "another step, another message, or always the same node",
    )


def _alike(item: PastIncident, diagnosis: Diagnosis) -> bool:
    """An in-place restart was classed by its signal alone, which says less than an attempt's whole evidence."""
    return item.action != Action.RESTART_IN_PLACE or item.fault_class == diagnosis.fault_class


def _too_many_tries(diagnosis: Diagnosis, situation: Situation, decision: Decision) -> Decision | None:
    policy = policy_of(diagnosis.fault_class, diagnosis.rule)
    before = recent(situation, diagnosis.fault_class)
    if decision.action not in STARTS or policy.tries is None or before < policy.tries:
        return None
    return _end(
        decision,
        f"{diagnosis.fault_class}: {before + 1} failures of this kind within the restart window: {diagnosis.why}",
        "fewer failures of this kind",
    )


def _no_progress(_: Diagnosis, situation: Situation, decision: Decision) -> Decision | None:
    wanted = situation.recovery.no_progress_attempts
    if decision.action not in STARTS or attempts_without_progress(situation.highest_steps) < wanted:
        return None
    return _end(
        decision, f"{wanted} attempts in a row without a new highest step: {decision.why}", "one step of progress"
    )


def attempts_without_progress(steps: tuple[int | None, ...]) -> int:
    """How many attempts in a row, up to the last, did not get beyond the highest step known before them."""
    highest, row = -1, 0
    for step in steps:
        row = row + 1 if step is None or step <= highest else 0
        highest = max(highest, -1 if step is None else step)
    return row


def _attempts(_: Diagnosis, situation: Situation, decision: Decision) -> Decision | None:
    limit = situation.recovery.max_attempts
    if decision.action not in STARTS or situation.attempts < limit:
        return None
    return _end(
        decision, f"{situation.attempts} attempts, the profile allows {limit}: {decision.why}", "a higher max_attempts"
    )


def _restart_budget(_: Diagnosis, situation: Situation, decision: Decision) -> Decision | None:
    if decision.action not in STARTS or not decision.charged or restarts_left(situation) > 0:
        return None
    budget = situation.recovery.restarts
    why = f"the budget of {budget.tokens} restarts in {budget.window_seconds:g} s is spent: {decision.why}"
    return _end(decision, why, "an older failure leaving the window")


def _run_budget(_: Diagnosis, situation: Situation, decision: Decision) -> Decision | None:
    if decision.action not in STARTS:
        return None
    hours, wall = situation.budget.gpu_hours, situation.budget.wall_seconds
    if hours and situation.gpu_hours >= hours:
        return _end(
            decision, f"the budget of {hours:g} GPU-hours is spent: {decision.why}", "a larger budget.gpu_hours"
        )
    if wall and situation.wall_seconds >= wall:
        return _end(
            decision, f"the budget of {wall:g} s of wall time is spent: {decision.why}", "a larger budget.wall_seconds"
        )
    return None


def _brake(_: Diagnosis, situation: Situation, decision: Decision) -> Decision | None:
    new = {step.node for step in decision.node_actions if step.action in (NodeAction.QUARANTINE, NodeAction.DRAIN)}
    reason = brake_trips(situation.brake, len(new)) if new else ""
    if not reason:
        return None
    if decision.action not in STARTS:
        why = f"{decision.why} (the brake holds: {reason}; still in service: {first_names(sorted(new), NAMES)})"
        return replace(decision, node_actions=(), why=why)
    question = brake_question(reason, new, decision.action, decision.why)
    return replace(
        decision,
        action=Action.ASK,
        if_approved=decision.action,
        approval=question.question,
        why=question.why,
        would_change=question.would_change,
    )


NEXT_STEPS = {Action.NEW_ATTEMPT: "start a new attempt", Action.ROLL_BACK: "roll back"}


class BrakeQuestion(NamedTuple):
    """The question to a person, and its reason, where the brake stops a decision."""

    question: str
    why: str
    would_change: str


def brake_question(reason: str, nodes: Iterable[str], action: Action, why: str) -> BrakeQuestion:
    """The question in the place of `action`, which was decided because of `why`; `reason`: why the brake tripped."""
    next_step = NEXT_STEPS.get(action, f"continue with {action}")
    return BrakeQuestion(
        question=f"The brake tripped: {reason}. Take out {first_names(sorted(nodes), NAMES)} and {next_step} anyway?",
        why=f"stopped by the brake: {reason}; without it: {why}",
        would_change="fewer nodes taken out",
    )


def _ask_first(_: Diagnosis, situation: Situation, decision: Decision) -> Decision | None:
    if situation.mode is not Mode.ASK or decision.action is Action.ASK:
        return None
    reasons_to_ask = [str(decision.action)] if decision.action in situation.recovery.ask_before else []
    reasons_to_ask += [
        f"{s.action} {s.node}" for s in decision.node_actions if s.action in situation.recovery.ask_before
    ]
    if not reasons_to_ask:
        return None
    question = f"{', '.join(reasons_to_ask)}? {decision.why}"
    return replace(decision, action=Action.ASK, if_approved=decision.action, approval=question)


LIMITS: tuple[Limit, ...] = (
    _repeated,
    _too_many_tries,
    _no_progress,
    _attempts,
    _restart_budget,
    _run_budget,
    _brake,
    _ask_first,
)
"""Each sees what the ones before it made of the decision."""
