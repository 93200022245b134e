"""Ledgers of earlier programs: what each migration has made is taken away again, newest first."""

from __future__ import annotations

from sqlalchemy import text

from tasks.ledger.database import LedgerTransaction

MADE: dict[str, tuple[str, ...]] = {
    "0013": (
        "DROP INDEX incidents_by_fact",
        "ALTER TABLE incidents DROP COLUMN fact",
        "ALTER TABLE incidents DROP COLUMN over_at",
    ),
    "0012": tuple(
        f"ALTER TABLE attempts DROP COLUMN {name}" for name in ("mttf_seconds", "interval_steps", "advised_steps")
    ),
    "0011": ("ALTER TABLE attempts DROP COLUMN restarts_lent",),
    "0010": ("DROP TABLE link_rounds",),
    "0009": ("DROP TABLE looks",),
    "0008": ("DROP INDEX verdicts_by_word",),
}
"""How to take back what a migration made; those before are not taken back by any test."""


def back_to(transaction: LedgerTransaction, version: str) -> None:
    """Leave the tables as a program of that schema had them; what is in the columns that go is lost."""
    for made, statements in MADE.items():
        for statement in statements if made > version else ():
            transaction.connection.execute(text(statement))
    transaction.connection.execute(text(f"UPDATE alembic_version SET version_num = '{version}'"))
