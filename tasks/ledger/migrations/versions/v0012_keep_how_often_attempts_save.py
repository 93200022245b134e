"""Keep how often each attempt is told to save, what it measured to be best, and the failures that this counted with."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Float

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Attempts of before saved as their profile said."""
    op.add_column("attempts", Column("mttf_seconds", Float(53)))
    op.add_column("attempts", Column("interval_steps", BigInteger))
    op.add_column("attempts", Column("advised_steps", BigInteger))
