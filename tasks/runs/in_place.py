"""What happens to a gang while its attempt goes on, as incidents: restarts in place, slow ranks, jumps.

Each is written once, however many processes look: a restart's id is made of the attempt and its number. Each is a named
task of the flow run, since every use of the right to restart that the flow lends must show there. Slow ranks and jumps
ask for no action; they are also written as marks, which say how things stand now.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from profiles.vocabulary import Action, FaultClass
from tasks.context import patient, touch, world
from workflows.model.gang_status import (
    JUMP_MARK,
    REPLICA_BEGIN,
    REPLICA_END,
    RESTART_MARK,
    SLOWER_MARK,
    STRAGGLERS_MARK,
    GangNews,
)
from workflows.model.incidents import fact_of, notes_of, subject_of, well_again
from workflows.model.records import TOLD, AttemptRecord, IncidentRecord, MarkRecord
from workflows.status import RestartInPlace

MOST = 200
"""Of one attempt: a gang whose figures jump for ever says nothing new by it, and every reader reads them all."""
SAME_SPELL_SECONDS = 600.0
"""What was over for less than this goes on where it begins again: one note, however often a rank lags for a moment."""
AT_ONCE = 8
"""Notes that one look writes: where a whole rack lags the rest comes with the next ones, and ends are seen between."""

_CONFIDENCE = {"rank-failed": (FaultClass.PROCESS_KILLED, 0.75), "hang": (FaultClass.HANG, 0.85)}
"""As an incident of the same signal is diagnosed without any other evidence."""
_SIGNAL = re.compile(r"\bsignal \d+\b")

NOTHING = "[]"
"""No rank lags: worth a moment only after one did."""
_CHANGING = frozenset({STRAGGLERS_MARK, SLOWER_MARK, JUMP_MARK})


class IncidentWriter:
    """Writes what is new of a gang into the ledger, each thing once."""

    def __init__(self, attempt: AttemptRecord) -> None:
        self._attempt = attempt
        self._known: dict[str, IncidentRecord] | None = None
        """Restarts that the ledger knows, by id; None: it was not asked yet."""
        self._notes = Notes(attempt)
        self._said: dict[str, str] = {}
        """What was written last of each thing that may change."""

    def is_new(self, news: GangNews) -> bool:
        """Whether something of it was not written yet, or may not be: what an earlier life wrote was not read."""
        if self._known is None:
            return True
        return any(map(self._lacks, _with_later(news))) or bool(self._unsaid(news)) or self._notes.lacks(news)

    def keep(self, news: GangNews) -> None:
        """Write what is new.

        Raises:
            Unavailable: the ledger does not answer; the next call writes it.
        """
        if not self.is_new(news):
            return
        self._remember()
        before = self._attempt.planned_at
        for restart, back in _with_later(news):
            self._keep_restart(restart, back, before)
            before = restart.at
        self._notes.keep(news)
        here, fresh = world(), self._unsaid(news)
        run, number, now = self._attempt.run, self._attempt.number, here.now()
        # Two moments of a kind are two only where their times differ.
        marks = [MarkRecord(run, number, kind, now + place * 1e-6, text) for place, (kind, text) in enumerate(fresh)]
        here.ledger.add_marks(here.fencing, marks)
        self._said |= dict(_subject(kind, text) for kind, text in fresh)

    def tell(self, note: IncidentRecord) -> None:
        """Write a note that is not of the coordinator's news, once.

        Raises:
            Unavailable: the ledger does not answer.
        """
        self._remember()
        self._notes.tell(note)

    def _remember(self) -> None:
        """What an earlier life of this flow has written."""
        if self._known is not None:
            return
        ledger, run, number = world().ledger, self._attempt.run, self._attempt.number
        told = [mark for mark in ledger.marks(run) if mark.attempt == number and mark.kind in _CHANGING]
        self._said = dict(_subject(mark.kind, mark.detail) for mark in told)
        mine = [item for item in ledger.incidents(run) if item.attempt == number]
        self._known = {item.id: item for item in mine}
        self._notes.remember(mine)

    def _lacks(self, told: tuple[RestartInPlace, float | None]) -> bool:
        known = (self._known or {}).get(incident_id(self._attempt, told[0].number))
        return known is None or (known.resumed_at is None and told[1] is not None)

    def _keep_restart(self, restart: RestartInPlace, back: float | None, before: float) -> None:
        known = self._known if self._known is not None else {}
        key = incident_id(self._attempt, restart.number)
        if key not in known:
            known[key] = note_restart(self._attempt, restart, before)
        if back is not None and known[key].resumed_at is None:
            known[key] = _trains_again(self._attempt, restart, back)

    def _unsaid(self, news: GangNews) -> list[tuple[str, str]]:
        fresh: list[tuple[str, str]] = []
        for kind, text in _changing(news):
            about, what = _subject(kind, text)
            if self._said.get(about, NOTHING) != what:
                fresh.append((kind, text))
        return fresh


def _with_later(news: GangNews) -> list[tuple[RestartInPlace, float | None]]:
    """Each restart, with the time when the run trained again after it."""
    return [(item, resumed_at(item, news.restarts[place + 1 :])) for place, item in enumerate(news.restarts)]


@touch("notes {note.signal}: {note.seen}")
def write_note(note: IncidentRecord) -> IncidentRecord:
    """Write it down, or take over what another observer of the same fact wrote."""
    here = world()
    return here.ledger.open_incident(here.fencing, note)


@patient
def _lasts(note: IncidentRecord, over_at: float | None) -> IncidentRecord:
    """Write down until when it was so; None: it goes on."""
    here = world()
    return here.ledger.update_incident(here.fencing, note.run, note.id, over_at=over_at)


class Notes:
    """The incidents without action that are known of one attempt; of what lasts one is open for each subject."""

    def __init__(self, attempt: AttemptRecord) -> None:
        self._attempt = attempt
        self._known: dict[str, IncidentRecord] = {}
        """By their facts."""
        self._newest: dict[tuple[object, ...], str] = {}
        """The fact of the newest note of each subject."""

    def remember(self, incidents: list[IncidentRecord]) -> None:
        """What an earlier life of this flow, or another observer, wrote of the attempt."""
        for item in incidents:
            if item.fact is not None and item.signal in TOLD:
                self._put(item)

    def lacks(self, news: GangNews) -> bool:
        """Whether something of the news is not written yet."""
        told = notes_of(self._attempt, news, 0.0)
        return any(map(self._is_news, told)) or bool(well_again(list(self._known.values()), news, told))

    def keep(self, news: GangNews) -> None:
        """Write what is new, `AT_ONCE` of it at most, and what is over.

        Raises:
            Unavailable: the ledger does not answer; the next call writes it.
        """
        now = world().now()
        told = notes_of(self._attempt, news, now)
        for item in [item for item in told if self._is_news(item)][:AT_ONCE]:
            self._keep(item, now)
        for item in well_again(list(self._known.values()), news, told):
            self._put(_lasts(item, now))

    def tell(self, item: IncidentRecord) -> None:
        """Write one that is not of the coordinator's news, unless it is written already."""
        if self._is_news(item):
            self._keep(item, item.at)

    def _is_news(self, item: IncidentRecord) -> bool:
        known = self._of_subject(item)
        return len(self._known) < MOST if known is None else known.over_at is not None

    def _keep(self, item: IncidentRecord, now: float) -> None:
        known = self._of_subject(item)
        if known is not None and (known.fact == item.fact or now - (known.over_at or now) < SAME_SPELL_SECONDS):
            self._put(_lasts(known, None))
        elif len(self._known) < MOST:
            stem = item.id.rpartition("-n")[0]
            self._put(write_note(replace(item, id=f"{stem}-n{1 + len(self._known)}")))

    def _of_subject(self, item: IncidentRecord) -> IncidentRecord | None:
        return self._known.get(self._newest.get(subject_of(item), ""))

    def _put(self, item: IncidentRecord) -> None:
        fact = item.fact or ""
        self._known[fact] = item
        self._newest[subject_of(item)] = fact


