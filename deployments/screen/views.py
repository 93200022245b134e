"""The status of a run, its incidents and the reasons why it waits: as JSON and as lines for a terminal."""

from __future__ import annotations

import time
from typing import Any

from deployments.processes.driver import driver_of
from deployments.screen.tables import table
from flows.decisions.accounting.report import goodput_of
from flows.decisions.explain.reasons import Reason, Witness
from flows.decisions.recovery.incarnations import lines as incarnation_lines
from flows.decisions.recovery.straggler import sentences
from flows.decisions.text import age, blame, timestamp
from flows.decisions.views.status import (
    Surroundings,
    act_text,
    note_sentences,
    said_by,
    status_of,
    step_words,
    tag_words,
    troubles_of,
)
from profiles.errors import PrimusError
from profiles.resolve import Resolved
from profiles.vocabulary import FINISHED
from tasks.ledger.ledger import Ledger
from tasks.runs.open import resolved_of
from tasks.settings import Settings
from workflows import labels
from workflows.model.cluster import Pod, pod_of
from workflows.model.records import StepRow, Story

Json = dict[str, Any]
ACTS = 10
"""The newest that a status shows; `--json` and `primus ledger` have more."""


def status_document(run: str, settings: Settings, ledger: Ledger) -> Json:
    """The document of `primus status RUN --json`.

    Raises:
        NotFound: no such run.
    """
    story = ledger.story(run)
    resolved = resolved_of(story.run)
    by_attempt = steps_by_attempt(story, ledger)
    steps, now = [row for number in sorted(by_attempt) for row in by_attempt[number]], time.time()
    around = Surroundings(
        now=now,
        driver=driver_of(run, story.lease, settings.home, now),
        pods=() if story.run.state in FINISHED else _pods(story, resolved, settings),
        steps=steps,
        by_attempt=by_attempt,
        goodput=goodput_of(story, by_attempt, resolved.gpus, now),
    )
    return status_of(story, resolved, around)


def steps_by_attempt(story: Story, ledger: Ledger) -> dict[int, list[StepRow]]:
    """Completed steps of each attempt."""
    return {attempt.number: ledger.steps(story.run.name, attempt.number) for attempt in story.attempts}


def _pods(story: Story, resolved: Resolved, settings: Settings) -> tuple[Pod, ...]:
    from tasks.clusters import open_cluster

    attempt, role = story.attempt, resolved.run.deciding_role
    if attempt is None:
        return ()
    ours = {labels.RUN: attempt.run, labels.ATTEMPT: str(attempt.number)}
    try:
        pods = open_cluster(resolved.cluster, settings.home).list("Pod", ours)
    except PrimusError:
        return ()  # the cluster is away; what the ledger knows is shown
    return tuple(item.ranked(role) for pod in pods if (item := pod_of(pod)).role)


def status_text(document: Json) -> str:
    """The status of a run for people."""
    speed = f", {document['steps_per_second']} steps/s" if document["steps_per_second"] else ""
    eta = f", {document['eta_seconds']:.0f} s to go" if document["eta_seconds"] else ""
    loss = "" if document["loss"] is None else f", loss {document['loss']:.4f}"
    lines = [
        f"{document['run']}  {document['state']}  ({document['why']})",
        f"{step_words(document)}{loss}{speed}{eta}; durable checkpoint: "
        + ("none yet" if document["last_durable_step"] is None else f"step {document['last_durable_step']}"),
        f"profile {document['profile']} on {document['cluster']}, mode {document['mode']}, automation "
        + document["automation"]
        + (f" ({document['paused_why']})" if document["paused_why"] else ""),
    ]
    if document["owner"] or document["tags"]:
        tags = f", tags {tag_words(document['tags'])}" if document["tags"] else ""
        lines[-1] += f", owner {document['owner'] or 'not known'}{tags}"
    if document["driver_end"]:
        lines += [document["driver_end"], f"when that is mended, go on: primus resume {document['run']}"]
    lines += sentences(document)
    for asked in document["approvals"]:
        lines += _question_lines(asked)
    pods = [{"role": role["role"], **pod} for role in document["roles"] for pod in role["pods"]]
    if pods:
        lines += ["", table(pods, ("role", "name", "node", "ranks", "state", "exit_code", "diagnosis"))]
    if document["attempts"]:
        columns = ("number", "outcome", "resumed_from_step", "first_step", "last_step", "restarts_in_place", "nodes")
        rows = [{**row, "nodes": " ".join(row["nodes"])} for row in document["attempts"]]
        lines += ["", table(rows, columns)]
        lines += incarnation_lines(document["attempts"])
        lines += [f"{row['number']}: {row['link']}" for row in rows if "link" in row]
    lines += incident_text(document)
    if document["acts"]:
        lines += ["", "what people did:", *(f"  {act_text(row)}" for row in document["acts"][-ACTS:])]
    if document["goodput"]:
        lines += ["", f"goodput: {document['goodput'].get('ettr', 0):.3f} of the wall time was productive"]
    return "\n".join(lines)


