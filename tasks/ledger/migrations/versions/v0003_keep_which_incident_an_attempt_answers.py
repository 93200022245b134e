"""Keep which incident an attempt answers: one that does keeps its run's place in the queue."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Text

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Attempts of before are as if people had asked for them."""
    op.add_column("attempts", Column("incident", Text, nullable=False, server_default=""))
