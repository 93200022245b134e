"""Limits on a decision, in a fixed order: repetition, progress, attempts, budgets, the brake, people to be asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from flows.decisions.diagnosis.blame import SAME_NODE, stuck_at
from flows.decisions.diagnosis.diagnose import Diagnosis
from flows.decisions.policy import policy_of
from flows.decisions.recovery.chance import IMPROBABLE, SAME_STEP_ATTEMPTS, STEPLESS_ATTEMPTS, row_needed
from flows.decisions.recovery.decision import (
    STARTS,
    Decision,
    Situation,
    give_up,
    recent,
    restarts_allowed,
    restarts_left,
    since_resume,
)
from flows.decisions.recovery.nodes import NAMES
from flows.decisions.recovery.odds import RESTART_SECONDS
from flows.decisions.text import duration_text, first_names
from profiles.vocabulary import Action, Mode, NodeAction
from workflows.model.attempt import PastIncident
from workflows.model.fleet import brake_trips

Limit = Callable[[Diagnosis, Situation, Decision], Decision | None]
"""The decision in its place, or None where the limit does not bite."""


def _end(decision: Decision, why: str, would_change: str, to_do: str = "") -> Decision:
    """Give up in the place of a decision; what was to be done about nodes is done all the same."""
    what = f"; what to do: {to_do}" if to_do else ""
    return replace(give_up(f"{why}{what}", would_change), node_actions=decision.node_actions)


def _repeated(diagnosis: Diagnosis, situation: Situation, decision: Decision) -> Decision | None:
    policy = policy_of(diagnosis.fault_class, diagnosis.rule)
    if decision.action not in STARTS or not policy.repeats_are_code or not diagnosis.fingerprint:
        return None
    if any(clue.rule == SAME_NODE for clue in diagnosis.evidence):
        return None
    same = [
        item for item in stuck_at(diagnosis.step, since_resume(situation)) if item.fingerprint == diagnosis.fingerprint
    ]
    same = [item for item in same if _alike(item, diagnosis)]
    wanted = situation.recovery.same_failure_limit
    if not policy.exception_blames_code:
        wanted = max(wanted, _repetitions(situation))
    if len(same) + 1 < wanted:
        return None
    return _end(
        decision,
        f"{diagnosis.fault_class}: the same failure {len(same) + 1} times at step {diagnosis.step}, so the code or the "
        f"data is at fault: {diagnosis.why}",
        "another step, another message, or always the same node",
    )


def _repetitions(situation: Situation) -> int:
    """How many equal failures at one step are more than what chance brings a gang of this size.

    Where the attempt made no step its whole start is one place, at which chance strikes far more often.
    """
    stepless = situation.highest_steps[-1:] == (None,)
    restart = situation.restart_seconds or RESTART_SECONDS
    each = situation.chance.within(restart if stepless else situation.pace.step_seconds or 0.0)
    return min(1 + row_needed(each, 1, IMPROBABLE), STEPLESS_ATTEMPTS if stepless else SAME_STEP_ATTEMPTS)


def _same_step(diagnosis: Diagnosis, situation: Situation, decision: Decision) -> Decision | None:
    """The same kind of failure at one step, whatever it says: what differs is only who tells of it."""
    if decision.action not in STARTS or not decision.charged or situation.highest_steps[-1:] == (None,):
        return None
    if diagnosis.step is None or any(clue.rule == SAME_NODE for clue in diagnosis.evidence):
        return None
    kind = diagnosis.fault_class.value
    same = [
        item for item in stuck_at(diagnosis.step, since_resume(situation)) if item.charged and item.fault_class == kind
    ]
    if len(same) + 1 < max(2, situation.recovery.no_progress_attempts):
        return None
    return _end(
        decision,
        f"{diagnosis.fault_class}: {len(same) + 1} attempts in a row ended at step {diagnosis.step}, and none got past "
        f"it, so the code or the data is at fault: {diagnosis.why}",
        "one step more",
        "look at what the program does at that step, then `primus resume`",
    )


def _alike(item: PastIncident, diagnosis: Diagnosis) -> bool:
    """An in-place restart was classed by its signal alone, which says less than an attempt's whole evidence."""
    return item.action != Action.RESTART_IN_PLACE or item.fault_class == diagnosis.fault_class


def _too_many_tries(diagnosis: Diagnosis, situation: Situation, decision: Decision) -> Decision | None:
    policy = policy_of(diagnosis.fault_class, diagnosis.rule)
    before = recent(situation, diagnosis.fault_class)
    if decision.action not in STARTS or policy.tries is None or before < policy.tries:
        return None
    usual = situation.chance.allows(situation.chance.window_node_days)
    if before < policy.tries + usual:
        return None
    more = f", {policy.tries} and the {usual} that chance may bring {_gang(situation)} are allowed" if usual else ""
    return _end(
        decision,
        f"{diagnosis.fault_class}: {before + 1} failures of this kind within the restart window{more}: {diagnosis.why}",
        "fewer failures of this kind",
    )


def _counts(diagnosis: Diagnosis, situation: Situation, decision: Decision) -> bool:
    """Whether what is decided is an attempt that the run answers for: a stop that the infrastructure caused is none.

    A move that nobody is forced to make counts, whatever its class.
    """
    voluntary = policy_of(diagnosis.fault_class, diagnosis.rule).optional and not situation.ended
    return decision.action in STARTS and (decision.charged or voluntary)


