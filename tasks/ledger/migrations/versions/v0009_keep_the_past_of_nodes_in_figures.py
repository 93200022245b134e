"""Keep the past of nodes in figures alone: a month of a fleet's verdicts takes half a minute to read."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import context, op

from profiles.checks.catalogue import PAST_DAYS
from profiles.vocabulary import VerdictWord
from tasks.ledger.verdicts import DAY_SECONDS, look_rows
from workflows.model.records import VerdictRecord

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_VERDICTS = sa.text(
    "SELECT seq, cluster, node, verdict, depth, at, reasons, source FROM verdicts "
    "WHERE at >= :since AND seq > :last ORDER BY seq LIMIT 2000"
)
"""2,000 at once are about 16 MB."""


def upgrade() -> None:
    """Older verdicts than anybody compares with are left where they are."""
    looks = op.create_table(
        "looks",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("shard", sa.BigInteger, nullable=False),
        sa.Column("last_at", sa.Float(53), nullable=False),
        sa.Column("packed", sa.LargeBinary, nullable=False),
    )
    op.create_index("looks_by_shard", "looks", ["cluster", "shard", "last_at"])
    since = context.config.attributes["now"] - PAST_DAYS * DAY_SECONDS
    last = -1
    while rows := op.get_bind().execute(_VERDICTS, {"since": since, "last": last}).mappings().all():
        last = rows[-1]["seq"]
        # The watchers' conditions are no test: their verdicts never held figures, and are not kept with them.
        op.bulk_insert(looks, look_rows([_record(row) for row in rows if row["depth"] != "condition"]))


def _record(row: sa.RowMapping) -> VerdictRecord:
    _, cluster, node, word, depth, at, reasons, source = row.values()
    return VerdictRecord(cluster, node, VerdictWord(word), depth, at, tuple(json.loads(reasons)), source)
