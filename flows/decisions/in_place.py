"""Restarts in place as the flow sees them: whether a gang whose rank failed is at its end, what was resumed. Pure."""

from __future__ import annotations

from flows.decisions.checkpoint import prove_resume
from profiles.run import RunProfile
from profiles.vocabulary import VerdictWord
from workflows.evidence import CoordinatorFacts
from workflows.gang_news import RestartInPlace
from workflows.records import IncidentRecord, Story

RESTART_SECONDS = 10.0
"""A gang that may be restarted in place, or is being, is left alone for so long. Launchers hold five seconds for the
coordinator's word, which takes one at most; then processes start, by fork or as any program does."""

SILENT_SECONDS = 1.5
"""Launchers are heard every second: one that is later than the others by more is silent."""
NODE_SECONDS = 90.0
"""Kubernetes calls a silent node not ready after 40 s."""
NO_PROGRESS = "no progress for"
"""How a coordinator begins to say why a gang hangs."""


def last_end(story: Story) -> IncidentRecord | None:
    """The newest incident but for those that its attempt lived on after; None: there was none."""
    ends = (item for item in reversed(story.incidents) if not item.went_on)
    return next(ends, None)


def broken(facts: CoordinatorFacts, now: float) -> bool:
    """Whether a rank has failed and nothing is left that haste could spoil.

    While the coordinator may still restart the ranks in place the gang is not at its end: it decides, in a second, and
    says so by a restart or by an order to stop. But a restart that brings nobody up is no life either.

    Args:
        facts: what the coordinator said last.
        now: Unix seconds, of the same clock as its `at`.
    """
    restarting = bool(facts.news.restarts) and facts.launched_at is None
    if not (facts.failed_ranks or restarting):
        return False
    if facts.failed_ranks and (facts.news.stopping or facts.news.left <= 0):
        return True
    since = facts.at if facts.failed_since is None else facts.failed_since
    return now - since >= RESTART_SECONDS


def hung(facts: CoordinatorFacts) -> str:
    """Why the gang counts as hung where its coordinator does nothing more about it; "": it does not.

    Either no right was lent, and a hang is only told; or the right is used up or in doubt, and the gang was told to
    stop because of it. While a launcher is silent as well, it may be its node that is lost: the cluster says so in
    less than a minute, and knows more.
    """
    news = facts.news
    if news.stopping:
        return news.stop_why if news.stop_why.startswith(NO_PROGRESS) else ""
    hang = news.hang
    if hang is None or not hang.confirmed or news.left > 0:
        return ""
    times = [at for _, _, at in facts.heard]
    silent = bool(times) and max(times) - min(times) > SILENT_SECONDS
    return "" if silent and hang.waited_seconds < NODE_SECONDS else hang.why


def started_over(facts: CoordinatorFacts, run: RunProfile) -> str:
    """Which restart in place did not go on from its checkpoint, and how that is known; "": all did, as far as known."""
    for restart in facts.news.restarts:
        proof, why = prove_resume(restart.resume_step, restart.first_step, run.checkpoint, run.progress.every_steps)
        if proof is VerdictWord.FAIL and not _further(restart, run.progress.every_steps) and not _joined(restart):
            return f"restart in place {restart.number}: {why}"
    return ""


def _joined(restart: RestartInPlace) -> bool:
    """A replica group that begins again may take its state from one that trained on: then it goes on further on."""
    first, resumed = restart.first_step, restart.resume_step or 0
    return restart.alone and first is not None and first > resumed


def _further(restart: RestartInPlace, every_steps: int) -> bool:
    """Nothing was lost: it went on from a newer checkpoint than was proven, as programs do that look for it themselves.

    What it cannot have is a step that the gang had not reached.
    """
    resumed, first, reached = restart.resume_step, restart.first_step, restart.step
    if resumed is None or first is None or reached is None:
        return False
    return resumed + every_steps < first <= reached + every_steps
