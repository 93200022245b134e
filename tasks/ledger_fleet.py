"""Nodes: what we did to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import func, select

from tasks.ledger_database import Transaction
from tasks.ledger_part import LedgerPart, as_json
from tasks.ledger_rows import from_row, to_row
from tasks.ledger_tables import NODE_STATES
from workflows.fleet import BrakeState, brake_trips
from workflows.records import NodeRecord

OUT = ("quarantined", "testing")
"""States in which we hold a node out of service: one under test after its quarantine is still out."""


@dataclass(frozen=True)
class BrakeCounts:
    """What the fleet-wide brake looks at."""

    out: tuple[str, ...]
    """Nodes of the pool that we hold out of service now, by name."""
    evictions: int
    """How often we took a node of the pool out of service in the window."""

    @property
    def quarantined(self) -> int:
        """How many are out."""
        return len(self.out)


class FleetLedger(LedgerPart):
    """Nodes of clusters."""

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
            if record.state in OUT:
                queue_up(transaction, record.cluster, record.pool)
            _write(transaction, record)

    def take_out(
        self, records: Sequence[NodeRecord], brake: BrakeState | None, *, run: str = "", fencing: int | None = None
    ) -> str:
        """Write that nodes leave service, all of them or none, unless that is more than the brake allows.

        One transaction looks and writes, and those of one pool follow each other: however many drivers come at once,
        the brake's limits hold. A node that is out already stays as it is and is not counted again, so this is safe to
        repeat.

        Args:
            records: the nodes' new state, `quarantined`; one or more nodes of one pool.
            brake: the pool's size and limits (what is out is read here); None: a person said that it may be too many.
            run: the run that asks.
            fencing: number of that run's driver; None: a person or the monitor.

        Returns:
            Why the brake tripped; "" where every node is out.

        Raises:
            Fenced.
        """
        cluster, pool = records[0].cluster, records[0].pool
        with self.database.writing(run, fencing, synced=True) as transaction:
            queue_up(transaction, cluster, pool)
            held = {item.node for item in _newest(transaction, cluster) if item.state in OUT}
            fresh = [item for item in records if item.node not in held]
            if brake is not None and fresh:
                counts = _counts(transaction, cluster, pool, fresh[0].since - brake.limits.window_seconds)
                now = replace(brake, quarantined=counts.out, evictions=counts.evictions)
                if reason := brake_trips(now, len(fresh)):
                    return reason
            for record in fresh:
                _write(transaction, record)
        return ""

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
        """Which nodes of the pool are out by our hand, and how many we took out at `since` or later."""
        with self.database.reading() as transaction:
            return _counts(transaction, cluster, pool, since)


def queue_up(transaction: Transaction, cluster: str, pool: str) -> None:
    """Whoever takes nodes of one pool out waits for whoever does so now: nobody comes between a look and its write.

    The lock is the row that counts changes, as for a run; the slash keeps it apart from the name of any run.
    """
    transaction.touch(f"brake/{cluster}/{pool}")


def _write(transaction: Transaction, record: NodeRecord) -> None:
    if transaction.insert_once(NODE_STATES, to_row(record)):
        transaction.note("node", f"{record.cluster}/{record.node}", record.why, as_json(record))


def _counts(transaction: Transaction, cluster: str, pool: str, since: float) -> BrakeCounts:
    taken = select(func.count()).where(
        NODE_STATES.c.cluster == cluster,
        NODE_STATES.c.pool == pool,
        NODE_STATES.c.state == "quarantined",
        NODE_STATES.c.since >= since,
    )
    evictions = transaction.connection.execute(taken).scalar_one()
    out = tuple(item.node for item in _newest(transaction, cluster) if item.pool == pool and item.state in OUT)
    return BrakeCounts(out, int(evictions))


def _newest(transaction: Transaction, cluster: str) -> list[NodeRecord]:
    last = select(func.max(NODE_STATES.c.seq)).where(NODE_STATES.c.cluster == cluster).group_by(NODE_STATES.c.node)
    rows = transaction.all(select(NODE_STATES).where(NODE_STATES.c.seq.in_(last)).order_by(NODE_STATES.c.node))
    return [from_row(NodeRecord, row) for row in rows]
