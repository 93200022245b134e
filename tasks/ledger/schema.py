"""Creating and upgrading the ledger's tables; many processes may try at once, one does it."""

from __future__ import annotations

import fcntl
import importlib
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, select, text

from profiles.errors import Permanent, Unavailable
from tasks.ledger.tables import LEDGER, SCHEMA

_ADVISORY_KEY = 7_205_759_403
"""Any number that nobody else uses in this PostgreSQL database."""
_FIRST_SCHEMA = "0013"
"""Of the first migration; a ledger with an older one is of a development version before the first release."""


def prepare(engine: Engine, path: Path | None, now: float, *, changes: bool = True) -> None:
    """Make the tables what this program expects; costs one query where they are.

    `path` is the file of the database (None for PostgreSQL), `now` in Unix seconds. Without `changes` they are only
    looked at: the file may not be written.

    Raises:
        Permanent: a newer program wrote this ledger, or a development version before the first release.
        Unavailable: the file is gone while its log is still there, or its tables are older ones and may not be changed.
    """
    if path is not None:
        _refuse_orphaned_log(path)
        if changes:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with engine.connect() as connection, connection.begin():
        if (found := _version(connection)) == SCHEMA:
            return
    if not changes:
        raise Unavailable(
            f"ledger {path}: it has schema {found or 'none'} and cannot be brought to {SCHEMA}, which this program "
            "reads, because it may not be written: let its owner open it once (`primus runs`), or read a copy of it"
        )
    with _alone(path):
        if path is not None:
            with engine.connect() as connection:
                connection.connection.cursor().execute("PRAGMA journal_mode=WAL").close()
        with engine.connect().execution_options(begin="BEGIN IMMEDIATE") as connection, connection.begin():
            if path is None:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_KEY})
            if _version(connection) != SCHEMA:
                _upgrade(connection, now)


def current_ledger_id(engine: Engine) -> str:
    """The identity of this ledger."""
    with engine.connect() as connection, connection.begin():
        return str(connection.execute(select(LEDGER.c.id)).scalar_one())


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    row = connection.execute(text("SELECT version_num FROM alembic_version")).first()
    if row is None:
        return None
    found = str(row.version_num)
    if found > SCHEMA:
        raise Permanent(
            f"the ledger has schema {found}, this program knows {SCHEMA}: use the newer primus-flows, "
            "or point PRIMUS_LEDGER_URL elsewhere; nothing was changed"
        )
    if found < _FIRST_SCHEMA:
        raise Permanent(
            f"the ledger has schema {found}, of a development version before the first release: start with a new one "
            "(move this one away, or point PRIMUS_LEDGER_URL elsewhere), or open it once with the last development "
            f"version, which brings it to {_FIRST_SCHEMA}; nothing was changed"
        )
    return found


def _upgrade(connection: Connection, now: float) -> None:
    # Imported by name here: Alembic takes longer to load than everything else, and is needed once in a ledger's life.
    config = importlib.import_module("alembic.config").Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    importlib.import_module("alembic.command").upgrade(config, "head")
    if connection.execute(select(LEDGER.c.id)).first() is None:
        connection.execute(LEDGER.insert(), {"id": uuid.uuid4().hex, "created_at": now})


def _refuse_orphaned_log(path: Path) -> None:
    log = path.with_name(path.name + "-wal")
    if not path.exists() and log.exists() and log.stat().st_size > 0:
        # SQLite would delete the log, and with it writes that were already promised.
        raise Unavailable(f"ledger {path}: the file has vanished but {log.name} is still there; put the file back")


@contextmanager
def _alone(path: Path | None) -> Generator[None]:
    if path is None:
        yield
        return
    with path.with_name(path.name + ".opening").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
