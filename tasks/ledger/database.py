"""The database under the ledger: opening, transactions, fencing, noticing that it is gone, and writing a record once.

SQLite: write-ahead log, one writer at a time, readers never wait. Who may read the file but not write it (a copy, a
mount without that right) reads it as it stands; only writes are refused. A transaction that must outlive a power cut
(an attempt, an action, a lease: written before it is carried out) is synced to disk; others survive the death of any
process, which is all they need. PostgreSQL: row locks on the run's lease and counter do the same.
"""

from __future__ import annotations

import importlib
import json
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy
from sqlalchemy import URL, Connection, Engine, Executable, RowMapping, Table, event, select, text
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from profiles.errors import Fenced, NotFound, PrimusError, ProfileError, Unavailable
from tasks.ledger.errors import place_of, translated
from tasks.ledger.rows import Record, from_row, storable, to_changes, to_row, to_text
from tasks.ledger.schema import current_ledger_id, prepare
from tasks.ledger.tables import CHANGES, HISTORY, LEASES
from workflows.model.records import Actor

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


_BUSY_SECONDS = 5.0
"""How long a writer waits for another one: a third of the lease, so that a wait never costs the run its driver."""
NAMES_AT_ONCE = 500
"""Values in one `IN`: far below what any database takes."""
_POSTGRES = {
    "connect_timeout": 5,
    "tcp_user_timeout": 10_000,
    "application_name": "primus-flows",
    "options": "-c statement_timeout=10000 -c lock_timeout=5000 -c idle_in_transaction_session_timeout=30000",
}


def parse_url(url: str) -> URL:
    """The ledger's URL: `sqlite:///<path>` or `postgresql://user:password@host/database`.

    Raises:
        ProfileError: anything else; the message does not repeat the URL, it may hold a password.
    """
    field = "PRIMUS_LEDGER_URL"
    try:
        parsed = sqlalchemy.make_url(url)
    except ArgumentError:
        raise ProfileError(field, "is no database URL: use sqlite:///PATH or postgresql://USER@HOST/NAME") from None
    backend = parsed.get_backend_name()
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        raise ProfileError(field, f"{backend!r} is not supported: use sqlite:///PATH or postgresql://USER@HOST/NAME")
    if parsed.database in (None, "", ":memory:"):
        raise ProfileError(field, "a ledger in memory is lost with its process: name a file, sqlite:///PATH")
    return parsed


