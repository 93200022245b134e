"""Steps of a bootstrap: which were begun, how often, and what their proofs said."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Float, Text

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "bootstrap_steps",
        Column("cluster", Text, primary_key=True, nullable=False),
        Column("stage", Text, primary_key=True, nullable=False),
        Column("subject", Text, primary_key=True, nullable=False),
        Column("wanted", Text, nullable=False),
        Column("state", Text, nullable=False),
        Column("tries", BigInteger, nullable=False),
        Column("began_at", Float(53), nullable=False),
        Column("ended_at", Float(53), nullable=True),
        Column("why", Text, nullable=False),
    )
