"""`primus why RUN`: why it waits, where it stands, what blocks it: a line, then who says so, then what to do."""

from __future__ import annotations

import os
import time
from typing import Any

from deployments.driver import driver_of
from deployments.edge import GOOD, UNKNOWN, out, out_json
from deployments.hold_view import reason_document, reason_lines
from flows.decisions.hold import Explanation
from flows.decisions.spans import age
from flows.decisions.status import steps_per_second, timestamp
from flows.decisions.waiting import explain
from profiles.errors import PrimusError
from profiles.resolve import Resolved
from profiles.vocabulary import FINISHED
from tasks.clusters import open_cluster
from tasks.ledger import Ledger
from tasks.looking import look
from tasks.settings import Settings
from workflows.records import Story
from workflows.sight import ClusterSight, RunSight

Json = dict[str, Any]


def show_why(run: str, *, as_json: bool) -> int:
    """Why a run stands where it stands.

    Raises:
        NotFound: no such run.
        Unavailable: the ledger does not answer.
    """
    settings = Settings.from_environment(os.environ)
    ledger = Ledger(settings.ledger_url)
    try:
        sight = see(run, settings, ledger)
    finally:
        ledger.close()
    explanation = explain(sight)
    if as_json:
        out_json(document(sight, explanation))
    else:
        out(text(sight, explanation))
    return UNKNOWN if explanation.state == "unknown" else GOOD


def see(run: str, settings: Settings, ledger: Ledger) -> RunSight:
    """Everything that says why the run stands where it stands; a cluster that does not answer is part of that."""
    story, now = ledger.story(run), time.time()
    resolved = Resolved.model_validate(story.run.resolved)
    attempt = story.attempt
    steps = [] if attempt is None else ledger.steps(run, attempt.number)
    cluster, away = (None, "") if story.run.state in FINISHED else _cluster(story, resolved, settings, ledger)
    return RunSight(
        now=now,
        story=story,
        resolved=resolved,
        driver=driver_of(run, story.lease, settings.home, now),
        cluster=cluster,
        away=away,
        step=steps[-1].step if steps else (attempt.last_step if attempt else None),
        last_step_at=steps[-1].at if steps else (attempt.last_step_at if attempt else None),
        steps_per_second=steps_per_second(steps, now),
    )


def _cluster(story: Story, resolved: Resolved, settings: Settings, ledger: Ledger) -> tuple[ClusterSight | None, str]:
    """What the cluster has of the newest attempt, or why it does not say."""
    if story.attempt is None:
        return None, ""
    out_of_service = {
        item.node: item.why for item in ledger.nodes(resolved.cluster.name) if item.state == "quarantined"
    }
    try:
        cluster = open_cluster(resolved.cluster, settings.home)
        return look(cluster, resolved, story.attempt, out_of_service), ""
    except PrimusError as error:
        return None, str(error)


def document(sight: RunSight, explanation: Explanation) -> Json:
    """The document of `primus why RUN --json`."""
    story, first = sight.story, explanation.reasons[0]
    workload = sight.cluster.workload if sight.cluster else None
    return {
        "run": story.run.name,
        "state": explanation.state,
        "reason": str(first.hold),
        "why": first.sentence,
        "advice": first.advice,
        "since": timestamp(explanation.since),
        "since_seconds": None if explanation.since is None else round(max(0.0, sight.now - explanation.since), 3),
        "reasons": [reason_document(reason) for reason in explanation.reasons],
        "notes": list(explanation.notes),
        "attempt": story.attempt.number if story.attempt else None,
        "step": sight.step,
        "steps": sight.resolved.run.steps or None,
        "steps_per_second": sight.steps_per_second,
        "run_state": str(story.run.state),
        "automation": "paused" if story.paused else "on",
        "mode": str(story.run.mode),
        "cluster": sight.resolved.cluster.name,
        "queue": workload.queue if workload else None,
        "driver": {"host": sight.driver.host, "pid": sight.driver.pid, "alive": sight.driver.alive},
    }


def text(sight: RunSight, explanation: Explanation) -> str:
    """The same for people: one line, the evidence, what to do, what else holds it."""
    first, *others = explanation.reasons
    since = "" if explanation.since is None else f" (for {age(sight.now - explanation.since)})"
    lines = [f"{sight.story.run.name}: {explanation.state}: {first.sentence}{since}", *reason_lines(first, sight.now)]
    for reason in others:
        lines += ["", f"also: {reason.sentence}", *reason_lines(reason, sight.now)]
    if explanation.notes:
        lines += ["", *(f"note: {note}" for note in explanation.notes)]
    return "\n".join(lines)
