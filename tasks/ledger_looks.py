"""The past of nodes in figures alone, packed: written with each verdict, read for a whole fleet at once.

Looks of many nodes lie in one row, as they were written: 12,500 nodes make 64 rows a night. Each row belongs to one
shard of the cluster's nodes, so that the past of one node is read without that of all others.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import select

from profiles.suite_words import PAST_DAYS
from tasks.ledger_database import Transaction
from tasks.ledger_part import LedgerPart
from tasks.ledger_tables import LOOKS
from workflows.looks import Looks, looks_of, pack, unpack
from workflows.records import VerdictRecord

SHARDS = 64
"""Parts of a cluster's nodes. Reading one node reads a month of its shard: 3 MB among 12,500 nodes of 60 checks."""
DAY_SECONDS = 86400.0


class LookLedger(LedgerPart):
    """What tests measured."""

    def looks(self, cluster: str, nodes: Sequence[str], since: float) -> list[Looks]:
        """Looks at nodes in the order in which they were written; those of other nodes and older ones are among them.

        Args:
            cluster: its name.
            nodes: names of nodes.
            since: Unix seconds; nothing is left out that was seen later, as far as `PAST_DAYS` back.
        """
        shards = sorted({shard_of(node) for node in nodes})
        wanted = [LOOKS.c.cluster == cluster, LOOKS.c.last_at >= since]
        if len(shards) < SHARDS:
            wanted.append(LOOKS.c.shard.in_(shards))
        with self.database.reading() as transaction:
            rows = transaction.connection.execute(select(LOOKS.c.seq, LOOKS.c.packed).where(*wanted)).all()
        # Put into order here: the database would carry 200 MB along.
        return [unpack(packed) for _, packed in sorted(rows, key=lambda row: row[0])]


def keep_looks(transaction: Transaction, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write down what `look_rows` made, and forget what is too old where something is added."""
    transaction.insert_all(LOOKS, rows)
    too_old = LOOKS.c.last_at < transaction.at - PAST_DAYS * DAY_SECONDS
    for cluster in {row["cluster"] for row in rows}:
        shards = {row["shard"] for row in rows if row["cluster"] == cluster}
        old = LOOKS.delete().where(LOOKS.c.cluster == cluster, LOOKS.c.shard.in_(shards), too_old)
        transaction.connection.execute(old)


def look_rows(records: Iterable[VerdictRecord]) -> list[dict[str, Any]]:
    """The rows of `LOOKS` that verdicts make."""
    parts: dict[tuple[str, int], list[VerdictRecord]] = {}
    for record in records:
        parts.setdefault((record.cluster, shard_of(record.node)), []).append(record)
    return [
        {"cluster": cluster, "shard": shard, "last_at": max(looks.times), "packed": pack(looks)}
        for (cluster, shard), some in sorted(parts.items(), key=lambda part: part[0])
        for looks in looks_of(some)
    ]


def shard_of(node: str) -> int:
    """The part that a node belongs to, for ever."""
    return zlib.crc32(node.encode()) % SHARDS
