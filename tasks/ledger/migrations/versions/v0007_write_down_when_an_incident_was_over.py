"""Write down when an incident was over: the column was there, and nobody filled it."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """It is over with the first step of the next attempt that made one."""
    op.execute(
        "UPDATE incidents SET resumed_at = (SELECT MIN(attempts.first_step_at) FROM attempts "
        "WHERE attempts.run = incidents.run AND attempts.number > incidents.attempt) WHERE resumed_at IS NULL"
    )
