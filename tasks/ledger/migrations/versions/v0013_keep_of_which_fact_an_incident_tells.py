"""Keep of which fact each incident tells, so that there is one of each, and when what was only told was over."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Float, Text

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Incidents of before name no fact: their ids, which were made of numbers, keep them apart."""
    op.add_column("incidents", Column("fact", Text))
    op.add_column("incidents", Column("over_at", Float(53)))
    op.create_index("incidents_by_fact", "incidents", ["fact"], unique=True)
