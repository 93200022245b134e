"""Index what is read over all runs: the newest incidents, and the questions that wait."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing is changed but the time that a question takes."""
    op.create_index("incidents_by_time", "incidents", ["detected_at", "id"])
    op.create_index("approvals_by_state", "approvals", ["state", "asked_at"])
