"""What a decision depends on beside the diagnosis, read from the ledger's story."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flows.decisions.checkpoint import CheckpointRule, lineage
from flows.decisions.decision import Situation
from flows.decisions.odds import restart_seconds, tallies
from profiles.resolve import Resolved
from profiles.vocabulary import Action, FaultClass, VerdictWord
from workflows.evidence import LIVING, Evidence
from workflows.fleet import BrakeState
from workflows.records import AttemptRecord, IncidentRecord, Story


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
    begin, looked_at = story.run.resumed_at, _looked_at(story, evidence)
    counted = tuple(item for item in story.attempts if begin is None or item.planned_at >= begin)
    kept = lineage(story.attempts, looked_at)
    return Situation(
        now=now,
        recovery=resolved.run.recovery,
        mode=story.run.mode,
        paused=story.paused,
        past=evidence.past,
        resumed_at=begin,
        attempts=len(counted),
        highest_steps=_highest(counted, evidence),
        brake=brake,
        budget=resolved.run.budget,
        gpu_hours=spent_gpu_seconds / 3600.0,
        wall_seconds=now - story.run.created_at,
        choice=evidence.choice,
        checkpoints=tuple(item for item in looked_at if _allowed(item, kept)),
        lineage=kept,
        roll_back_limits=_roll_back_limits(story),
        first_nan_step=evidence.first_nan_step,
        spare_nodes=spare_nodes,
        gpus=resolved.gpus,
        redo_seconds=_redo_seconds(story.attempts, looked_at),
        ended=evidence.signal not in LIVING,
    )


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


def _highest(attempts: tuple[AttemptRecord, ...], evidence: Evidence) -> tuple[int | None, ...]:
    steps = [item.last_step for item in attempts]
    if attempts and attempts[-1].number == evidence.attempt and evidence.last_step is not None:
        steps[-1] = max(evidence.last_step, steps[-1] or 0)
    return tuple(steps)


def _looked_at(story: Story, evidence: Evidence) -> tuple[tuple[int, str], ...]:
    """Checkpoints that no look called bad: those of the ledger and those that the checkpoint step saw."""
    known: dict[str, tuple[int, bool]] = {}
    for state in evidence.choice.looked_at if evidence.choice else ():
        known[state.path] = (state.step, state.usable)
    for record in sorted(story.checkpoints, key=lambda item: item.at):
        known[record.path] = (record.step, record.verdict is not VerdictWord.FAIL)
    return tuple(sorted((step, path) for path, (step, usable) in known.items() if usable))


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
