"""The summary of a run's account: made once, when the run has ended, so that nobody unpacks its steps again."""

from __future__ import annotations

from flows.decisions.summary import summarise
from profiles.resolve import Resolved
from tasks.ledger import Ledger
from workflows.summary import RunSummary


def summary_of(ledger: Ledger, run: str, now: float) -> RunSummary:
    """The account of a run until its end, or until `now`; kept where it has ended.

    Reads every step of the run: about ten seconds for a million of them.

    Raises:
        NotFound: no such run.
        Unavailable: the ledger does not answer.
    """
    story = ledger.story(run)
    steps = {attempt.number: ledger.steps(run, attempt.number) for attempt in story.attempts}
    summary = summarise(story, steps, Resolved.model_validate(story.run.resolved), now)
    if story.run.ended_at is not None:
        ledger.keep_summary(summary)
    return summary