def _question_lines(asked: Json) -> list[str]:
    """A question that waits, with the commands that answer it; or the answer and who gave it."""
    if asked["state"] == "waiting":
        commands = f'primus approve {asked["id"]} --why "..."   or   primus deny {asked["id"]} --why "..."'
        return ["", f"waits for you until {asked['expires_at']}: {asked['question']}", f"  {commands}"]
    who = said_by(asked, "answered_")
    by = f" {who} at {asked['answered_at']}" if who else ""
    return ["", f"{asked['question']}", f"  {asked['state']}{by}: {asked['why']}"]


def incident_text(document: Json) -> list[str]:
    """The incidents of a status or a report in full, and in a line for each kind what was only told."""
    lines = [line for incident in troubles_of(document["incidents"]) for line in ("", *incident_lines(incident))]
    notes = note_sentences(document["incidents"])
    if notes:
        every = f"only told, nothing is to be done (each: primus incidents --run {document['run']}):"
        lines += ["", every, *(f"  {text}" for text in notes)]
    return lines


def incident_lines(incident: Json) -> list[str]:
    """An incident in a few lines: what, who, what we did, why, and what would have changed it."""
    blamed = ", ".join(blame(item) for item in incident["culprits"])
    back = incident["resumed_after_seconds"]
    lines = [
        f"{incident['id']}: {incident['class']} ({incident['confidence']:.2f}), seen as {incident['signal']}",
        f"  blamed: {blamed or 'nobody'}; noticed after {incident['detected_after_seconds']:.2f} s"
        + ("" if back is None else f"; first step again after {back:.2f} s"),
        f"  {incident['action']}: {incident['why']}",
    ]
    if incident["over_at"]:
        lines.append(f"  over since {incident['over_at']}")
    if incident["would_change"]:
        lines.append(f"  otherwise: {incident['would_change']}")
    return lines


def reason_document(reason: Reason) -> Json:
    """One reason: `reason`, `sentence`, `advice`, and the object that says so."""
    return {
        "reason": str(reason.hold),
        "sentence": reason.sentence,
        "advice": reason.advice,
        "evidence": [
            {
                "kind": item.kind,
                "name": item.name,
                "condition": item.condition,
                "reason": item.reason,
                "message": item.message,
                "at": timestamp(item.at),
            }
            for item in reason.witnesses
        ],
    }


def reason_lines(reason: Reason, now: float) -> list[str]:
    """The object that says so, and what to do."""
    lines = [f"  {_witness(item, now)}" for item in reason.witnesses]
    return [*lines, f"  do: {reason.advice}"] if reason.advice else lines


def _witness(item: Witness, now: float) -> str:
    when = "" if item.at is None else f"  {age(now - item.at)} ago"
    told = ": ".join(" ".join(part.split()) for part in (item.reason, item.message) if part)
    return "  ".join(part for part in (f"{item.kind} {item.name}", item.condition, told) if part) + when
