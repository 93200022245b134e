"""What a process makes anew for each home of a test, although it comes out the same: it is made once and copied then.

A home's archive of programs takes a third of a second of a processor, most of it for compiling; the tables of its
ledger take thirty milliseconds, most of it for Alembic's looks at its migrations. Tests of these two themselves put
back what makes them anew.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache

import pytest
from sqlalchemy import Connection

from tasks import programs_archive
from tasks.ledger import schema
from tasks.ledger.tables import LEDGER

Upgrade = Callable[[Connection, float], None]
COMPILED, UPGRADE = programs_archive.compiled, schema._upgrade
"""What makes them anew."""
STATEMENTS = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY rowid"


def laid_once(upgrade: Upgrade) -> Upgrade:
    """The same for every new SQLite ledger: the statements that the first one's migrations left."""
    left: list[str] = []

    def lay(connection: Connection, now: float) -> None:
        if connection.dialect.name != "sqlite" or connection.exec_driver_sql(STATEMENTS).first() is not None:
            upgrade(connection, now)
        elif not left:
            upgrade(connection, now)
            left[:] = connection.exec_driver_sql(STATEMENTS).scalars()
        else:
            for statement in left:
                connection.exec_driver_sql(statement)
            connection.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (schema.SCHEMA,))
            connection.execute(LEDGER.insert(), {"id": uuid.uuid4().hex, "created_at": now})

    return lay


@contextmanager
def made_once() -> Generator[None]:
    """Until the end of the session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs_archive, "compiled", cache(COMPILED))
        patch.setattr(schema, "_upgrade", laid_once(UPGRADE))
        yield
