"""Rounds of tests between nodes that are under way, so that whoever goes on with a test need not measure them again."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Table, and_, or_, select

from tasks.ledger_columns import METADATA, packed, text, time, whole
from tasks.ledger_findings import put_cursor
from tasks.ledger_part import LedgerPart
from tasks.ledger_rows import from_row, to_row
from tasks.ledger_tables import CURSORS
from workflows.link_rounds import RoundRecord

KEPT_SECONDS = 86400.0
"""Rounds of a test with which nobody went on are forgotten when another one ends."""

LINK_ROUNDS = Table(
    "link_rounds",
    METADATA,
    text("cluster", key=True),
    whole("test", key=True),
    whole("step", key=True),
    whole("number"),
    text("asked"),
    time("at"),
    packed("told"),
)
"""`workflows.link_rounds.RoundRecord` of tests between nodes whose verdicts do not stand yet."""


class LinkLedger(LedgerPart):
    """Rounds of tests between nodes."""

    def link_rounds(self, cluster: str, test: int) -> list[RoundRecord]:
        """Those of one test, in their order."""
        query = select(LINK_ROUNDS).where(LINK_ROUNDS.c.cluster == cluster, LINK_ROUNDS.c.test == test)
        with self.database.reading() as transaction:
            rows = transaction.all(query.order_by(LINK_ROUNDS.c.step))
        return [from_row(RoundRecord, row) for row in rows]

    def keep_link_round(self, record: RoundRecord) -> None:
        """Write a round down, in place of what stands there for the same step. Safe to repeat."""
        row = to_row(record)
        key = {name: row[name] for name in ("cluster", "test", "step")}
        with self.database.writing() as transaction:
            if not transaction.insert_once(LINK_ROUNDS, row):
                transaction.update(LINK_ROUNDS, key, row)

    def end_link_test(self, cluster: str, test: int, cursor: str, at: float, missed: Sequence[str] = ()) -> None:
        """Its verdicts stand: `cursor` goes to its number, and its rounds go in the same moment. Safe to repeat.

        So do rounds of other tests with which nobody went on for a day. The cursors `missed` grow by one: in so many
        tests these links missed.
        """
        own = and_(LINK_ROUNDS.c.test == test, LINK_ROUNDS.c.cluster == cluster)
        with self.database.writing() as transaction:
            stands = transaction.one(select(CURSORS).where(CURSORS.c.name == cursor, CURSORS.c.position >= test))
            for name in missed if stands is None else ():
                known = transaction.one(select(CURSORS).where(CURSORS.c.name == name))
                put_cursor(transaction, name, 1 if known is None else known["position"] + 1, at)
            put_cursor(transaction, cursor, test, at)
            transaction.connection.execute(LINK_ROUNDS.delete().where(or_(own, LINK_ROUNDS.c.at < at - KEPT_SECONDS)))
