"""Keep the rounds of tests between nodes while a test is under way: whoever goes on with it measures none again."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Float, LargeBinary, Text

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """It begins empty."""
    op.create_table(
        "link_rounds",
        Column("cluster", Text, primary_key=True, nullable=False),
        Column("test", BigInteger, primary_key=True, nullable=False, autoincrement=False),
        Column("step", BigInteger, primary_key=True, nullable=False, autoincrement=False),
        Column("number", BigInteger, nullable=False, autoincrement=False),
        Column("asked", Text, nullable=False),
        Column("at", Float(53), nullable=False),
        Column("told", LargeBinary, nullable=False),
    )