class LedgerTransaction:
    """What one transaction can do: read rows, write rows, and say in the history why."""

    def __init__(self, connection: Connection, at: float, run: str = "", by: Actor | None = None) -> None:
        self.connection = connection
        self.at = at
        """Now, for everything that is written."""
        self.run = run
        self.by = to_text(by)
        """Who does all this, as each of its lines of the history says."""

    def one(self, query: Executable) -> RowMapping | None:
        """The first row, or None."""
        return self.connection.execute(query).mappings().first()

    def all(self, query: Executable) -> Sequence[RowMapping]:
        """Every row."""
        return self.connection.execute(query).mappings().all()

    def insert_once(self, table: Table, row: Mapping[str, Any]) -> bool:
        """Insert unless a row with the same key stands there; True where it was inserted."""
        dialect = importlib.import_module(f"sqlalchemy.dialects.{self.connection.dialect.name}")
        insert = dialect.insert(table).on_conflict_do_nothing().execution_options(preserve_rowcount=True)
        return self.connection.execute(insert, dict(row)).rowcount > 0

    def insert_all(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert many rows in one go; those whose key stands there already are left out."""
        if rows:
            dialect = importlib.import_module(f"sqlalchemy.dialects.{self.connection.dialect.name}")
            self.connection.execute(dialect.insert(table).on_conflict_do_nothing(), [dict(row) for row in rows])

    def update(self, table: Table, key: Mapping[str, Any], changes: Mapping[str, Any]) -> bool:
        """Update the row with this key; False where there is none."""
        where = [table.c[name] == value for name, value in key.items()]
        return self.connection.execute(table.update().where(*where).values(**changes)).rowcount > 0

    def note(self, kind: str, subject: str, why: str, data: str = "{}", *, run: str | None = None) -> None:
        """Append a line to the history; `data` is JSON text."""
        row = {"at": self.at, "kind": kind, "subject": subject, "why": storable(why), "data": data, "by": self.by}
        self.connection.execute(HISTORY.insert(), row | {"run": self.run if run is None else run})

    def note_all(self, kind: str, lines: Sequence[tuple[str, str, str]], *, runs: Sequence[str] | None = None) -> None:
        """Append many lines of one kind, each with subject, why and data as JSON text; `runs`: about which, each."""
        one = {"at": self.at, "kind": kind, "run": self.run, "by": self.by}
        rows = [one | {"subject": subject, "why": storable(why), "data": data} for subject, why, data in lines]
        if runs is not None:
            rows = [row | {"run": run} for row, run in zip(rows, runs, strict=True)]
        if rows:
            self.connection.execute(HISTORY.insert(), rows)

    def touch(self, run: str) -> None:
        """Let watchers of `run` notice that something changed."""
        more = {"number": CHANGES.c.number + 1}
        if not self.update(CHANGES, {"run": run}, more) and not self.insert_once(CHANGES, {"run": run, "number": 1}):
            self.update(CHANGES, {"run": run}, more)

    def touch_all(self, runs: Sequence[str]) -> None:
        """The same for many runs, which are locked in the order of their names."""
        for start in range(0, len(runs), NAMES_AT_ONCE):
            some = sorted(runs[start : start + NAMES_AT_ONCE])
            self.insert_all(CHANGES, [{"run": run, "number": 0} for run in some])
            self.connection.execute(CHANGES.update().where(CHANGES.c.run.in_(some)).values(number=CHANGES.c.number + 1))

    def hold(self, fencing: int) -> None:
        """Stay the driver of the run until this transaction ends.

        Raises:
            Fenced: another driver took the run over, or nobody ever gave out this number.
        """
        query = select(LEASES.c.fencing, LEASES.c.host, LEASES.c.pid).where(LEASES.c.run == self.run)
        row = self.one(query.with_for_update())
        if row is None or row["fencing"] != fencing:
            holder = (
                f"process {row['pid']} on {row['host']} holds number {row['fencing']}" if row else "nobody holds it"
            )
            raise Fenced(f"run {self.run}: number {fencing} may not write any more, {holder}: this driver must stop")


class Database:
    """One ledger's database; safe for many threads, and for processes forked from this one.

    Args:
        url: see `parse_url`.
        clock: seconds since the epoch.

    Nothing is opened before the first transaction, so that a neighbour that is away is reported where it is needed.
    """

    def __init__(self, url: str, clock: Callable[[], float] = time.time) -> None:
        self.url = parse_url(url)
        self.clock = clock
        self._path = Path(str(self.url.database)).absolute() if self.url.get_backend_name() == "sqlite" else None
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._process = os.getpid()
        self._inode: tuple[int, int] | None = None
        self._view: _View | None = None
        """What the file was like when it was opened only to be read; None: it may be written."""
        self.ledger_id = ""
        """Known once it was opened."""

    @contextmanager
    def reading(self) -> Generator[LedgerTransaction]:
        """A consistent view for the length of the block.

        Raises:
            Unavailable, Permanent: see `tasks.ledger.errors`.
        """
        with translated(self.url), self._open().connect() as connection:
            if self._path is None:
                connection = connection.execution_options(isolation_level="REPEATABLE READ")  # noqa: PLW2901 - same one
            with connection.begin():
                yield LedgerTransaction(connection, self.clock())

    @contextmanager
    def writing(
        self, run: str = "", fencing: int | None = None, *, synced: bool = False, by: Actor | None = None
    ) -> Generator[LedgerTransaction]:
        """All of the block's writes or none.

        Args:
            run: the run whose watchers are told.
            fencing: the driver's number; None: a person or another process writes, not a driver.
            synced: on disk before it returns (SQLite; PostgreSQL always does so).
            by: the person whose act it is; None: we do it.

        Raises:
            Fenced: a newer driver holds the run; nothing was written.
            Unavailable, Permanent: see `tasks.ledger.errors`; nothing was written.
        """
        with translated(self.url), self._open(to_write=True).connect() as connection:
            if self._path is not None:
                self._set_synchronous(connection, "FULL" if synced else "NORMAL")
                connection = connection.execution_options(begin="BEGIN IMMEDIATE")  # noqa: PLW2901 - same one
            with connection.begin():
                transaction = LedgerTransaction(connection, self.clock(), run, by)
                if run:
                    # First, because its row lock makes writers about one run follow each other in PostgreSQL too.
                    transaction.touch(run)
                if fencing is not None:
                    transaction.hold(fencing)
                yield transaction
        self._still_there()

    @property
    def path(self) -> Path | None:
        """The file of SQLite; None for a server."""
        return self._path

    def damage(self) -> str:
        """What is wrong with the file, read from one end to the other; "" where nothing is, or a server answers.

        Raises:
            Unavailable, Permanent: see `tasks.ledger.errors`.
        """
        with self.reading() as transaction:
            if self._path is None:
                return ""
            found = [str(row["quick_check"]) for row in transaction.all(text("PRAGMA quick_check(3)"))]
        wrong = "; ".join(" ".join(line.split()) for line in found if line != "ok")
        return f"{place_of(self.url)}: the file is damaged: {wrong}" if wrong else ""

    def close(self) -> None:
        """Give the connections back; the next transaction opens new ones."""
        with self._lock:
            if self._engine is not None:
                self._engine.dispose(close=self._process == os.getpid())
            self._engine = None

    def _open(self, *, to_write: bool = False) -> Engine:
        with self._lock:
            if self._process != os.getpid():
                # A forked child must not speak on its parent's connections, nor close them.
                if self._engine is not None:
                    self._engine.dispose(close=False)
                self._engine, self._process = None, os.getpid()
            if self._engine is not None and self._path is not None and _inode(self._path) != self._inode:
                self._reopen_replaced()
            if self._engine is not None and self._view is not None and (to_write or self._changed()):
                self._engine.dispose()
                self._engine = None
            if self._engine is None:
                self._engine = self._opened()
            return self._engine

    def _opened(self) -> Engine:
        if self.ledger_id and self._path is not None and _inode(self._path) is None:
            raise self._vanished()
        self._view = _View.of(self._path) if self._path is not None and not may_write(self._path) else None
        engine = _engine(self.url, self._path, self._view)
        try:
            prepare(engine, self._path, self.clock(), changes=self._view is None)
            ledger_id = current_ledger_id(engine)
            if self.ledger_id not in ("", ledger_id):
                raise Unavailable(f"{place_of(self.url)}: another ledger was put in its place; put the right one back")
        except (PrimusError, SQLAlchemyError):
            engine.dispose()
            raise
        self.ledger_id = ledger_id
        self._inode = _inode(self._path) if self._path is not None else None
        return engine

    def _changed(self) -> bool:
        """Whether somebody wrote the file that this process may only read."""
        return self._path is not None and self._view != _View.of(self._path)

    def _reopen_replaced(self) -> None:
        if self._path is None or _inode(self._path) is None:
            raise self._vanished()
        log = self._path.with_name(self._path.name + "-wal")
        if log.exists() and log.stat().st_size > 0:
            # SQLite would play the old file's log into the new file and ruin both.
            raise Unavailable(
                f"{place_of(self.url)}: another file was put in its place while {log.name} belongs to the old one: "
                f"put the old file back, or stop all of primus and move {log.name} away"
            )
        if self._engine is not None:
            self._engine.dispose()
        self._engine = None

    def _still_there(self) -> None:
        """Raise where the file was deleted meanwhile: the write was lost and is repeated."""
        if self._path is not None and _inode(self._path) != self._inode:
            raise self._vanished()

    def _vanished(self) -> Unavailable:
        text = "the file has vanished: put it back; training is left alone and the write is tried again"
        return Unavailable(f"{place_of(self.url)}: {text}")

    @staticmethod
    def _set_synchronous(connection: Connection, level: str) -> None:
        driver = connection.connection
        if driver.info.get("synchronous") != level:
            cursor = driver.cursor()
            cursor.execute(f"PRAGMA synchronous={level}")
            cursor.close()
            driver.info["synchronous"] = level


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def may_write(path: Path) -> bool:
    """Whether this process may write a file and beside it, or make it where it is not there."""
    if not path.exists():
        return True  # making it tells what forbids it
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)


@dataclass(frozen=True)
class _View:
    """What tells that a database which is only read was changed by somebody."""

    size: int
    changed_at: int
    logged: bool
    """Its writer has it open, or was killed: what was written last stands in the log beside it."""

    @classmethod
    def of(cls, path: Path) -> _View | None:
        """Of the file as it is now; None where there is none."""
        try:
            status = path.stat()
        except OSError:
            return None
        log = path.with_name(path.name + "-wal")
        return cls(status.st_size, status.st_mtime_ns, log.exists() and log.stat().st_size > 0)

    def address(self, path: Path) -> str:
        """How SQLite opens it: with the log, or as a file that nobody writes, for which it makes no log of its own."""
        return f"{path.as_uri()}?mode=ro" + ("" if self.logged else "&immutable=1")


def _engine(url: URL, path: Path | None, view: _View | None = None) -> Engine:
    if path is None:
        return sqlalchemy.create_engine(url, connect_args=_POSTGRES, pool_pre_ping=True, pool_size=4, pool_timeout=10)
    address = str(path) if view is None else f"{view.address(path)}&uri=true"
    engine = sqlalchemy.create_engine(
        url.set(database=address) if view is None else f"sqlite:///{address}",
        connect_args={"timeout": _BUSY_SECONDS, "check_same_thread": False},
        pool_timeout=10,
    )

    def connected(driver: Any, _entry: ConnectionPoolEntry) -> None:
        # The library's own transactions begin too late and never IMMEDIATE: `begun` does it instead.
        driver.isolation_level = None

    def begun(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", begun)
    return engine


class LedgerPart:
    """A group of the ledger's methods over one `Database`."""

    database: Database


def create_or_get(
    transaction: LedgerTransaction, table: Table, record: Record, key: Mapping[str, Any], kind: str, why: str
) -> tuple[Record, bool]:
    """The record as it stands in the table, and whether this call put it there."""
    row = to_row(record)
    if transaction.insert_once(table, row):
        transaction.note(kind, "/".join(str(value) for value in key.values()), why, json.dumps(row, default=str))
        return record, True
    return get(transaction, table, type(record), key, kind), False


def get(
    transaction: LedgerTransaction,
    table: Table,
    record_type: type[Record],
    key: Mapping[str, Any],
    kind: str,
    *,
    lock: bool = False,
) -> Record:
    """The record with this key; `lock` keeps others from changing it until the transaction ends.

    Raises:
        NotFound: there is none.
    """
    query = select(table).where(*(table.c[name] == value for name, value in key.items()))
    found = transaction.one(query.with_for_update() if lock else query)
    if found is None:
        raise NotFound(f"the ledger knows no {kind} {'/'.join(str(value) for value in key.values())}")
    return from_row(record_type, found)


def change(
    transaction: LedgerTransaction,
    table: Table,
    record_type: type[Record],
    key: Mapping[str, Any],
    kind: str,
    changes: Mapping[str, object],
    *,
    noted: bool = True,
) -> Record:
    """Set fields of the record with this key and return it.

    Raises:
        NotFound: there is none.
        Permanent: a name that is no field.
    """
    values = to_changes(record_type, changes)
    subject = "/".join(str(value) for value in key.values())
    if values and not transaction.update(table, key, values):
        raise NotFound(f"the ledger knows no {kind} {subject}")
    if values and noted:
        transaction.note(kind, subject, str(values.get("why", "")), json.dumps(values, default=str))
    return get(transaction, table, record_type, key, kind)


def as_json(record: DataclassInstance) -> str:
    """The record as the history keeps it."""
    return json.dumps(to_row(record), default=str)
