"""Fixtures for a test module that says `pytest_plugins = ["tests.support.servers.ledger_fixtures"]`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tasks.ledger.ledger import Ledger
from tasks.ledger.tables import LEDGER, METADATA
from tests.support.builders.ledgers import Clock
from tests.support.servers.postgres_server import PostgresServer, missing_program, postgres_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    if missing_program():
        pytest.skip(missing_program())
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def ledger_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('ledger')}/ledger.sqlite"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.url(server.new_database())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(ledger_url: str, clock: Clock) -> Iterator[Ledger]:
    """An empty ledger, on each kind of database."""
    opened = Ledger(ledger_url, clock)
    yield opened
    with opened.database.writing() as transaction:
        for table in METADATA.tables.values():
            if table is not LEDGER:
                transaction.connection.execute(table.delete())
    opened.close()