def _no_progress(diagnosis: Diagnosis, situation: Situation, decision: Decision) -> Decision | None:
    if not _counts(diagnosis, situation, decision):
        return None
    chance, least = situation.chance, situation.recovery.no_progress_attempts
    restart = situation.restart_seconds or RESTART_SECONDS
    row = rows_without_progress(situation.highest_steps, situation.free_attempts)
    again = chance.within(restart + max(situation.redo_seconds, situation.pace.between_seconds or 0.0))
    wanted = row_needed(again, least)
    wanted_steps = min(row_needed(chance.within(restart), least), max(least, STEPLESS_ATTEMPTS))
    if row.attempts >= wanted:
        why = f"{row.attempts} attempts in a row without a new highest step"
    elif row.stepless >= wanted_steps:
        why = f"{row.stepless} attempts in a row without any step"
    else:
        return None
    to_do = "look at how the last attempts ended (`primus logs`), then `primus resume`"
    return _end(decision, f"{why}: {decision.why}", "one step of progress", to_do)


def _no_durable_step(_: Diagnosis, situation: Situation, decision: Decision) -> Decision | None:
    """No durable step for longer than chance and the profile's own limits explain, whatever ends attempts."""
    pace, chance = situation.pace, situation.chance
    expected = pace.expected_seconds(chance, situation.restart_seconds)
    limit = pace.limit_seconds(chance, situation.restart_seconds, situation.recovery)
    if decision.action not in STARTS or expected is None or limit is None or pace.still_seconds <= limit:
        return None
    newest = "no step was ever saved" if pace.newest is None else f"the newest durable step is still {pace.newest}"
    saves = f"saves about every {duration_text(pace.between_seconds or 0.0)}"
    return _end(
        decision,
        f"no progress: {newest} after {duration_text(pace.still_seconds)} of running, where one is expected within "
        f"{duration_text(expected)} ({_gang(situation)}, {saves}) and "
        f"{duration_text(limit)} are granted: {decision.why}",
        "one durable checkpoint",
        "save more often, start faster or take fewer nodes, then `primus resume`",
    )


def _gang(situation: Situation) -> str:
    """The gang and how often chance stops it, in words."""
    chance = situation.chance
    nodes = f"{chance.nodes} {'node' if chance.nodes == 1 else 'nodes'}"
    return f"{nodes} that stop every {duration_text(chance.mttf_seconds)} by no fault of the run"


class Rows(NamedTuple):
    """Attempts in a row, up to the last, that got nowhere; those that the infrastructure ended are not counted."""

    attempts: int
    """They did not get beyond the highest step known before them."""
    stepless: int
    """They made no step at all, and neither did any between them."""


def rows_without_progress(steps: tuple[int | None, ...], free: frozenset[int] = frozenset()) -> Rows:
    """How many attempts in a row got nowhere; `free`: places of attempts that the infrastructure ended."""
    highest, row, stepless = -1, 0, 0
    for place, step in enumerate(steps):
        counts = place not in free
        row = row + counts if step is None or step <= highest else 0
        stepless = stepless + counts if step is None else 0
        highest = max(highest, -1 if step is None else step)
    return Rows(row, stepless)


def attempts_without_progress(steps: tuple[int | None, ...]) -> int:
    """How many attempts in a row, up to the last, did not get beyond the highest step known before them."""
    return rows_without_progress(steps).attempts


def _attempts(diagnosis: Diagnosis, situation: Situation, decision: Decision) -> Decision | None:
    own = situation.recovery.max_attempts
    if not _counts(diagnosis, situation, decision) or situation.attempts < own:
        return None
    usual = situation.chance.allows(situation.chance.node_days)
    if situation.attempts < own + usual:
        return None
    more = f" and {usual} more for what chance may bring {_gang(situation)}" if usual else ""
    why = f"{situation.attempts} attempts, those left out that infrastructure ended; the profile allows {own}{more}"
    to_do = "`primus resume` counts anew; recovery.max_attempts is the profile's number"
    return _end(decision, f"{why}: {decision.why}", "a higher recovery.max_attempts", to_do)


def _restart_budget(_: Diagnosis, situation: Situation, decision: Decision) -> Decision | None:
    if decision.action not in STARTS or not decision.charged or restarts_left(situation) > 0:
        return None
    budget, allowed = situation.recovery.restarts, restarts_allowed(situation)
    usual = allowed - budget.tokens
    more = f" ({budget.tokens} of the profile, {usual} that chance may bring {_gang(situation)})" if usual else ""
    why = f"the budget of {allowed} restarts in {budget.window_seconds:g} s{more} is spent: {decision.why}"
    to_do = "mend what ends the attempts, then `primus resume`, which renews the budget"
    return _end(decision, why, "an older failure leaving the window, or a larger recovery.restarts.tokens", to_do)


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
    _same_step,
    _too_many_tries,
    _no_progress,
    _no_durable_step,
    _attempts,
    _restart_budget,
    _run_budget,
    _brake,
    _ask_first,
)
"""Each sees what the ones before it made of the decision."""
