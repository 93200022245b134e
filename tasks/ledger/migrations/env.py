"""Alembic's entry: migrates on the connection that `tasks.ledger.schema` hands over, in its transaction."""

from __future__ import annotations

from alembic import context

from tasks.ledger.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
