"""What the monitor found, and cursors: how far readers of the history have come."""

from __future__ import annotations

from sqlalchemy import func, select

from tasks.ledger.database import LedgerPart, LedgerTransaction, as_json
from tasks.ledger.rows import from_row, to_row
from tasks.ledger.tables import CURSORS, FINDINGS, HISTORY
from workflows.model.runs import CursorRecord, FindingRecord, HistoryRow


class FindingLedger(LedgerPart):
    """Findings and cursors."""

    def open_finding(self, record: FindingRecord) -> FindingRecord:
        """Write what was found; an open finding of the same kind about the same subject is returned as it stands."""
        same = [FINDINGS.c[name] == getattr(record, name) for name in ("cluster", "kind", "subject")]
        query = select(FINDINGS).where(*same, FINDINGS.c.closed_at.is_(None))
        with self.database.writing(record.run, synced=True) as transaction:
            known = transaction.one(query)
            if known is not None:
                transaction.update(FINDINGS, {"id": known["id"]}, {"last_at": record.last_at})
                return from_row(FindingRecord, {**known, "last_at": record.last_at})
            if transaction.insert_once(FINDINGS, to_row(record)):
                transaction.note("finding", record.id, record.why, as_json(record))
        return record

    def tell_finding(self, identity: str, action: str, at: float) -> None:
        """Write what came of it, or why nothing was done; the same words again change nothing."""
        with self.database.writing() as transaction:
            row = transaction.one(select(FINDINGS).where(FINDINGS.c.id == identity))
            if row is not None and row["action"] != action:
                transaction.update(FINDINGS, {"id": identity}, {"action": action, "last_at": at})
                transaction.note("finding", identity, action, run=row["run"])

    def close_finding(self, identity: str, at: float) -> None:
        """It is no longer seen. Safe to repeat."""
        with self.database.writing() as transaction:
            row = transaction.one(select(FINDINGS).where(FINDINGS.c.id == identity))
            if row is not None and row["closed_at"] is None:
                transaction.update(FINDINGS, {"id": identity}, {"closed_at": at})
                transaction.note("finding", identity, "no longer seen", f'{{"closed_at": {at}}}', run=row["run"])

    def findings(self, cluster: str, *, open_only: bool = True, since: float = 0.0) -> list[FindingRecord]:
        """Findings about a cluster that were seen at `since` or later, oldest first."""
        query = select(FINDINGS).where(FINDINGS.c.cluster == cluster, FINDINGS.c.last_at >= since)
        if open_only:
            query = query.where(FINDINGS.c.closed_at.is_(None))
        with self.database.reading() as transaction:
            rows = transaction.all(query.order_by(FINDINGS.c.first_at, FINDINGS.c.id))
        return [from_row(FindingRecord, row) for row in rows]

    def cursor(self, name: str) -> CursorRecord | None:
        """The cursor's position; None: it was never moved."""
        with self.database.reading() as transaction:
            row = transaction.one(select(CURSORS).where(CURSORS.c.name == name))
        return None if row is None else from_row(CursorRecord, row)

    def move_cursor(self, name: str, position: int, at: float) -> None:
        """Move the cursor; it never goes back."""
        with self.database.writing() as transaction:
            put_cursor(transaction, name, position, at)

    def history_after(self, seq: int, limit: int) -> list[HistoryRow]:
        """Lines of the history after place `seq`, in order.

        On PostgreSQL a line of a transaction that is still open may appear later at a lower place than lines that are
        seen already: whoever must not miss one looks back over a few seconds and drops what he had.
        """
        query = select(HISTORY).where(HISTORY.c.seq > seq).order_by(HISTORY.c.seq).limit(limit)
        with self.database.reading() as transaction:
            return [from_row(HistoryRow, row) for row in transaction.all(query)]

    def history_end(self) -> int:
        """The place of the newest line; 0 where there is none."""
        with self.database.reading() as transaction:
            return int(transaction.connection.execute(select(func.max(HISTORY.c.seq))).scalar_one() or 0)

    def cursors(self, prefix: str) -> dict[str, CursorRecord]:
        """Cursors whose names begin so, by the rest of their names."""
        query = select(CURSORS).where(CURSORS.c.name.startswith(prefix, autoescape=True))
        with self.database.reading() as transaction:
            rows = transaction.all(query)
        return {str(row["name"]).removeprefix(prefix): from_row(CursorRecord, row) for row in rows}


def put_cursor(transaction: LedgerTransaction, name: str, position: int, at: float) -> None:
    """What `move_cursor` does, beside other writes."""
    if not transaction.insert_once(CURSORS, {"name": name, "position": position, "at": at}):
        ahead = (CURSORS.c.name == name, CURSORS.c.position <= position)
        transaction.connection.execute(CURSORS.update().where(*ahead).values(position=position, at=at))
