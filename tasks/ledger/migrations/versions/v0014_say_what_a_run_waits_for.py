"""Give what a run waits for columns of its own; until now programs read it out of the sentence for people."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Boolean, Column, Text, column, false, select, table

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_RUNS = table("runs", column("name"), column("why"), column("waits_for"), column("goes_on"))
_MARKS = ((" [waits, training is left alone: ", False), (" [by the second path: ", True))


def upgrade() -> None:
    """Add the columns, and fill them in for runs that wait at this moment."""
    op.add_column("runs", Column("waits_for", Text, nullable=False, server_default=""))
    op.add_column("runs", Column("goes_on", Boolean, nullable=False, server_default=false()))
    connection = op.get_bind()
    for mark, goes_on in _MARKS:
        waiting = select(_RUNS.c.name, _RUNS.c.why).where(_RUNS.c.why.contains(mark, autoescape=True))
        for name, why in connection.execute(waiting).all():
            told = {"waits_for": why.partition(mark)[2].removesuffix("]"), "goes_on": goes_on}
            connection.execute(_RUNS.update().where(_RUNS.c.name == name).values(**told))
