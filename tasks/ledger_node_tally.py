"""How many nodes of each pool are out of service, and how often we took one out: counted once, then kept.

The brake asks at every settlement, and a ledger may tell of many thousand states of nodes. What was counted stays true
while nobody else has written one; that is asked of the same transaction, and else everything is counted anew.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import func, select

from tasks.ledger_database import Transaction
from tasks.ledger_fleet import OUT
from tasks.ledger_tables import NODE_STATES

Stand = tuple[int, int]
"""Number of the newest row about a node, and how many rows there are: rows are added, never changed."""


@dataclass
class Tally:
    """Where the nodes of one cluster stand."""

    cluster: str
    stand: Stand
    out: dict[str, str] = field(default_factory=dict[str, str])
    """Nodes that we hold out of service, with their pool."""
    quarantined: Counter[str] = field(default_factory=Counter[str])
    """Pool -> how many of them."""
    taken: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict[str, list[float]](list))
    """Pool -> when we took one of its nodes out, in order."""

    def evictions(self, pool: str, since: float) -> int:
        """How often we took one of the pool out at `since` or later."""
        times = self.taken[pool]
        return len(times) - bisect_left(times, since)

    def add(self, taken: Sequence[tuple[str, str]], at: float, stand: Stand) -> None:
        """Nodes were taken out, each with its pool; they were not out before."""
        for node, pool in taken:
            self.out[node] = pool
            self.quarantined[pool] += 1
            insort(self.taken[pool], at)
        self.stand = stand


def tally_of(transaction: Transaction, cluster: str, before: Tally | None) -> Tally:
    """The tally as the transaction sees it; `before` where it still holds."""
    stand = stand_of(transaction)
    if before is not None and (before.cluster, before.stand) == (cluster, stand):
        return before
    query = select(NODE_STATES.c.node, NODE_STATES.c.state, NODE_STATES.c.pool, NODE_STATES.c.since)
    rows = transaction.all(query.where(NODE_STATES.c.cluster == cluster).order_by(NODE_STATES.c.seq))
    newest = {str(row["node"]): row for row in rows}
    made = Tally(cluster, stand)
    made.out = {node: str(row["pool"]) for node, row in newest.items() if row["state"] in OUT}
    made.quarantined.update(made.out.values())
    for row in rows:
        if row["state"] == "quarantined":
            insort(made.taken[str(row["pool"])], float(row["since"]))
    return made


def stand_of(transaction: Transaction) -> Stand:
    """How far the table has come.

    SQLite has one writer at a time, so its newest number tells all. In PostgreSQL a row with a lower number may become
    visible after one with a higher: there the rows are counted as well.
    """
    newest = func.coalesce(func.max(NODE_STATES.c.seq), 0)
    if transaction.connection.dialect.name == "sqlite":
        return int(transaction.connection.execute(select(newest)).scalar_one()), 0
    last, number = transaction.connection.execute(select(newest, func.count(NODE_STATES.c.seq))).one()
    return int(last), int(number)
