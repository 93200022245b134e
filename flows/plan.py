"""The next attempt of a run: which nodes, from which checkpoint at the newest, and why."""

from __future__ import annotations

from flows.admission import admitted
from flows.decisions.advice import believed_mttf_seconds, told_interval
from flows.decisions.checkpoint import lineage
from flows.decisions.moves import Plan
from flows.decisions.nodes import need_of
from profiles.resolve import Resolved
from tasks.actions import constraints_of
from tasks.world import world
from workflows.gang_news import lent_restarts
from workflows.records import ActionRecord, AttemptRecord, Json, Story


def next_attempt(resolved: Resolved, story: Story, plan: Plan) -> AttemptRecord | None:
    """The record of the next attempt, to be written down before anything of it exists.

    None: nothing begins yet, since too few nodes are proven or a person wants something else.
    """
    action = decisive(story, plan)
    kept = lineage(story.attempts, tuple((item.step, item.path) for item in story.checkpoints))
    standing: Json = {"max_resume_step": kept.max_step, "excluded_checkpoints": kept.exclude}
    heed = constraints_of(action) if action else standing
    previous = story.attempt
    avoid: tuple[str, ...] = tuple(heed.get("avoid_nodes", ()))
    need = need_of(resolved, previous.nodes if previous else (), avoid)
    choice = admitted(resolved, story.run.name, plan.number, need)
    if choice is None:
        return None
    now, interval = world().now(), told_interval(resolved.run.checkpoint, story.attempts)
    saves = "" if interval is None else f", saves every {interval} steps as advised"
    return AttemptRecord(
        run=story.run.name,
        number=plan.number,
        planned_at=now,
        why=f"{plan.why} ({choice.why}{saves})",
        incident=plan.incident.id if plan.incident else "",
        nodes=choice.nodes,
        avoid_nodes=avoid,
        max_resume_step=heed.get("max_resume_step"),
        excluded_checkpoints=tuple(heed.get("excluded_checkpoints", ())),
        restarts_lent=lent_restarts(resolved.run.recovery, story.run.mode, paused=story.paused),
        mttf_seconds=believed_mttf_seconds(story, resolved, now),
        interval_steps=interval,
    )


def decisive(story: Story, plan: Plan) -> ActionRecord | None:
    """The action on the run that asked for this attempt."""
    if plan.incident is None:
        return None
    mine = [item for item in story.actions if item.incident == plan.incident.id and not item.target]
    return mine[-1] if mine else None
