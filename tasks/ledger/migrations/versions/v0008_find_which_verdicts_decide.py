"""Find which verdicts decide: the newest of each word, and failures that no pass has cleared."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing is changed but the time that a question takes."""
    op.create_index("verdicts_by_word", "verdicts", ["cluster", "verdict", "node", "depth", "at", "source"])
