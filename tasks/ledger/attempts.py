"""Attempts, and the checkpoints, moments and steps that belong to them.

A run has millions of steps, so they are kept as packed arrays, up to `BATCH` steps in one row.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

from sqlalchemy import ColumnElement, select

from tasks.ledger.database import LedgerPart, LedgerTransaction, change, create_or_get
from tasks.ledger.rows import from_row, to_row
from tasks.ledger.tables import ATTEMPTS, CHECKPOINTS, INCIDENTS, MARKS, STEP_BATCHES
from workflows.model.records import LASTING, TOLD, AttemptRecord, CheckpointRecord, IncidentRecord, MarkRecord, StepRow

_PROGRESS = frozenset({"last_step", "last_step_at", "loss"})
"""Changes of only these come every second and are no history."""
_MOMENT = ("at",)

BATCH = 256
"""Steps in one row: about 4 kB, so that adding one step to it rewrites one page."""
_HAS_SECONDS, _HAS_LOSS = 1, 2


class AttemptLedger(LedgerPart):
    """Attempts with their checkpoints, moments and steps."""

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

        `fencing` is the driver's number; None where somebody else looked.

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

        `fencing` is the driver's number; None where somebody else saw it (a fault that was injected).

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

    def add_steps(self, run: str, attempt: int, rows: Sequence[StepRow], *, fencing: int | None = None) -> int:
        """Add completed steps; a step that stands there with the same time is not added again.

        Returns:
            How many were new.

        Raises:
            Fenced: where `fencing` is given.
        """
        if not rows:
            return 0
        with self.database.writing(run, fencing) as transaction:
            known = {(row.step, row.at) for row in _between(transaction, run, attempt, rows)}
            fresh = {(row.step, row.at): row for row in rows if (row.step, row.at) not in known}
            if fresh:
                _append(transaction, run, attempt, sorted(fresh.values(), key=_order))
            return len(fresh)

    def steps(self, run: str, attempt: int | None = None, since: float = -math.inf) -> list[StepRow]:
        """Steps completed at `since` (seconds since the epoch) or later, by attempt, then time."""
        query = select(STEP_BATCHES).where(STEP_BATCHES.c.run == run)
        if since > -math.inf:
            query = query.where(STEP_BATCHES.c.last_at >= since)
        if attempt is not None:
            query = query.where(STEP_BATCHES.c.attempt == attempt)
        with self.database.reading() as transaction:
            batches = transaction.all(query.order_by(STEP_BATCHES.c.attempt, STEP_BATCHES.c.seq))
        by_attempt: dict[int, list[StepRow]] = {}
        for batch in batches:
            kept = by_attempt.setdefault(int(batch["attempt"]), [])
            kept.extend(row for row in unpack(batch["packed"]) if row.at >= since)
        return [row for number in sorted(by_attempt) for row in sorted(by_attempt[number], key=_order)]


def _end_incidents(transaction: LedgerTransaction, run: str, number: int, at: object) -> None:
    """The run trains again: what happened in earlier attempts, and was not over by itself, is over."""
    table = INCIDENTS.c
    unended = (table.resumed_at.is_(None), table.over_at.is_(None), table.signal.not_in(TOLD))
    _change_all(transaction, (table.run == run, table.attempt < number, *unended), {"resumed_at": at})


def _end_told(transaction: LedgerTransaction, run: str, number: int, at: object) -> None:
    """The attempt has ended: its ranks lag no more."""
    table = INCIDENTS.c
    lasting = (table.run == run, table.attempt == number, table.over_at.is_(None), table.signal.in_(LASTING))
    _change_all(transaction, lasting, {"over_at": at})


def _change_all(
    transaction: LedgerTransaction, wanted: tuple[ColumnElement[bool], ...], changes: Mapping[str, object]
) -> None:
    for row in transaction.all(select(INCIDENTS.c.id).where(*wanted)):
        change(transaction, INCIDENTS, IncidentRecord, {"id": row["id"]}, "incident", changes)


def pack(rows: Sequence[StepRow]) -> bytes:
    """The rows as compressed arrays: flags, steps, times, step times, losses; exact, NaN included."""
    flags = bytes((row.seconds is not None) * _HAS_SECONDS | (row.loss is not None) * _HAS_LOSS for row in rows)
    count = len(rows)
    floats = [row.at for row in rows] + [row.seconds or 0.0 for row in rows]
    floats += [0.0 if row.loss is None else row.loss for row in rows]
    body = struct.pack(f"<I{count}s{count}q{3 * count}d", count, flags, *(row.step for row in rows), *floats)
    return zlib.compress(body, 1)


def unpack(packed: bytes) -> list[StepRow]:
    """What `pack` was given."""
    body = zlib.decompress(packed)
    (count,) = struct.unpack_from("<I", body)
    flags, *numbers = struct.unpack_from(f"<{count}s{count}q{3 * count}d", body, 4)
    steps, times, seconds, losses = (numbers[part * count : (part + 1) * count] for part in range(4))
    return [
        StepRow(
            steps[index],
            times[index],
            seconds[index] if flags[index] & _HAS_SECONDS else None,
            losses[index] if flags[index] & _HAS_LOSS else None,
        )
        for index in range(count)
    ]


def _order(row: StepRow) -> tuple[float, int]:
    return row.at, row.step


def _between(transaction: LedgerTransaction, run: str, attempt: int, rows: Sequence[StepRow]) -> Iterable[StepRow]:
    """Steps of the batches that overlap `rows` in time: mostly none, or the newest one."""
    first, last = min(row.at for row in rows), max(row.at for row in rows)
    own = (STEP_BATCHES.c.run == run, STEP_BATCHES.c.attempt == attempt)
    overlapping = select(STEP_BATCHES.c.packed).where(
        *own, STEP_BATCHES.c.last_at >= first, STEP_BATCHES.c.first_at <= last
    )
    return (row for batch in transaction.all(overlapping) for row in unpack(batch["packed"]))


def _append(transaction: LedgerTransaction, run: str, attempt: int, rows: Sequence[StepRow]) -> None:
    """Fill the newest batch first, then open new ones."""
    own = (STEP_BATCHES.c.run == run, STEP_BATCHES.c.attempt == attempt)
    newest = transaction.one(select(STEP_BATCHES).where(*own).order_by(STEP_BATCHES.c.seq.desc()).limit(1))
    rest = list(rows)
    if newest is not None and newest["count"] < BATCH:
        room = BATCH - int(newest["count"])
        filled = [*unpack(newest["packed"]), *rest[:room]]
        transaction.update(STEP_BATCHES, {"seq": newest["seq"]}, _columns(filled))
        rest = rest[room:]
    for start in range(0, len(rest), BATCH):
        row = _columns(rest[start : start + BATCH]) | {"run": run, "attempt": attempt}
        transaction.connection.execute(STEP_BATCHES.insert(), row)


def _columns(rows: Sequence[StepRow]) -> dict[str, object]:
    times = [row.at for row in rows]
    return {"count": len(rows), "first_at": min(times), "last_at": max(times), "packed": pack(rows)}