def incident_id(attempt: AttemptRecord, number: int) -> str:
    """Of a restart in place, by its number within the attempt."""
    return f"{attempt.run}-a{attempt.number}-r{number}"


def incident_of(attempt: AttemptRecord, restart: RestartInPlace, happened_at: float) -> IncidentRecord:
    """A restart in place as an incident that was decided and carried out; never charged to the restart budget.

    `happened_at` is when the fault was caused (Unix seconds); else when it was noticed.
    """
    fault_class, confidence = _CONFIDENCE[restart.kind]
    ended = _SIGNAL.search(restart.why)
    return IncidentRecord(
        id=incident_id(attempt, restart.number),
        run=attempt.run,
        attempt=attempt.number,
        at=happened_at,
        detected_at=restart.at,
        signal=restart.kind,
        fault_class=fault_class,
        confidence=confidence,
        culprits=restart.culprits,
        # As the end of such a rank is known by, were it to end the attempt: what happens again is known again.
        fingerprint=ended[0] if ended else "",
        step=restart.step,
        evidence=tuple(text for text in (restart.why, restart.stacks) if text),
        fact=fact_of(attempt.run, attempt.number, restart.kind, incarnation=restart.incarnation, number=restart.number),
        action=Action.RESTART_IN_PLACE,
        why=f"restart in place {restart.number}: {restart.words}",
        would_change="the same node once more, or the right used up: then a new attempt",
    )


