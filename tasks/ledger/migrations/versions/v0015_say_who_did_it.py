"""Say who did it, and how that is known. Of what people did before, nobody checked a name."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, ColumnElement, Text, column, or_, table, text

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_HISTORY = table("history", column("kind"), column("data"), column("by"))
_OF_PEOPLE = (("run", '"created_at": ', ""), ("run", '"resumed_at": ', "null"), ("request", '"kind": "stop"', ""))
_ANSWERED = ("approval", '"answered_by": "', '"')
"""Kind of a line, what the data of those hold that tell of an act, and what must not follow it."""
_UNVERIFIED = '{"name": "", "known_by": "unverified", "claim": ""}'


def upgrade() -> None:
    """Add the columns; lines of the history that tell of people's acts are by somebody unverified."""
    for name in ("approvals", "history", "switches", "node_states"):
        op.add_column(name, Column("by", Text, nullable=False, server_default=""))
    where = text("\"by\" != ''")
    op.create_index("history_by_person", "history", ["run", "seq"], sqlite_where=where, postgresql_where=where)
    acts: list[ColumnElement[bool]] = [_HISTORY.c.kind.in_(("paused", "unpaused", "mode"))]
    for kind, said, but in (*_OF_PEOPLE, _ANSWERED):
        holds = (_HISTORY.c.kind == kind) & _HISTORY.c.data.contains(said, autoescape=True)
        acts.append(holds & ~_HISTORY.c.data.contains(said + but, autoescape=True) if but else holds)
    op.get_bind().execute(_HISTORY.update().where(or_(*acts)).values(by=_UNVERIFIED))
