"""`primus why`, `queue` and `doctor`: what blocks a run, what waits and runs, whether the cluster is fit."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from deployments.cli.app import All, AsJson, ClusterName, Run, app
from deployments.exit_codes import FAILED, GOOD, UNKNOWN, out, out_json
from deployments.processes.driver import driver_of
from deployments.screen.tables import folded, table
from deployments.screen.views import reason_document, reason_lines
from flows.decisions.explain.doctor import Check, checkup, overall
from flows.decisions.explain.queue import Entry, entries
from flows.decisions.explain.reasons import Explanation
from flows.decisions.explain.why import explain
from flows.decisions.text import age, timestamp
from profiles.errors import PrimusError
from profiles.loading.load import load_cluster
from profiles.resolve import Resolved
from profiles.vocabulary import FINISHED, VerdictWord
from tasks.clusters import open_cluster
from tasks.ledger.ledger import Ledger
from tasks.observe.checkup import look_over
from tasks.observe.run import read_attempt, read_queues
from tasks.runs.open import resolved_of
from tasks.settings import Settings, localised
from workflows.model.manifest import Condition
from workflows.model.queues import ClusterQueue
from workflows.model.records import Story
from workflows.model.why import ClusterSight, QueueSight, RunSight
from workflows.programs.progress.pace import pace_of

Json = dict[str, Any]


@app.command("why")
def show_why(run: Run, *, as_json: AsJson = False) -> int:
    """Why a run waits, where it stands, what blocks it: from the ledger and the cluster's own objects.

    Exit code 0: the answer is known; 3: it is not, since the cluster or the ledger does not answer.

    Example: primus why demo-1
    """
    settings = Settings.from_environment(os.environ)
    ledger = Ledger(settings.ledger_url)
    try:
        sight = read_run(run, settings, ledger)
    finally:
        ledger.close()
    explanation = explain(sight)
    if as_json:
        out_json(why_document(sight, explanation))
    else:
        out(why_text(sight, explanation))
    return UNKNOWN if explanation.state == "unknown" else GOOD


@app.command("queue")
def show_queue(cluster: ClusterName = "", *, as_json: AsJson = False) -> int:
    """What waits and what runs on a cluster: place, priority, age, GPUs, what blocks each, and the quotas.

    Example: primus queue --cluster local
    """
    settings = Settings.from_environment(os.environ)
    profile = localised(load_cluster(cluster or settings.cluster), settings.home)
    sight, now = read_queues(open_cluster(profile, settings.home), profile), time.time()
    rows = entries(sight, now)
    if as_json:
        out_json(queue_document(profile.name, sight, rows, now))
    else:
        out(queue_text(sight, rows, now))
    return GOOD


@app.command("doctor")
def show_doctor(cluster: ClusterName = "", *, every: All = False, as_json: AsJson = False) -> int:
    """Whether a cluster is fit for runs: versions, kinds, rights, GPUs, storage, clock, controllers; what to do.

    Exit code 0: everything passed; 1: something failed; 3: something could not be found out.

    Example: primus doctor --cluster local
    """
    # 0 where everything passed, 1 where something failed, 3 where something could not be found out.
    settings = Settings.from_environment(os.environ)
    if not settings.home.exists():
        settings.make_home()
    profile = localised(load_cluster(cluster or settings.cluster), settings.home)
    checks = checkup(look_over(profile, settings.home, Ledger(settings.ledger_url)))
    verdict = overall(checks)
    if as_json:
        rows = [{**vars(item), "verdict": str(item.verdict)} for item in checks]
        out_json({"cluster": profile.name, "engine": profile.engine, "verdict": str(verdict), "checks": rows})
    else:
        out(doctor_text(profile.name, checks, every=every))
    return {VerdictWord.PASS: GOOD, VerdictWord.FAIL: FAILED}.get(verdict, UNKNOWN)


def read_run(run: str, settings: Settings, ledger: Ledger) -> RunSight:
    """Everything that explains the run's state; a cluster that does not answer is part of it."""
    story, now = ledger.story(run), time.time()
    resolved = resolved_of(story.run)
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
        pace=pace_of(((row.step, row.at) for row in steps), now),
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
        return read_attempt(cluster, resolved, story.attempt, out_of_service), ""
    except PrimusError as error:
        return None, str(error)


def why_document(sight: RunSight, explanation: Explanation) -> Json:
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
        "steps_per_second": None if sight.pace is None else round(sight.pace.steps_per_second, 3),
        "run_state": str(story.run.state),
        "automation": "paused" if story.paused else "on",
        "mode": str(story.run.mode),
        "cluster": sight.resolved.cluster.name,
        "queue": workload.queue if workload else None,
        "driver": {"host": sight.driver.host, "pid": sight.driver.pid, "alive": sight.driver.alive},
    }


def why_text(sight: RunSight, explanation: Explanation) -> str:
    """The same for people: one line, the evidence, what to do, what else holds it."""
    first, *others = explanation.reasons
    since = "" if explanation.since is None else f" (for {age(sight.now - explanation.since)})"
    lines = [f"{sight.story.run.name}: {explanation.state}: {first.sentence}{since}", *reason_lines(first, sight.now)]
    for reason in others:
        lines += ["", f"also: {reason.sentence}", *reason_lines(reason, sight.now)]
    if explanation.notes:
        lines += ["", *(f"note: {note}" for note in explanation.notes)]
    return "\n".join(lines)


