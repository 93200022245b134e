"""Whose a run is, and people's own words to find it by: runs that are there have neither."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Text

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("runs", Column("owner", Text, nullable=False, server_default=""))
    op.add_column("runs", Column("tags", Text, nullable=False, server_default="{}"))
