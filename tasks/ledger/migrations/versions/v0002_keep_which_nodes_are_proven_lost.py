"""Keep which nodes an incident proved lost: their pods are removed without waiting, a text alone never does that."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Text

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Incidents of before have none: their nodes' conditions are waited for."""
    op.add_column("incidents", Column("lost_nodes", Text, nullable=False, server_default="[]"))
