"""What goes to the Prefect server's pages: events and run pages, worded by decisions and sent by tasks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from flows.decisions.diagnosis.step_times import StepTimes
from flows.decisions.views.approvals import approval_sheet
from flows.decisions.views.events import event_of
from flows.decisions.views.run_page import moments, page_of
from profiles.resolve import Resolved
from tasks.ledger.ledger import Ledger
from tasks.prefect.events import Outbox
from tasks.prefect.run_page import Writer, pages_kept


def outbox(ledger: Ledger) -> Outbox:
    """The sender of the ledger's events."""
    return Outbox(ledger, event_of, approval_sheet)


def event_hook(ledger: Ledger) -> Callable[[], None]:
    """A function that a loop calls as often as it likes: sends events, raises nothing while the server is away."""
    box = outbox(ledger)

    def send() -> None:
        box.send()

    return send


def publish_page(run: str, resolved: Resolved) -> AbstractContextManager[None]:
    """Inside the block this flow run shows where the run stands: progress, page, tables, questions, log."""
    return pages_kept(run, Writer(partial(page_of, resolved), moments, StepTimes))
