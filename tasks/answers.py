"""Answers that people give on the Prefect server's pages."""

from __future__ import annotations

from prefect.context import FlowRunContext

from profiles.errors import Conflict
from tasks.world import touch, world
from workflows.records import ApprovalRecord

UNKNOWN_PERSON = "prefect"
"""Who answers where the server knows nobody: it asks nobody for a name by default."""


def person() -> str:
    """Who asked for this flow run, as far as the server knows."""
    context = FlowRunContext.get()
    made_by = context.flow_run.created_by if context is not None and context.flow_run is not None else None
    return (made_by.display_value if made_by is not None else None) or UNKNOWN_PERSON


@touch("answers {approval}")
def answer(approval: str, *, approved: bool, why: str, by: str) -> ApprovalRecord:
    """Write an answer into the ledger; the very same one again changes nothing.

    Raises:
        NotFound: no such question.
        Conflict: it was answered before, or its time was up.
    """
    here = world()
    before = here.ledger.approval(approval)
    given = here.ledger.answer(approval, approved, by, why, here.now())
    if before is not None and before.state != "waiting" and (given.answered_by, given.why) != (by, why):
        raise Conflict(f"approval {approval} is {given.state} by {given.answered_by} already: {given.why}")
    return given
