"""From a diagnosis to a decision: one action on the run, actions on nodes, what the next attempt must heed, and why.

A table of defaults (`flows.decisions.policy`), then limits (`flows.decisions.recovery.limits`) in a fixed order. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from flows.decisions.diagnosis.diagnose import Diagnosis
from flows.decisions.diagnosis.losses import NODE_LOST
from flows.decisions.policy import FaultPolicy, policy_of
from flows.decisions.recovery.decision import STARTS, Decision, NodeStep, Situation, give_up, recent, restarts_left
from flows.decisions.recovery.limits import LIMITS
from flows.decisions.recovery.nodes import NAMES
from flows.decisions.recovery.odds import FUTILE, Odds, odds
from flows.decisions.recovery.resume_rule import CheckpointRule, fall_back_past, roll_back_before_nan, tighter
from flows.decisions.text import first_names
from profiles.vocabulary import Action, FaultClass, Mode, NodeAction

SURE_TO_EVICT = 0.8
"""Below this confidence a node is moved away from without blame: the same text has several owners."""
MAX_WAIT_SECONDS = 600.0
"""No wait before a new attempt is longer."""


def decide(diagnosis: Diagnosis, situation: Situation) -> Decision:
    """The decision about an incident. Total and deterministic."""
    decision = _default(diagnosis, situation)
    for limit in LIMITS:
        decision = limit(diagnosis, situation, decision) or decision
    policy = policy_of(diagnosis.fault_class, diagnosis.rule)
    optional = policy.optional and not situation.ended
    decision = _leave_running(decision) if optional else decision
    rule = tighter(CheckpointRule(decision.max_resume_step, decision.exclude_checkpoints), situation.lineage)
    charged = decision.charged and not optional and (decision.if_approved or decision.action) in STARTS
    return replace(
        decision,
        charged=charged,
        budget_left=max(0, restarts_left(situation) - (1 if charged else 0)),
        max_resume_step=rule.max_step,
        exclude_checkpoints=rule.exclude,
        act=situation.mode is not Mode.OBSERVE and not situation.paused,
        advice=diagnosis.advice,
    )


def _default(diagnosis: Diagnosis, situation: Situation) -> Decision:
    policy = policy_of(diagnosis.fault_class, diagnosis.rule)
    action = policy.action
    if diagnosis.fault_class is FaultClass.USER_CODE and situation.recovery.retry_user_code:
        action = Action.NEW_ATTEMPT
    match action:
        case Action.NEW_ATTEMPT | Action.RESTART_IN_PLACE:
            return _new_attempt(diagnosis, situation, policy)
        case Action.ROLL_BACK:
            return _roll_back(diagnosis, situation)
        case Action.WAIT:
            return _wait_for_room(diagnosis, situation)
        case Action.GIVE_UP:
            return _give_up_by_class(diagnosis, situation, policy)
        case Action.NONE | Action.ASK:
            return _leave_alone(diagnosis, situation, policy)
        case _:
            assert_never(action)


def _leave_running(decision: Decision) -> Decision:
    """No limit and no question ends a training that goes on by itself: it only might have moved."""
    if decision.action in (*STARTS, Action.NONE):
        return decision
    return Decision(Action.NONE, f"training continues, nothing is done: {decision.why}", decision.would_change)


def _leave_alone(diagnosis: Diagnosis, situation: Situation, policy: FaultPolicy) -> Decision:
    """Nothing is wrong with the training; but where it has ended, only a new attempt trains."""
    if situation.ended:
        return _new_attempt(diagnosis, situation, policy)
    return Decision(
        Action.NONE,
        f"{diagnosis.fault_class}: training continues, nothing is done: {diagnosis.why}",
        "evidence that the training itself stopped",
    )


def _new_attempt(diagnosis: Diagnosis, situation: Situation, policy: FaultPolicy) -> Decision:
    avoid = _avoided(diagnosis, situation, policy)
    wait = min(MAX_WAIT_SECONDS, policy.wait_seconds * 2 ** min(recent(situation, diagnosis.fault_class), 10))
    where = f", without {first_names(avoid, NAMES)}" if avoid else ""
    pause = f", after {wait:g} s" if wait else ""
    promise = _retry_odds(diagnosis, situation).words
    return Decision(
        Action.NEW_ATTEMPT,
        f"{diagnosis.fault_class}: a new attempt{where}{pause}: {diagnosis.why}; {promise}",
        "the same failure again at the same step, or no progress in between",
        charged=diagnosis.fault_class not in situation.recovery.free_classes,
        node_actions=_node_steps(diagnosis, situation, policy),
        avoid_nodes=avoid,
        wait_seconds=wait,
    )


def _blamed(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Nodes that are to blame as a whole."""
    if not diagnosis.node_suspect:
        return ()
    return tuple(sorted({node for node, rank in diagnosis.culprits if node and rank is None}))


