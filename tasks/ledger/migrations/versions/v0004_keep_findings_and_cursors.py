"""Keep what the monitor found, and how far those have come who go through the history."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Float, Text

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Both begin empty."""
    op.create_table(
        "findings",
        Column("id", Text, primary_key=True, nullable=False),
        *(Column(name, Text, nullable=False) for name in ("cluster", "kind", "subject", "run", "why", "action")),
        Column("first_at", Float(53), nullable=False),
        Column("last_at", Float(53), nullable=False),
        Column("closed_at", Float(53)),
    )
    op.create_index("findings_by_cluster", "findings", ["cluster", "closed_at"])
    op.create_table(
        "cursors",
        Column("name", Text, primary_key=True, nullable=False),
        Column("position", BigInteger, nullable=False, autoincrement=False),
        Column("at", Float(53), nullable=False),
    )
