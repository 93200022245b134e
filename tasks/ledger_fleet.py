"""Nodes: what tests said about them and what we did to them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select

from tasks.ledger_database import Transaction
from tasks.ledger_part import LedgerPart, as_json
from tasks.ledger_rows import from_row, to_row
from tasks.ledger_tables import NODE_STATES, VERDICTS
from workflows.records import NodeRecord, VerdictRecord


@dataclass(frozen=True)
class BrakeCounts:
    """What the fleet-wide brake looks at."""

    quarantined: int
    """Nodes of the pool that we hold out of service now."""
    evictions: int
    """How often we took a node of the pool out of service in the window."""


class FleetLedger(LedgerPart):
    """Nodes of clusters."""

    def add_verdict(self, record: VerdictRecord) -> None:
        """Write what a test said; the same test of the same node at the same time is one verdict."""
        with self.database.writing() as transaction:
            if transaction.insert_once(VERDICTS, to_row(record)):
                why = f"{record.depth}: {record.verdict.value}"
                transaction.note("verdict", f"{record.cluster}/{record.node}", why, as_json(record))

    def verdicts(self, cluster: str, node: str | None = None, since: float = 0.0) -> list[VerdictRecord]:
        """Verdicts at `since` or later about one node or all of the cluster, in the order of their times."""
        query = select(VERDICTS).where(VERDICTS.c.cluster == cluster, VERDICTS.c.at >= since)
        if node is not None:
            query = query.where(VERDICTS.c.node == node)
        with self.database.reading() as transaction:
            rows = transaction.all(query.order_by(VERDICTS.c.at, VERDICTS.c.seq))
        return [from_row(VerdictRecord, row) for row in rows]

    def set_node(self, record: NodeRecord, *, run: str = "", fencing: int | None = None) -> None:
        """Write what we did to a node, before it is done; the same state since the same time is written once.

        Args:
            record: the node's new state.
            run: the run that asked for it.
            fencing: number of that run's driver; None: a person or the monitor.

        Raises:
            Fenced.
        """
        with self.database.writing(run, fencing, synced=True) as transaction:
            if transaction.insert_once(NODE_STATES, to_row(record)):
                transaction.note("node", f"{record.cluster}/{record.node}", record.why, as_json(record))

    def nodes(self, cluster: str) -> list[NodeRecord]:
        """The newest state of every node we ever touched, by name."""
        with self.database.reading() as transaction:
            return _newest(transaction, cluster)

    def node(self, cluster: str, name: str) -> NodeRecord | None:
        """The newest state of one node; None: we never touched it."""
        own = (NODE_STATES.c.cluster == cluster, NODE_STATES.c.node == name)
        with self.database.reading() as transaction:
            row = transaction.one(select(NODE_STATES).where(*own).order_by(NODE_STATES.c.seq.desc()).limit(1))
        return None if row is None else from_row(NodeRecord, row)

    def brake_counts(self, cluster: str, pool: str, since: float) -> BrakeCounts:
        """How many nodes of the pool are out by our hand, and how many we took out at `since` or later.

        A node under test after its quarantine is still out.
        """
        taken = select(func.count()).where(
            NODE_STATES.c.cluster == cluster,
            NODE_STATES.c.pool == pool,
            NODE_STATES.c.state == "quarantined",
            NODE_STATES.c.since >= since,
        )
        with self.database.reading() as transaction:
            evictions = transaction.connection.execute(taken).scalar_one()
            out = [node for node in _newest(transaction, cluster) if node.pool == pool]
        return BrakeCounts(sum(node.state in ("quarantined", "testing") for node in out), int(evictions))


def _newest(transaction: Transaction, cluster: str) -> list[NodeRecord]:
    last = select(func.max(NODE_STATES.c.seq)).where(NODE_STATES.c.cluster == cluster).group_by(NODE_STATES.c.node)
    rows = transaction.all(select(NODE_STATES).where(NODE_STATES.c.seq.in_(last)).order_by(NODE_STATES.c.node))
    return [from_row(NodeRecord, row) for row in rows]
