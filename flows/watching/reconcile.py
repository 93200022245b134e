"""Reconciling the ledger with the cluster, round by round: look, find, write down, act where that is allowed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from flows.decisions.monitoring.flow_runs import Tries, pause_before
from flows.decisions.monitoring.reconcile import (
    DriveAgain,
    Expire,
    Leave,
    MarkAgain,
    Reconciled,
    ReconcileFault,
    ReconcileFinding,
    Remove,
    Restraint,
    Tell,
    judged,
    reconcile,
    restrained_because,
    suspicious,
)
from flows.watching.nodes import NodeNotice
from profiles.cluster import ClusterProfile
from profiles.errors import PrimusError
from profiles.vocabulary import Mode
from tasks.context import world
from tasks.nodes.reconcile import (
    answer_of,
    ask_about,
    close,
    drive_again,
    let_lapse,
    mark_again,
    opened,
    remove,
    standing,
    tell_driver,
    told,
    touched,
)
from tasks.observe.reconcile import Looker, Scope
from workflows.model.runs import FindingRecord, Sight

FORGET_SECONDS = 600.0
"""What was done so long ago is done without a pause where it is found again."""


@dataclass(frozen=True)
class HandledFinding:
    """A finding, and what became of it in this round."""

    finding: ReconcileFinding
    outcome: str
    acted: bool
    """Something was done now, or is being done."""


@dataclass(frozen=True)
class Round:
    """What one round found and did."""

    handled: tuple[HandledFinding, ...] = ()
    young: tuple[ReconcileFinding, ...] = ()
    """What has not stood its time: nothing is done about it yet."""
    ripe_at: float | None = None
    """When the first of these will have."""
    away: tuple[str, ...] = ()
    """What did not answer: nothing is known of it."""


@dataclass
class Reconciler:
    """Round after round over one cluster."""

    profile: ClusterProfile
    mode: Mode
    tell: Callable[[NodeNotice], None]
    patience_seconds: float = 0.0
    """More time for whoever else reconciles this cluster."""

    def __post_init__(self) -> None:
        self._looker = Looker(self.profile, suspicious)
        self._first: dict[str, float] = {}
        self._open: dict[str, FindingRecord] | None = None
        self._tries: dict[str, Tries] = {}
        self._said: dict[str, str] = {}
        self._away: tuple[str, ...] = ()

    def take(self, scope: Scope) -> Round:
        """One round.

        Raises:
            Unavailable: the ledger does not answer; nothing was concluded.
            Fenced: another monitor has taken over.
        """
        if (right := world().right) is not None:
            right.fencing  # noqa: B018 - raises Fenced
        view = self._looker.look(scope)
        found = reconcile(view, self._first, self.patience_seconds)
        self._remember(found, view)
        if self._open is None:
            self._open = standing(self.profile.name)
        paused = frozenset(gang.run.name for gang in view.gangs if gang.paused)
        hold = Restraint(self.mode, world().ledger.everything_paused(), paused)
        dealt = tuple(self._deal(finding, hold, self._open) for finding in found.findings)
        self._close(found, view, self._open)
        self._tell_away(tuple(self._looker.away))
        return Round(dealt, found.young, found.ripe_at, self._away)

    def _remember(self, found: Reconciled, view: Sight) -> None:
        """When what was found was first seen; what this look could not see keeps its time."""
        unseen = {key: at for key, at in self._first.items() if not judged(*_parts(key), view)}
        self._first = {**unseen, **found.first_seen}
        self._tries = {key: one for key, one in self._tries.items() if view.now - one.last_at < FORGET_SECONDS}

    def _deal(self, finding: ReconcileFinding, hold: Restraint, known: dict[str, FindingRecord]) -> HandledFinding:
        """Write the finding down, then act on it where that may be."""
        now = world().now()
        why_not = restrained_because(finding, hold)
        record = known.get(finding.key)
        if record is None:
            action = f"none: {why_not}" if why_not else finding.remedy.words
            record = known[finding.key] = opened(self.profile.name, _row(finding, action, now))
            self._line("found", finding, f"{finding.kind}: {finding.why}; {record.action}")
        known[finding.key] = record = touched(record, now)
        why_not = why_not or self._unanswered(finding, record)
        if why_not:
            self._say(finding, record, f"none: {why_not}")
            return HandledFinding(finding, f"none: {why_not}", acted=False)
        before = self._tries.get(finding.key)
        if before is not None and now - before.last_at < pause_before(before.number):
            return HandledFinding(finding, self._said.get(finding.key, ""), acted=True)
        self._tries[finding.key] = Tries(1 if before is None else before.number + 1, now)
        return self._act(finding, record)

    def _act(self, finding: ReconcileFinding, record: FindingRecord) -> HandledFinding:
        try:
            outcome = carry_out(finding, self.profile)
        except PrimusError as error:
            outcome = f"could not {finding.remedy.words}: {error}; it is tried again"
            self._say(finding, record, outcome, "failed")
            return HandledFinding(finding, outcome, acted=False)
        self._say(finding, record, outcome, "mended")
        return HandledFinding(finding, outcome, acted=True)

    def _unanswered(self, finding: ReconcileFinding, record: FindingRecord) -> str:
        """Why a person's answer is missing; mode ask asks only about deletions."""
        if self.mode is not Mode.ASK or not isinstance(finding.remedy, Remove):
            return ""
        question = f"{finding.subject}: {finding.why}. Shall it be deleted?"
        answer = answer_of(record) or ask_about(record, question, self.profile.monitor.approval_timeout_seconds)
        return "" if answer.state == "approved" else f"mode ask: {answer.id} is {answer.state}"

    def _close(self, found: Reconciled, view: Sight, known: dict[str, FindingRecord]) -> None:
        present = {finding.key for finding in (*found.findings, *found.young)}
        for key, record in list(known.items()):
            if key not in present and judged(ReconcileFault(record.kind), record.subject, view):
                close(record)
                del known[key]
                self._said.pop(key, None)
                self.tell(NodeNotice(world().now(), "over", "", f"{record.kind} is over", subject=record.subject))

    def _say(self, finding: ReconcileFinding, record: FindingRecord, outcome: str, event: str = "") -> None:
        """Write down and report what came of it, where that is news."""
        if self._said.get(finding.key, record.action) == outcome:
            return
        self._said[finding.key] = outcome
        told(record, outcome)
        if event:
            self._line(event, finding, outcome)

    def _line(self, event: str, finding: ReconcileFinding, why: str) -> None:
        self.tell(NodeNotice(world().now(), event, "", why, subject=finding.subject))

    def _tell_away(self, away: tuple[str, ...]) -> None:
        if away and not self._away:
            self.tell(NodeNotice(world().now(), "away", "", f"not read: {'; '.join(away)}", subject="reconcile"))
        elif self._away and not away:
            self.tell(NodeNotice(world().now(), "back", "", "everything is read again", subject="reconcile"))
        self._away = away


def carry_out(finding: ReconcileFinding, profile: ClusterProfile) -> str:
    """Do what is to be done about a finding; what came of it, in words. Safe to repeat.

    Raises:
        PrimusError: it could not be done now.
    """
    remedy = finding.remedy
    match remedy:
        case DriveAgain(run):
            return drive_again(profile.name, run, finding.why)
        case Tell(run, attempt, signal):
            return tell_driver(run, attempt, signal, finding.why)
        case Remove(thing):
            return remove(thing)
        case Expire(approval):
            return let_lapse(approval)
        case MarkAgain(node, why):
            return mark_again(profile, node, why)
        case Leave(why):
            return f"none: {why}"
        case _:
            assert_never(remedy)


def _parts(key: str) -> tuple[ReconcileFault, str]:
    kind, _, subject = key.partition("/")
    return ReconcileFault(kind), subject


def _row(finding: ReconcileFinding, action: str, now: float) -> FindingRecord:
    """The finding without its cluster, which the writer knows."""
    return FindingRecord("", "", str(finding.kind), finding.subject, finding.run, finding.why, action, now, now)
