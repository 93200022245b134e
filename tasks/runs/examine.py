"""Examining suspects, and collecting what an attempt left; both by workflows beside the attempt.

The gate program runs on nodes that may be to blame, while the attempt's remains are still there. It can never stop a
recovery: an examination that is refused, fails, takes too long or says nothing readable is `unknown`, and unknown
blames nobody. A post-flight collects what pods left; then nothing is left running.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from profiles.errors import Fenced, Foreign, Permanent, PrimusError, Transient, Unavailable
from profiles.resolve import Resolved
from profiles.vocabulary import VerdictWord
from tasks.cluster import Cluster, Manifest, current
from tasks.context import touch, world
from tasks.lease import our_ledger, ours
from tasks.nodes.by_hand import keep_verdicts
from tasks.observe.objects import moments
from tasks.runs.clear import clear_attempt
from tasks.runs.submit import plan_of
from workflows import labels
from workflows.attempt.examination import EXAMINE, examination_workflow, post_flight_workflow
from workflows.model.checkpoints import standing
from workflows.model.ownership import refuse_foreign
from workflows.model.records import AttemptRecord, CheckpointRecord, StepRow
from workflows.model.workflow import reports_by_node, steps_of, workflow_pods
from workflows.wire import GateReport

SLACK_SECONDS = 30.0
"""Beyond the workflow's own deadline: time for the engine to say that it has passed."""
LOOK_SECONDS = 2.0
"""Between two looks at whether another driver took over or a person asked for the end."""
ENDED = ("Succeeded", "Failed", "Error")

OTHER_RANK_SECONDS = 60.0
"""Ranks tell the same step so far apart at most."""
COLLECT_SECONDS = 30.0
"""A post-flight that takes longer is left to itself: what it finds lies in the run's folder anyway."""


@dataclass(frozen=True)
class Look:
    """One examination, as the ledger determines it."""

    nodes: tuple[str, ...]
    number: int
    """Of the incident within its attempt, from 1."""
    since: float
    """Unix seconds: what the nodes' kernels said before is left out."""

    @property
    def names(self) -> str:
        """The nodes, for people."""
        return ", ".join(self.nodes)


@touch("examines {look.names}")
def examine(resolved: Resolved, attempt: AttemptRecord, look: Look) -> tuple[GateReport, ...]:
    """What the examination found, one report a node in their order; `unknown` where it found nothing out.

    The workflow is created, or adopted where an earlier life of this flow created it. Ended, it stays until the attempt
    is cleared away, so that a driver that is started again reads it instead of looking twice.

    Raises:
        Fenced: another driver has taken over.
    """
    here, cluster = world(), current()
    plan = plan_of(resolved, attempt, here.fencing, our_ledger())
    manifest: Manifest = examination_workflow(plan, look.nodes, look.number, look.since).to_dict()
    name = manifest["metadata"]["name"]
    try:
        ended = _ended(cluster, manifest, attempt.run)
    except Fenced:
        raise
    except Foreign as error:
        return unexamined(look.nodes, str(error))
    except PrimusError as error:
        with suppress(PrimusError):  # its pods end by their own deadline
            cluster.delete("Workflow", name, grace_seconds=0)
        return unexamined(look.nodes, f"the examination did not come to its end: {error}")
    reports = _reports(ended, look.nodes)
    keep_verdicts(resolved, tuple(report for report in reports if report.at), name)
    return reports


def unexamined(nodes: Iterable[str], why: str) -> tuple[GateReport, ...]:
    """Reports of nodes about which nothing was found out."""
    return tuple(
        GateReport(node, "unknown", [{"check": "examination", "verdict": "unknown", "evidence": why}]) for node in nodes
    )


def _ended(cluster: Cluster, manifest: Manifest, run: str) -> Manifest:
    """The examination's workflow after its end.

    Raises:
        PrimusError: it was refused, went away, or is not wanted any more.
        Unavailable: it did not end in time.
    """
    here = world()
    limit = manifest["spec"]["activeDeadlineSeconds"] + SLACK_SECONDS
    deadline = here.now() + limit
    created = False
    while here.now() < deadline:
        here.fencing  # noqa: B018 - raises Fenced when another driver took over meanwhile
        try:
            found = _submitted(cluster, manifest, created=created)
            created = True
            if _is_ended(found) or (found := _watched(cluster, manifest["metadata"]["name"], run)) is not None:
                return found
        except Transient as error:
            threading.Event().wait(error.retry_after_seconds)
        if _stop_asked(run):
            raise Permanent("a person asked for the end")
    raise Unavailable(f"no end within {limit:g} s")


