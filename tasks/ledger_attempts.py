"""Attempts, and the checkpoints, moments and steps that belong to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

from sqlalchemy import ColumnElement, select

from tasks.ledger_database import Transaction
from tasks.ledger_part import LedgerPart, change, create_or_get
from tasks.ledger_rows import from_row, to_row
from tasks.ledger_tables import ATTEMPTS, CHECKPOINTS, INCIDENTS, MARKS
from workflows.checkpoint_record import CheckpointRecord
from workflows.records import AttemptRecord, IncidentRecord, MarkRecord
from workflows.told import LASTING, TOLD

_PROGRESS = frozenset({"last_step", "last_step_at", "loss"})
"""Changes of only these come every second and are no history."""
_MOMENT = ("at",)


class AttemptLedger(LedgerPart):
    """Gangs of pods, one row each."""

    def plan_attempt(self, fencing: int, record: AttemptRecord) -> AttemptRecord:
        """Write the attempt before it is submitted; a number that was planned before is returned as it stands.

        Raises:
            Fenced.
        """
        key = {"run": record.run, "number": record.number}
        with self.database.writing(record.run, fencing, synced=True) as transaction:
            return create_or_get(transaction, ATTEMPTS, record, key, "attempt", record.why)[0]

    def update_attempt(self, fencing: int, run: str, number: int, **changes: object) -> AttemptRecord:
        """Set fields of `AttemptRecord`.

        Raises:
            Fenced, NotFound.
            Permanent: a name that is no field.
        """
        key = {"run": run, "number": number}
        noted = not set(changes) <= _PROGRESS
        with self.database.writing(run, fencing, synced="ended_at" in changes) as transaction:
            if changes.get("first_step_at") is not None:
                _end_incidents(transaction, run, number, changes["first_step_at"])
            if changes.get("ended_at") is not None:
                _end_told(transaction, run, number, changes["ended_at"])
            return change(transaction, ATTEMPTS, AttemptRecord, key, "attempt", changes, noted=noted)

    def attempts(self, run: str) -> list[AttemptRecord]:
        """The run's attempts by number."""
        with self.database.reading() as transaction:
            rows = transaction.all(select(ATTEMPTS).where(ATTEMPTS.c.run == run).order_by(ATTEMPTS.c.number))
        return [from_row(AttemptRecord, row) for row in rows]

    def add_checkpoint(self, fencing: int | None, record: CheckpointRecord) -> None:
        """Write what was found; the same finding about the same checkpoint again adds nothing.

        Args:
            fencing: the driver's number; None where somebody else looked.
            record: what was found.

        Raises:
            Fenced.
        """
        same = [CHECKPOINTS.c[name] == getattr(record, name) for name in ("run", "path", "tier")]
        newest = select(CHECKPOINTS).where(*same).order_by(CHECKPOINTS.c.at.desc(), CHECKPOINTS.c.seq.desc()).limit(1)
        row = to_row(record)
        told = [field.name for field in fields(CheckpointRecord) if field.name not in _MOMENT]
        with self.database.writing(record.run, fencing) as transaction:
            before = transaction.one(newest)
            if before is not None and all(before[name] == row[name] for name in told):
                return
            if transaction.insert_once(CHECKPOINTS, row):
                transaction.note("checkpoint", record.path, record.why or record.verdict.value)

    def checkpoints(self, run: str) -> list[CheckpointRecord]:
        """Every finding about the run's checkpoints, by step and time: the last one about a path is what holds."""
        query = select(CHECKPOINTS).where(CHECKPOINTS.c.run == run)
        with self.database.reading() as transaction:
            rows = transaction.all(query.order_by(CHECKPOINTS.c.step, CHECKPOINTS.c.at, CHECKPOINTS.c.seq))
        return [from_row(CheckpointRecord, row) for row in rows]

    def add_marks(self, fencing: int | None, marks: Sequence[MarkRecord]) -> None:
        """Write moments of one run; the same kind at the same time in one attempt is one moment.

        Args:
            fencing: the driver's number; None where somebody else saw it (a fault that was injected).
            marks: moments, all of the same run.

        Raises:
            Fenced.
        """
        if not marks:
            return
        with self.database.writing(marks[0].run, fencing) as transaction:
            for mark in marks:
                transaction.insert_once(MARKS, to_row(mark))

    def marks(self, run: str) -> list[MarkRecord]:
        """Moments of the run in the order in which they happened."""
        with self.database.reading() as transaction:
            rows = transaction.all(select(MARKS).where(MARKS.c.run == run).order_by(MARKS.c.at, MARKS.c.seq))
        return [from_row(MarkRecord, row) for row in rows]


def _end_incidents(transaction: Transaction, run: str, number: int, at: object) -> None:
    """The run trains again: what happened in earlier attempts is over."""
    table = INCIDENTS.c
    open_ones = (table.run == run, table.attempt < number, table.resumed_at.is_(None), table.signal.not_in(TOLD))
    _change_all(transaction, open_ones, {"resumed_at": at})


def _end_told(transaction: Transaction, run: str, number: int, at: object) -> None:
    """The attempt has ended: its ranks lag no more."""
    table = INCIDENTS.c
    lasting = (table.run == run, table.attempt == number, table.over_at.is_(None), table.signal.in_(LASTING))
    _change_all(transaction, lasting, {"over_at": at})


def _change_all(
    transaction: Transaction, wanted: tuple[ColumnElement[bool], ...], changes: Mapping[str, object]
) -> None:
    for row in transaction.all(select(INCIDENTS.c.id).where(*wanted)):
        change(transaction, INCIDENTS, IncidentRecord, {"id": row["id"]}, "incident", changes)