def _avoided(diagnosis: Diagnosis, situation: Situation, policy: FaultPolicy) -> tuple[str, ...]:
    """Nodes that the next attempt must not use. Where the symptom has several owners, only if others are free."""
    blamed = set(_blamed(diagnosis))
    if policy.nodes != "quarantine":
        blamed |= {node for node, _ in diagnosis.culprits if node} if policy.nodes == "quarantine-again" else set()
        taken = {step.node for step in _node_steps(diagnosis, situation, policy)}
        spare = situation.spare_nodes
        blamed = blamed if spare is not None and spare >= len(blamed) else taken
    return tuple(sorted(blamed | set(diagnosis.avoid)))


def _node_steps(diagnosis: Diagnosis, situation: Situation, policy: FaultPolicy) -> tuple[NodeStep, ...]:
    if policy.nodes == "none":
        return ()
    steps: list[NodeStep] = []
    same = (item for item in situation.past if item.fault_class == diagnosis.fault_class.value)
    met_before = {node for item in same for node in item.nodes}
    out = frozenset(situation.brake.quarantined)
    for node in _blamed(diagnosis):
        proven = diagnosis.rule == NODE_LOST or diagnosis.confidence >= SURE_TO_EVICT
        unsure = policy.nodes == "quarantine-again" or not proven
        if node in out or (unsure and node not in met_before):
            continue
        steps.append(NodeStep(NodeAction.QUARANTINE, node, f"{diagnosis.fault_class}: {diagnosis.why}"))
    return tuple(steps)


def _roll_back(diagnosis: Diagnosis, situation: Situation) -> Decision:
    numeric = diagnosis.fault_class is FaultClass.NUMERIC
    earlier = _same_nan(situation) if numeric else ()
    rule = _nan_rule(situation, earlier) if numeric else _corrupt_rule(situation)
    if rule.exhausted or len(earlier) >= situation.recovery.max_roll_backs:
        reason = rule.why if rule.exhausted else f"rolled back {len(earlier)} times for the same cause"
        why = f"{diagnosis.fault_class}: {reason}: {diagnosis.why}"
        return _ask_or_give_up(situation, why, "another usable checkpoint")
    return Decision(
        Action.ROLL_BACK,
        f"{diagnosis.fault_class}: roll back to {rule.why}: {diagnosis.why}",
        "a second failure of the same kind after going back",
        charged=diagnosis.fault_class not in situation.recovery.free_classes,
        max_resume_step=rule.max_step,
        exclude_checkpoints=rule.exclude,
        avoid_nodes=diagnosis.avoid,
    )


def _same_nan(situation: Situation) -> tuple[int, ...]:
    """Limits of earlier roll-backs for this NaN: nothing was saved between that one and this one."""
    here = situation.first_nan_step
    steps = [step for step, _ in situation.checkpoints]
    return tuple(
        limit
        for nan_step, limit in situation.roll_back_limits
        if here is None or not any(nan_step < step < here for step in steps)
    )


def _nan_rule(situation: Situation, earlier: tuple[int, ...]) -> CheckpointRule:
    steps = [step for step, _ in situation.checkpoints]
    return roll_back_before_nan(steps, situation.first_nan_step, situation.recovery.roll_back_checkpoints, earlier)


def _corrupt_rule(situation: Situation) -> CheckpointRule:
    choice = situation.choice
    if choice is not None and choice.verdict == "fail":
        return CheckpointRule(exhausted=True, why=f"none of {len(choice.looked_at)} checkpoints is usable")
    taken = choice.resume_from if choice is not None else ""
    return fall_back_past(situation.checkpoints, taken, choice.resume_step if choice is not None else None)


def _wait_for_room(diagnosis: Diagnosis, situation: Situation) -> Decision:
    limit = situation.recovery.pending_timeout_seconds
    waited = situation.pending_seconds
    if waited is not None and waited < limit:
        why = f"scheduling: waits for room, {limit - waited:.0f} s left: {diagnosis.why}"
        return Decision(Action.WAIT, why, "room for the whole gang", wait_seconds=limit - waited)
    why = f"scheduling: no room within {limit:g} s: {diagnosis.why}"
    return _ask_or_give_up(situation, why, "enough free nodes or quota")


def _retry_odds(diagnosis: Diagnosis, situation: Situation) -> Odds:
    return odds(
        diagnosis.fault_class,
        diagnosis.confidence,
        diagnosis.alternatives,
        situation.tallies,
        situation.gpus,
        situation.restart_seconds,
        situation.redo_seconds,
    )


def _give_up_by_class(diagnosis: Diagnosis, situation: Situation, policy: FaultPolicy) -> Decision:
    promise = _retry_odds(diagnosis, situation)
    if promise.success >= FUTILE and not policy.ends_whatever_the_odds:
        return replace(_new_attempt(diagnosis, situation, policy), charged=True)
    to_do = f"; what to do: {diagnosis.advice}" if diagnosis.advice else ""
    why = f"{diagnosis.fault_class}: {diagnosis.why}; {promise.words}{to_do}"
    return give_up(why, "a change by a person, then `primus resume`")


def _ask_or_give_up(situation: Situation, why: str, would_change: str) -> Decision:
    if situation.mode is not Mode.ASK:
        return give_up(why, would_change)
    question = f"{why}. Start another attempt anyway?"
    return Decision(Action.ASK, why, would_change, approval=question, if_approved=Action.NEW_ATTEMPT)