def _submitted(cluster: Cluster, manifest: Manifest, *, created: bool) -> Manifest:
    found = cluster.get("Workflow", manifest["metadata"]["name"])
    if found is None and created:
        raise Permanent("somebody deleted it")
    refuse_foreign(found, our_ledger())
    return found or cluster.apply(manifest)


def _watched(cluster: Cluster, name: str, run: str) -> Manifest | None:
    for event in cluster.watch("Workflow", {labels.RUN: run}, timeout_seconds=LOOK_SECONDS):
        if event.object.get("metadata", {}).get("name") == name and _is_ended(event.object):
            return event.object
    return None


def _is_ended(workflow: Manifest) -> bool:
    return workflow.get("status", {}).get("phase") in ENDED


def _stop_asked(run: str) -> bool:
    try:
        return any(item.kind == "stop" for item in world().ledger.requests(run, open_only=True))
    except Unavailable:
        return False


def _reports(workflow: Manifest, nodes: tuple[str, ...]) -> tuple[GateReport, ...]:
    """One report a node."""
    said = reports_by_node(workflow_pods(workflow, EXAMINE))
    why = workflow.get("status", {}).get("message") or "the examination says nothing about this node"
    missing = {report.node: report for report in unexamined(nodes, why)}
    return tuple(said.get(node) or missing[node] for node in nodes)


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
    return next((text for step in steps_of(workflow) if (text := step.outputs.get("collected"))), "")


def _keep(attempt: AttemptRecord, text: str) -> str:
    here = world()
    try:
        collected = json.loads(text or "{}")
        rows = [StepRow(int(row[0]), float(row[1]), _number(row[2]), _number(row[3])) for row in collected["steps"]]
    except (ValueError, KeyError, TypeError, IndexError):
        return "what was collected is unreadable"
    here.ledger.add_marks(here.fencing, moments(attempt.run, attempt.number, collected.get("moments")))
    for record in proven(attempt, collected.get("checkpoints"), here.ledger.checkpoints(attempt.run)):
        here.ledger.add_checkpoint(here.fencing, record)
    if rows:
        since = min(row.at for row in rows) - OTHER_RANK_SECONDS
        fresh = lacking(rows, here.ledger.steps(attempt.run, attempt.number, since))
        here.ledger.add_steps(attempt.run, attempt.number, fresh, fencing=here.fencing)
    last = max((row.step for row in rows), default=attempt.last_step)
    if last is not None and (attempt.last_step is None or last > attempt.last_step):
        here.ledger.update_attempt(here.fencing, attempt.run, attempt.number, last_step=last)
    return f"{len(rows)} steps, last {last}"


def proven(attempt: AttemptRecord, told: Any, known: Sequence[CheckpointRecord]) -> list[CheckpointRecord]:
    """Proofs in the run's folder that the ledger does not have: of the last save nobody may have been told.

    `told` are rows of `[step, path, at, verdict, why, bytes, format]`; what is none is left out.
    """
    last = {(item.path, item.step): item for item in standing(known)}
    found: list[CheckpointRecord] = []
    for row in cast("list[Any]", told) if isinstance(told, list) else []:
        try:
            step, path, at, verdict, why, size, form = row
            record = CheckpointRecord(attempt.run, int(step), str(path), attempt.number, float(at),
                                      VerdictWord(verdict), str(why), int(size), str(form))  # fmt: skip
        except (ValueError, TypeError):
            continue
        before = last.get((record.path, record.step))
        if before is None or (before.at < record.at and before.verdict is not record.verdict):
            found.append(record)
    return found


def lacking(rows: Sequence[StepRow], known: Sequence[StepRow]) -> list[StepRow]:
    """Steps of one rank that are not in the ledger yet.

    Another rank may have told a step, at its own time: a step that this one has done for the second time is lacking
    only where fewer than two are known.
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
