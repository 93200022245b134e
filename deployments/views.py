"""Runs as tables and lines for a terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from deployments.driver import driver_of
from flows.decisions.report import goodput_of
from flows.decisions.status import Surroundings, status_of
from profiles.errors import PrimusError
from profiles.resolve import Resolved
from profiles.vocabulary import FINISHED
from tasks.facts import pod_facts
from tasks.ledger import Ledger
from tasks.settings import Settings
from workflows import labels
from workflows.evidence import PodFacts
from workflows.records import StepRow, Story

Json = dict[str, Any]


def status_document(run: str, settings: Settings, ledger: Ledger) -> Json:
    """The document of `primus status RUN --json`.

    Raises:
        NotFound: no such run.
    """
    story = ledger.story(run)
    resolved = Resolved.model_validate(story.run.resolved)
    by_attempt = steps_by_attempt(story, ledger)
    steps, now = [row for number in sorted(by_attempt) for row in by_attempt[number]], time.time()
    around = Surroundings(
        now=now,
        driver_alive=driver_of(run, story.lease, settings.home, now).alive,
        pods=() if story.run.state in FINISHED else _pods(story, resolved, settings),
        steps=steps,
        goodput=goodput_of(story, by_attempt, resolved.gpus, now),
    )
    return status_of(story, resolved, around)


def steps_by_attempt(story: Story, ledger: Ledger) -> dict[int, list[StepRow]]:
    """Completed steps of each attempt."""
    return {attempt.number: ledger.steps(story.run.name, attempt.number) for attempt in story.attempts}


def _pods(story: Story, resolved: Resolved, settings: Settings) -> tuple[PodFacts, ...]:
    from tasks.clusters import open_cluster

    attempt, role = story.attempt, resolved.run.deciding_role
    if attempt is None:
        return ()
    ours = {labels.RUN: attempt.run, labels.ATTEMPT: str(attempt.number)}
    try:
        pods = open_cluster(resolved.cluster, settings.home).list("Pod", ours)
    except PrimusError:
        return ()  # the cluster is away; what the ledger knows is shown
    return tuple(item for pod in pods if (item := pod_facts(pod, role.processes_per_node, role.name)).role)


def run_row(story: Story) -> Json:
    """One run as a row of `primus runs`."""
    attempt = story.attempt
    return {
        "run": story.run.name,
        "state": str(story.run.state),
        "profile": story.run.profile,
        "cluster": story.run.cluster,
        "step": attempt.last_step if attempt else None,
        "attempts": len(story.attempts),
        "why": story.run.why,
    }


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Rows as aligned text; numbers stand to the right."""
    cells = [[str(name) for name in columns]]
    cells += [["" if row.get(name) is None else str(row.get(name)) for name in columns] for row in rows]
    widths = [min(60, max(len(line[index]) for line in cells)) for index in range(len(columns))]
    numeric = [all(isinstance(row.get(name), int | float | None) for row in rows) for name in columns]
    lines: list[str] = []
    for line in cells:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def status_text(document: Json) -> str:
    """The status of a run for people."""
    total = f" of {document['steps']}" if document["steps"] else ""
    speed = f", {document['steps_per_second']} steps/s" if document["steps_per_second"] else ""
    eta = f", {document['eta_seconds']:.0f} s to go" if document["eta_seconds"] else ""
    loss = "" if document["loss"] is None else f", loss {document['loss']:.4f}"
    lines = [
        f"{document['run']}  {document['state']}  ({document['why']})",
        f"step {document['step']}{total}{loss}{speed}{eta}; durable checkpoint: {document['last_durable_step']}",
        f"profile {document['profile']} on {document['cluster']}, mode {document['mode']}, automation "
        + document["automation"],
    ]
    pods = [{"role": role["role"], **pod} for role in document["roles"] for pod in role["pods"]]
    if pods:
        lines += ["", table(pods, ("role", "name", "node", "ranks", "state", "exit_code", "diagnosis"))]
    if document["attempts"]:
        columns = ("number", "outcome", "resumed_from_step", "first_step", "last_step", "nodes")
        rows = [{**row, "nodes": " ".join(row["nodes"])} for row in document["attempts"]]
        lines += ["", table(rows, columns)]
        lines += [f"{row['number']}: {row['link']}" for row in rows if "link" in row]
    for incident in document["incidents"]:
        lines += ["", *incident_lines(incident)]
    if document["goodput"]:
        lines += ["", f"goodput: {document['goodput'].get('ettr', 0):.3f} of the wall time was productive"]
    return "\n".join(lines)


def _blamed(culprit: Json) -> str:
    rank = "" if culprit["rank"] is None else f"rank {culprit['rank']}"
    return f"{culprit['node']} ({rank})" if culprit["node"] and rank else culprit["node"] or rank


def incident_lines(incident: Json) -> list[str]:
    """An incident in a few lines: what, who, what we did, why, and what would have changed it."""
    blamed = ", ".join(_blamed(item) for item in incident["culprits"])
    back = incident["resumed_after_seconds"]
    lines = [
        f"{incident['id']}: {incident['class']} ({incident['confidence']:.2f}), seen as {incident['signal']}",
        f"  blamed: {blamed or 'nobody'}; noticed after {incident['detected_after_seconds']:.2f} s"
        + ("" if back is None else f"; first step again after {back:.2f} s"),
        f"  {incident['action']}: {incident['why']}",
    ]
    if incident["would_change"]:
        lines.append(f"  otherwise: {incident['would_change']}")
    return lines
