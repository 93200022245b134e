"""Keep how many restarts in place each attempt may do without asking."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Attempts of before had no such right."""
    op.add_column(
        "attempts", Column("restarts_lent", BigInteger, nullable=False, autoincrement=False, server_default="0")
    )
