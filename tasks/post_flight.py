"""After an attempt: collect what its pods left, then leave nothing running."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from profiles.errors import PrimusError
from profiles.resolve import Resolved
from tasks.attempts import plan_of
from tasks.clearing import clear_attempt
from tasks.cluster import Manifest, current
from tasks.facts import moments, outputs
from tasks.ownership import our_ledger, ours
from tasks.workflow_nodes import nodes_of
from tasks.world import touch, world
from workflows import labels
from workflows.failover import post_flight_workflow
from workflows.ownership import refuse_foreign
from workflows.records import AttemptRecord, StepRow

OTHER_RANK_SECONDS = 60.0
"""Ranks tell the same step so far apart at most."""
COLLECT_SECONDS = 30.0
"""A post-flight that takes longer is left to itself: what it finds lies in the run's folder anyway."""


@touch("collects what {run} left")
def post_flight(resolved: Resolved, run: str, attempts: tuple[AttemptRecord, ...]) -> str:
    """Run the post-flight workflow of each attempt, all at once, and keep steps and moments not reported in time.

    Returns:
        What was collected, in words. Nothing here can fail a run: a post-flight that does not come back is said so.
    """
    here, cluster = world(), current()
    # Of an attempt that was never submitted, or whose gang another ledger's run has, nothing is ours to collect.
    begun = [attempt for attempt in attempts if attempt.submitted_at is not None]
    names = {labels.post_flight_name(run, attempt.number): attempt for attempt in begun}
    ended: dict[str, Manifest] = {}
    try:
        for name, attempt in names.items():
            found = cluster.get("Workflow", name)
            refuse_foreign(found, our_ledger())
            if found is None:
                plan = plan_of(resolved, attempt, here.fencing, our_ledger())
                cluster.apply(post_flight_workflow(plan).to_dict())
        for event in cluster.watch("Workflow", {labels.RUN: run}, timeout_seconds=COLLECT_SECONDS):
            name = event.object.get("metadata", {}).get("name", "")
            if name in names and event.object.get("status", {}).get("phase") in ("Succeeded", "Failed", "Error"):
                ended[name] = event.object
            if len(ended) == len(names):
                break
    except PrimusError as error:
        return f"post-flight did not run: {error}"
    said = [f"attempt {names[name].number}: {_keep(names[name], _collected(item))}" for name, item in ended.items()]
    return "; ".join(said) or "post-flight did not come back in time"


def _collected(workflow: Manifest) -> str:
    return next((text for node in nodes_of(workflow) if (text := outputs(node).get("collected"))), "")


def _keep(attempt: AttemptRecord, text: str) -> str:
    here = world()
    try:
        collected = json.loads(text or "{}")
        rows = [StepRow(int(row[0]), float(row[1]), _number(row[2]), _number(row[3])) for row in collected["steps"]]
    except (ValueError, KeyError, TypeError, IndexError):
        return "what was collected is unreadable"
    here.ledger.add_marks(here.fencing, moments(attempt.run, attempt.number, collected.get("moments")))
    if rows:
        since = min(row.at for row in rows) - OTHER_RANK_SECONDS
        fresh = lacking(rows, here.ledger.steps(attempt.run, attempt.number, since))
        here.ledger.add_steps(attempt.run, attempt.number, fresh, fencing=here.fencing)
    last = max((row.step for row in rows), default=attempt.last_step)
    if last is not None and (attempt.last_step is None or last > attempt.last_step):
        here.ledger.update_attempt(here.fencing, attempt.run, attempt.number, last_step=last)
    return f"{len(rows)} steps, last {last}"


def lacking(rows: Sequence[StepRow], known: Sequence[StepRow]) -> list[StepRow]:
    """Steps of one rank that nobody has told yet.

    Another rank may have told a step, at its own time: a step that this one has done for the second time is lacking
    only where fewer than two are known.

    Args:
        rows: of the rank, any order.
        known: what was told meanwhile.
    """
    told, done = Counter(row.step for row in known), Counter[int]()
    found: list[StepRow] = []
    for row in sorted(rows, key=lambda row: row.at):
        done[row.step] += 1
        if done[row.step] > told[row.step]:
            found.append(row)
    return found


def _number(value: object) -> float | None:
    return None if value is None else float(str(value))  # NaN travels as a string


@touch("leaves nothing of attempt {attempt.number} running")
def leave_nothing(resolved: Resolved, attempt: AttemptRecord, *, keep_completed: bool) -> None:
    """Delete the run's objects; a completed JobSet stays for its time to live, so that people can look at it."""
    cluster = current()
    if not keep_completed:
        clear_attempt.fn(resolved, attempt, 0.0, ())
    name = labels.secret_name(attempt.run, attempt.number)
    if ours("Secret", name) is not None:
        cluster.delete("Secret", name)
