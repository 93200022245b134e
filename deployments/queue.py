"""`primus queue`: what waits and what runs, in which order, what blocks each, and how much of the quota is used."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from deployments.edge import GOOD, out, out_json
from deployments.hold_view import reason_document
from deployments.tables import table
from flows.decisions.queueing import Entry, entries
from flows.decisions.spans import age
from flows.decisions.status import timestamp
from profiles.load import load_cluster
from tasks.clusters import open_cluster
from tasks.looking import look_at_line
from tasks.opening import localised
from tasks.settings import Settings
from workflows.sight import ClusterQueueSight, ConditionFacts, QueueSight

Json = dict[str, Any]


def show_queue(cluster: str, *, as_json: bool) -> int:
    """What waits and what runs on a cluster.

    Raises:
        ProfileError: no such cluster profile.
        Unavailable: the cluster does not answer.
    """
    settings = Settings.from_environment(os.environ)
    profile = localised(load_cluster(cluster or settings.cluster), settings.home)
    sight, now = look_at_line(open_cluster(profile, settings.home), profile), time.time()
    rows = entries(sight, now)
    if as_json:
        out_json(document(profile.name, sight, rows, now))
    else:
        out(text(sight, rows, now))
    return GOOD


def document(cluster: str, sight: QueueSight, rows: Sequence[Entry], now: float) -> Json:
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


def _active(conditions: Sequence[ConditionFacts], stopped: str) -> bool | None:
    """None: the queue does not say."""
    if stopped:
        return False
    return next((item.status == "True" for item in conditions if item.type == "Active"), None)


def _queue(queue: ClusterQueueSight) -> Json:
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


def text(sight: QueueSight, rows: Sequence[Entry], now: float) -> str:
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
