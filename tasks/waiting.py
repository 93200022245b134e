"""Waiting for people: an answer, a request, the end of a pause. The ledger is looked at, nothing is touched."""

from __future__ import annotations

import threading

from tasks.world import touch, world
from workflows.records import ApprovalRecord

LOOK_SECONDS = 0.25
"""Between two looks at the ledger's version: below what a person notices."""


@touch("waits for an answer: {approval.question}")
def await_answer(approval: ApprovalRecord) -> ApprovalRecord:
    """The approval once it was answered, or expired by the clock (the safe default)."""
    here = world()
    while True:
        version = here.ledger.changes(approval.run)
        asked = here.ledger.approval(approval.id) or approval
        if asked.state != "waiting":
            return asked
        if here.now() >= asked.expires_at:
            return here.ledger.expire(asked.id, here.now())
        _wait_for_change(approval.run, version, until=asked.expires_at)


@touch("rests: {why}")
def rest(run: str, why: str, version: int) -> None:
    """Return when the ledger's record of the run has changed since `version`."""
    _wait_for_change(run, version, until=None)


@touch("waits before {run} is tried again")
def wait_until(run: str, until: float) -> None:
    """Return at `until` (Unix seconds), or earlier when a person changed something."""
    _wait_for_change(run, world().ledger.changes(run), until=until)


def _wait_for_change(run: str, version: int, until: float | None) -> None:
    here = world()
    quiet = threading.Event()
    while here.ledger.changes(run) == version and (until is None or here.now() < until):
        here.fencing  # noqa: B018 - raises Fenced when another driver took over meanwhile
        quiet.wait(LOOK_SECONDS)
