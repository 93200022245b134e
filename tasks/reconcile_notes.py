"""Findings in the ledger: opened once, touched now and then, closed when they are over; and what people say to them."""

from __future__ import annotations

from dataclasses import replace

from tasks.world import world
from workflows.monitored import CursorRecord, FindingRecord
from workflows.node_sight import watcher_of
from workflows.records import ApprovalRecord

TOUCH_SECONDS = 60.0
"""A finding that stands is written again so often: a thousand of them cost 17 writes a second."""


def standing(cluster: str) -> dict[str, FindingRecord]:
    """The open findings of a cluster, by kind and subject."""
    return {f"{item.kind}/{item.subject}": item for item in world().ledger.findings(cluster)}


def opened(cluster: str, record: FindingRecord) -> FindingRecord:
    """The finding as it stands in the ledger; one that is open already is returned as it is."""
    identity = f"{cluster}/{record.kind}/{record.subject}@{record.first_at:.0f}"
    return world().ledger.open_finding(replace(record, id=identity, cluster=cluster))


def touched(record: FindingRecord, now: float) -> FindingRecord:
    """It is still seen."""
    if now - record.last_at < TOUCH_SECONDS:
        return record
    return world().ledger.open_finding(replace(record, last_at=now))


def told(record: FindingRecord, action: str) -> None:
    """Write down what came of it."""
    world().ledger.tell_finding(record.id, action, world().now())


def close(record: FindingRecord) -> None:
    """It is over."""
    world().ledger.close_finding(record.id, world().now())


def ask_about(record: FindingRecord, question: str, seconds: float) -> ApprovalRecord:
    """Ask a person whether what the finding wants may be done."""
    here, run = world(), watcher_of(record.cluster)
    now = here.now()
    asked = ApprovalRecord(f"{record.id}-approval", run, record.id, question, "waiting", now, now + seconds)
    return here.ledger.ask(None, asked)


def answer_of(record: FindingRecord) -> ApprovalRecord | None:
    """What a person said; None: nobody was asked."""
    return world().ledger.approval(f"{record.id}-approval")


def beat(name: str) -> None:
    """Write that a loop turns."""
    now = world().now()
    world().ledger.move_cursor(name, int(now), now)


def last_beat(name: str) -> CursorRecord | None:
    """When a loop last turned; None: never."""
    return world().ledger.cursor(name)
