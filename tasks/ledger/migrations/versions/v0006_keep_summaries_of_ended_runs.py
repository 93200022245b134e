"""Keep summaries of ended runs: where their time went, without reading every step again."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Float, LargeBinary, Text

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Runs of before get theirs when somebody first asks for a report that holds them."""
    op.create_table(
        "summaries",
        Column("run", Text, primary_key=True, nullable=False),
        Column("begin", Float(53), nullable=False),
        Column("end", Float(53), nullable=False),
        Column("gpus", BigInteger, nullable=False),
        Column("nodes", BigInteger, nullable=False),
        Column("price_per_gpu_hour", Float(53)),
        Column("currency", Text, nullable=False),
        Column("by_state", Text, nullable=False),
        Column("lost_by_class", Text, nullable=False),
        Column("stretches", LargeBinary, nullable=False),
    )