def resumed_at(restart: RestartInPlace, later: Sequence[RestartInPlace]) -> float | None:
    """When the run trained again after a restart: with its own first step, else with that of a later restart."""
    steps = [item.first_step_at for item in (restart, *later) if item.first_step_at is not None]
    return steps[0] if steps else None


def happened(marks: Sequence[MarkRecord], attempt: int, restart: RestartInPlace, before: float) -> float:
    """When the fault behind a restart was caused, where a drill caused it since `before`.

    Else when its launcher saw it: a rank's end, the last progress before a hang; else when it was noticed.
    """
    caused = [mark.at for mark in marks if mark.kind == "fault" and mark.attempt == attempt]
    seen = restart.at if restart.happened_at is None else restart.happened_at
    return max((at for at in caused if before < at <= restart.at), default=seen)


@touch("restart in place {restart.number}: {restart.words}")
def note_restart(attempt: AttemptRecord, restart: RestartInPlace, before: float) -> IncidentRecord:
    """Write down that the right was used. `before`: when it was used the last time, Unix seconds."""
    here = world()
    record = incident_of(attempt, restart, happened(here.ledger.marks(attempt.run), attempt.number, restart, before))
    return here.ledger.open_incident(here.fencing, record, (mark_of(attempt, restart),))


def mark_of(attempt: AttemptRecord, restart: RestartInPlace) -> MarkRecord:
    """The moment of a restart as the account reads it: of all ranks, or of a share of them while others train on."""
    kind, what = RESTART_MARK, restart.kind
    if restart.alone:
        kind, what = REPLICA_BEGIN, f"{restart.share:g} {restart.kind}"
    return MarkRecord(attempt.run, attempt.number, kind, restart.at, f"{restart.number} {what}: {restart.words}")


@patient
def _trains_again(attempt: AttemptRecord, restart: RestartInPlace, at: float) -> IncidentRecord:
    here = world()
    if restart.alone:
        mark = MarkRecord(attempt.run, attempt.number, REPLICA_END, at, str(restart.number))
        here.ledger.add_marks(here.fencing, [mark])
    key = incident_id(attempt, restart.number)
    return here.ledger.update_incident(here.fencing, attempt.run, key, resumed_at=at)


def _changing(news: GangNews) -> list[tuple[str, str]]:
    """Kind and text of what is worth a moment when it changes."""
    found = [(JUMP_MARK, json.dumps(asdict(item))) for item in news.jumps]
    if news.stragglers is not None:
        found.append((STRAGGLERS_MARK, json.dumps([asdict(item) for item in news.stragglers])))
    if news.slower is not None:
        told = {"since_step": news.slower.since_step, "ratio": news.slower.ratio}
        found.append((SLOWER_MARK, json.dumps(told)))
    return found


def _subject(kind: str, text: str) -> tuple[str, str]:
    """What a moment is about, and what makes it a new one: that a rank lags still more is no news."""
    told: Any = json.loads(text)
    if kind == STRAGGLERS_MARK:
        return kind, str(sorted((item["rank"], item["node"]) for item in told))
    if kind == SLOWER_MARK:
        return kind, str(told["since_step"])
    return f"{kind} {told['what']} {told['step']} {told.get('incarnation', 1)}", ""