def queue_document(cluster: str, sight: QueueSight, rows: Sequence[Entry], now: float) -> Json:
    """The document of `primus queue --json`."""
    return {
        "cluster": cluster,
        "source": "Workload" if sight.workloads or sight.local_queues else "JobSet",
        "waiting": sum(row.state == "waiting" for row in rows),
        "running": sum(row.state == "running" for row in rows),
        "items": [_row(row, now) for row in rows],
        "queues": [
            {
                "queue": item.name,
                "cluster_queue": item.cluster_queue,
                "pending": item.pending,
                "admitted": item.admitted,
                "active": _active(item.conditions, item.stopped),
            }
            for item in sight.local_queues
        ],
        "cluster_queues": [_queue(item) for item in sight.cluster_queues],
        "unread": [{"kind": kind, "why": why} for kind, why in sight.unread],
    }


def _row(row: Entry, now: float) -> Json:
    return {
        "name": row.name,
        "run": row.run or None,
        "attempt": row.attempt or None,
        "state": row.state,
        "queue": row.queue or None,
        "cluster_queue": row.cluster_queue or None,
        "position": row.position or None,
        "priority": row.priority,
        "priority_class": row.priority_class or None,
        "created_at": timestamp(row.created_at),
        "age_seconds": None if row.created_at is None else round(max(0.0, now - row.created_at), 3),
        "gpus": row.gpus,
        "pods": row.pods,
        "reason": str(row.reasons[0].hold) if row.reasons else None,
        "why": row.reasons[0].sentence if row.reasons else "",
        "reasons": [reason_document(reason) for reason in row.reasons],
    }


def _active(conditions: Sequence[Condition], stopped: str) -> bool | None:
    """None: the queue does not say."""
    if stopped:
        return False
    return next((item.status == "True" for item in conditions if item.type == "Active"), None)


def _queue(queue: ClusterQueue) -> Json:
    return {
        "cluster_queue": queue.name,
        "cohort": queue.cohort or None,
        "strategy": queue.strategy,
        "pending": queue.pending,
        "admitted": queue.admitted,
        "active": _active(queue.conditions, queue.stopped),
        "quotas": [
            {
                "flavor": item.flavor,
                "resource": item.resource,
                "nominal": item.nominal,
                "used": item.used,
                "reserved": item.reserved,
                "borrowed": item.borrowed,
                "borrowing_limit": item.borrowing_limit or None,
            }
            for item in queue.quotas
        ],
    }


def queue_text(sight: QueueSight, rows: Sequence[Entry], now: float) -> str:
    """The same for people."""
    lines = [_headline(rows)]
    if rows:
        cells = [
            {
                "queue": row.queue or "-",
                "place": row.position or None,
                "name": row.name,
                "state": row.state,
                "priority": row.priority,
                "age": "" if row.created_at is None else age(now - row.created_at),
                "gpus": row.gpus,
                "pods": row.pods,
            }
            for row in rows
        ]
        lines += ["", table(cells, ("queue", "place", "name", "state", "priority", "age", "gpus", "pods"))]
    for row in rows:
        for reason in row.reasons:
            lines += (
                ["", f"{row.name}: {reason.sentence}", f"  do: {reason.advice}"]
                if reason.advice
                else [
                    "",
                    f"{row.name}: {reason.sentence}",
                ]
            )
    quotas = [{"cluster queue": queue.name, **vars(item)} for queue in sight.cluster_queues for item in queue.quotas]
    if quotas:
        columns = ("cluster queue", "flavor", "resource", "used", "nominal", "borrowed", "borrowing_limit")
        lines += ["", table(quotas, columns)]
    lines += [f"note: {kind} could not be read: {why}" for kind, why in sight.unread]
    return "\n".join(lines)


def _headline(rows: Sequence[Entry]) -> str:
    waiting = [row for row in rows if row.state in ("waiting", "suspended")]
    running = [row for row in rows if row not in waiting]
    if not rows:
        return "nothing waits and nothing runs"
    return (
        f"{len(waiting)} wait for {sum(row.gpus for row in waiting)} GPUs, "
        f"{len(running)} hold {sum(row.gpus for row in running)}"
    )


def doctor_text(cluster: str, checks: tuple[Check, ...], *, every: bool = False) -> str:
    """The same for people: one line, the checks, then what to do; many good ones are only counted."""
    bad = [item for item in checks if item.verdict is not VerdictWord.PASS]
    shown, count = folded(checks, lambda item: item.verdict is VerdictWord.PASS, every=every)
    more = "; --all shows each" if count else ""
    lines = [f"{cluster}: {overall(checks)}: {len(checks) - len(bad)} of {len(checks)} checks passed{more}"]
    if shown:
        lines += ["", table([vars(item) for item in shown], ("verdict", "check", "measured"))]
    for item in bad:
        lines += ["", f"{item.check}: {item.measured}", f"  do: {item.advice}"]
    return "\n".join(lines)
