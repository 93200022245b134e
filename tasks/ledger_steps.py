"""Steps: millions a run, so they are kept as packed arrays, up to `BATCH` steps in one row."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterable, Sequence

from sqlalchemy import select

from tasks.ledger_database import Transaction
from tasks.ledger_part import LedgerPart
from tasks.ledger_tables import STEP_BATCHES
from workflows.records import StepRow

BATCH = 256
"""Steps in one row: about 4 kB, so that adding one step to it rewrites one page."""
_HAS_SECONDS, _HAS_LOSS = 1, 2


class StepLedger(LedgerPart):
    """Completed steps of attempts."""

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


def _between(transaction: Transaction, run: str, attempt: int, rows: Sequence[StepRow]) -> Iterable[StepRow]:
    """Steps of the batches that overlap `rows` in time: mostly none, or the newest one."""
    first, last = min(row.at for row in rows), max(row.at for row in rows)
    own = (STEP_BATCHES.c.run == run, STEP_BATCHES.c.attempt == attempt)
    overlapping = select(STEP_BATCHES.c.packed).where(
        *own, STEP_BATCHES.c.last_at >= first, STEP_BATCHES.c.first_at <= last
    )
    return (row for batch in transaction.all(overlapping) for row in unpack(batch["packed"]))


def _append(transaction: Transaction, run: str, attempt: int, rows: Sequence[StepRow]) -> None:
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
