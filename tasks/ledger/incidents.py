"""Incidents, the actions they lead to, and the questions they put to people."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import ColumnElement, select

from profiles.errors import Conflict
from profiles.vocabulary import Action
from tasks.ledger.database import LedgerPart, LedgerTransaction, change, create_or_get, get
from tasks.ledger.rows import from_row, to_row
from tasks.ledger.runs import ACT
from tasks.ledger.tables import ACTIONS, APPROVALS, INCIDENTS, MARKS
from workflows.model.records import TOLD, ActionRecord, Actor, ApprovalRecord, IncidentRecord, MarkRecord


class IncidentLedger(LedgerPart):
    """What was seen, what was decided, what was done, and why."""

    def open_incident(
        self, fencing: int | None, record: IncidentRecord, marks: Sequence[MarkRecord] = ()
    ) -> IncidentRecord:
        """Write the incident, or return the stored one about the same fact. One transaction.

        Two observers of one fact write one incident, whoever comes first. While nothing was decided about an attempt,
        whatever else is seen of it belongs to the incident that waits.

        Args:
            fencing: the driver's number; None where the monitor or a person saw it.
            record: what was seen. Its id gets the next number that is free; without a fact the id itself is the key.
            marks: moments that are written with it, and only where it is new.

        Raises:
            Fenced.
        """
        with self.database.writing(record.run, fencing, synced=True) as transaction:
            known = None if record.fact is None else _same(transaction, record)
            if known is not None:
                return known
            mine = record if record.fact is None else replace(record, id=_free(transaction, record.id))
            key, why = {"id": mine.id}, record.why or record.signal
            written, new = create_or_get(transaction, INCIDENTS, mine, key, "incident", why)
            for mark in marks if new else ():
                transaction.insert_once(MARKS, to_row(mark))
            return written

    def update_incident(self, fencing: int | None, run: str, incident: str, **changes: object) -> IncidentRecord:
        """Set fields of `IncidentRecord`: the diagnosis, the decision, the moment it was over.

        Raises:
            Fenced, NotFound.
            Permanent: a name that is no field.
        """
        with self.database.writing(run, fencing, synced="action" in changes) as transaction:
            return change(transaction, INCIDENTS, IncidentRecord, {"id": incident}, "incident", changes)

    def incidents(self, run: str | None = None, since: float = 0.0) -> list[IncidentRecord]:
        """Incidents detected at `since` or later, of one run or of all, in the order of detection."""
        query = select(INCIDENTS).where(INCIDENTS.c.detected_at >= since)
        if run is not None:
            query = query.where(INCIDENTS.c.run == run)
        with self.database.reading() as transaction:
            rows = transaction.all(query.order_by(INCIDENTS.c.detected_at, INCIDENTS.c.id))
        return [from_row(IncidentRecord, row) for row in rows]

    def decide(
        self,
        fencing: int | None,
        incident: IncidentRecord,
        actions: Sequence[ActionRecord],
        approval: ApprovalRecord | None,
    ) -> IncidentRecord:
        """Write a decision as a whole: the actions, the question if any, and the incident that asked for them.

        One transaction, so that a driver killed here has decided everything or nothing.

        Raises:
            Fenced, NotFound.
        """
        changes = {"action": incident.action, "why": incident.why, "would_change": incident.would_change}
        with self.database.writing(incident.run, fencing, synced=True) as transaction:
            for action in actions:
                create_or_get(transaction, ACTIONS, action, {"id": action.id}, "action", action.why)
            if approval is not None:
                create_or_get(transaction, APPROVALS, approval, {"id": approval.id}, "approval", approval.question)
            whole = {**changes, "charged": incident.charged}
            return change(transaction, INCIDENTS, IncidentRecord, {"id": incident.id}, "incident", whole)

    def plan_action(self, fencing: int | None, record: ActionRecord) -> ActionRecord:
        """Write the action before it is carried out; one that was planned before is returned as it stands.

        Raises:
            Fenced.
        """
        with self.database.writing(record.run, fencing, synced=True) as transaction:
            return create_or_get(transaction, ACTIONS, record, {"id": record.id}, "action", record.why)[0]

    def update_action(self, fencing: int | None, run: str, action: str, **changes: object) -> ActionRecord:
        """Set fields of `ActionRecord`.

        Raises:
            Fenced, NotFound.
            Permanent: a name that is no field.
        """
        with self.database.writing(run, fencing, synced=True) as transaction:
            return change(transaction, ACTIONS, ActionRecord, {"id": action}, "action", changes)

    def actions(self, run: str | None = None) -> list[ActionRecord]:
        """Actions of one run or of all, in the order of planning."""
        query = select(ACTIONS).order_by(ACTIONS.c.planned_at, ACTIONS.c.id)
        if run is not None:
            query = query.where(ACTIONS.c.run == run)
        with self.database.reading() as transaction:
            return [from_row(ActionRecord, row) for row in transaction.all(query)]

    def ask(self, fencing: int | None, record: ApprovalRecord) -> ApprovalRecord:
        """Put a question to people; one that was asked before is returned as it stands, answered or not.

        Raises:
            Fenced.
        """
        with self.database.writing(record.run, fencing, synced=True) as transaction:
            return create_or_get(transaction, APPROVALS, record, {"id": record.id}, "approval", record.question)[0]

    def answer(self, approval: str, approved: bool, by: Actor, why: str, now: float) -> ApprovalRecord:
        """Answer for a person. The same answer again changes nothing; that somebody else gave it too is written down.

        Raises:
            Conflict: it was answered otherwise, or the time was up.
            NotFound.
        """
        wanted = "approved" if approved else "denied"
        run = self.expire(approval, now).run
        with self.database.writing(run, synced=True, by=by) as transaction:
            record = get(transaction, APPROVALS, ApprovalRecord, {"id": approval}, "approval", lock=True)
            if record.state == "waiting":
                changes = {"state": wanted, "answered_at": now, "answered_by": by.name, "by": by, "why": why}
                return _change(transaction, approval, changes)
            if record.state == wanted and (record.by, record.why) != (by, why):
                transaction.note(
                    ACT, f"{'approve' if approved else 'deny'} {approval}", f"it was {wanted} already: {why}"
                )
        if record.state != wanted:
            who = f" by {record.answerer}" if record.answerer else ""
            raise Conflict(f"approval {approval} is {record.state}{who} already; it cannot become {wanted}")
        return record

    def expire(self, approval: str, now: float) -> ApprovalRecord:
        """The approval as it stands at `now`: one whose time is up becomes `expired`.

        Raises:
            NotFound.
        """
        with self.database.writing(self._run_of(approval), synced=True) as transaction:
            return _lapsed(transaction, approval, now)

    def withdraw(self, run: str, now: float, why: str) -> None:
        """Take back the questions of a run that wait for an answer: what they ask about is over."""
        for asked in self.approvals(run, waiting_only=True):
            with self.database.writing(run, synced=True) as transaction:
                record = get(transaction, APPROVALS, ApprovalRecord, {"id": asked.id}, "approval", lock=True)
                if record.state == "waiting":
                    _change(transaction, asked.id, {"state": "expired", "answered_at": now, "why": why})

    def take_back(self, fencing: int | None, incident: IncidentRecord, now: float, why: str) -> bool:
        """Write down that what a person was asked about is over: the question is taken back, nothing planned is done.

        One transaction. False: an answer came before, and nothing is changed.

        Raises:
            Fenced, NotFound.
        """
        mine = APPROVALS.c.incident == incident.id, APPROVALS.c.state == "waiting"
        planned = ACTIONS.c.incident == incident.id, ACTIONS.c.state.in_(("planned", "waiting", "recorded"))
        with self.database.writing(incident.run, fencing, synced=True) as transaction:
            waiting = [row["id"] for row in transaction.all(select(APPROVALS.c.id).where(*mine))]
            asked = [get(transaction, APPROVALS, ApprovalRecord, {"id": one}, "approval", lock=True) for one in waiting]
            if not any(one.state == "waiting" for one in asked):
                return False
            for one in asked:
                _change(transaction, one.id, {"state": "expired", "answered_at": now, "why": why})
            for row in transaction.all(select(ACTIONS).where(*planned)):
                action = from_row(ActionRecord, row)
                told = {"state": "refused", "done_at": now, "why": f"{action.why} [{why}]"}
                change(transaction, ACTIONS, ActionRecord, {"id": action.id}, "action", told)
            over = {"action": Action.NONE, "charged": False, "over_at": now, "why": why}
            change(transaction, INCIDENTS, IncidentRecord, {"id": incident.id}, "incident", over)
            return True

    def approval(self, approval: str) -> ApprovalRecord | None:
        """The approval, or None."""
        with self.database.reading() as transaction:
            row = transaction.one(select(APPROVALS).where(APPROVALS.c.id == approval))
        return None if row is None else from_row(ApprovalRecord, row)

    def approvals(self, run: str | None = None, waiting_only: bool = False) -> list[ApprovalRecord]:
        """Questions of one run or of all, oldest first."""
        query = select(APPROVALS).order_by(APPROVALS.c.asked_at, APPROVALS.c.id)
        if run is not None:
            query = query.where(APPROVALS.c.run == run)
        if waiting_only:
            query = query.where(APPROVALS.c.state == "waiting")
        with self.database.reading() as transaction:
            return [from_row(ApprovalRecord, row) for row in transaction.all(query)]

    def _run_of(self, approval: str) -> str:
        with self.database.reading() as transaction:
            return get(transaction, APPROVALS, ApprovalRecord, {"id": approval}, "approval").run

    def lapsing(self, now: float) -> list[ApprovalRecord]:
        """Questions past their deadline that are still open, oldest first."""
        query = select(APPROVALS).where(APPROVALS.c.state == "waiting", APPROVALS.c.expires_at <= now)
        with self.database.reading() as transaction:
            return [from_row(ApprovalRecord, row) for row in transaction.all(query.order_by(APPROVALS.c.asked_at))]


def _same(transaction: LedgerTransaction, record: IncidentRecord) -> IncidentRecord | None:
    """The incident that another observer wrote of the same fact, or a program that knew no facts under the same id."""
    own = INCIDENTS.c.run == record.run, INCIDENTS.c.attempt == record.attempt
    before = (INCIDENTS.c.id == record.id, INCIDENTS.c.fact.is_(None))
    waits = (*own, INCIDENTS.c.action.is_(None), INCIDENTS.c.signal.not_in(TOLD))
    wanted: list[tuple[ColumnElement[bool], ...]] = [(INCIDENTS.c.fact == record.fact,), before]
    wanted += [waits] if record.action is None else []
    for where in wanted:
        row = transaction.one(select(INCIDENTS).where(*where))
        if row is not None:
            return from_row(IncidentRecord, row)
    return None


def _free(transaction: LedgerTransaction, wanted: str) -> str:
    """The first id from `wanted` on that no incident has: `demo-a1-i2` after `demo-a1-i1`."""
    stem = wanted.rstrip(string.digits)
    number = int(wanted[len(stem) :] or 1)
    while transaction.one(select(INCIDENTS.c.id).where(INCIDENTS.c.id == f"{stem}{number}")) is not None:
        number += 1
    return f"{stem}{number}"


def _lapsed(transaction: LedgerTransaction, approval: str, now: float) -> ApprovalRecord:
    record = get(transaction, APPROVALS, ApprovalRecord, {"id": approval}, "approval", lock=True)
    if record.state == "waiting" and now >= record.expires_at:
        why = "nobody answered in time: the safe default holds"
        return _change(transaction, approval, {"state": "expired", "answered_at": now, "why": why})
    return record


def _change(transaction: LedgerTransaction, approval: str, changes: Mapping[str, object]) -> ApprovalRecord:
    return change(transaction, APPROVALS, ApprovalRecord, {"id": approval}, "approval", changes)
