from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

import tasks.ledger.schema
from profiles.errors import Permanent
from tasks.ledger.ledger import Ledger
from tasks.ledger.tables import METADATA, SCHEMA
from tests.ledgers import a_run, an_attempt, an_incident, driven
from tests.older_ledgers import back_to
from tests.postgres_server import PostgresServer

pytest_plugins = ["tests.ledger_fixtures"]


def test_the_migrations_end_at_the_schema_that_the_program_expects() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(tasks.ledger.schema.__file__).parent / "migrations"))
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [SCHEMA]


def test_migrating_an_empty_database_gives_exactly_the_tables_of_the_program(ledger: Ledger) -> None:
    with ledger.database.reading() as transaction:
        context = MigrationContext.configure(transaction.connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []


def test_an_old_ledger_learns_which_incidents_were_over(ledger_url: str, ledger: Ledger) -> None:
    fencing = driven(ledger)
    for number in (1, 2, 3):
        ledger.plan_attempt(fencing, an_attempt(number))
    ledger.open_incident(fencing, an_incident())
    with ledger.database.writing() as transaction:
        transaction.connection.execute(text("UPDATE attempts SET first_step_at = 1000.0 + number WHERE number > 1"))
        back_to(transaction, "0006")
    newer = Ledger(ledger_url)
    assert [item.resumed_at for item in newer.incidents("demo")] == [1002.0]
    newer.close()


def test_a_ledger_of_a_newer_program_is_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    ledger = Ledger(url)
    with ledger.database.writing() as transaction:
        transaction.connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    ledger.close()
    with pytest.raises(Permanent, match=r"9999.*nothing was changed"):
        Ledger(url).runs()


def _open(url: str) -> tuple[int, str]:
    ledger = Ledger(url)
    ledger.open_run(a_run())
    found = len(ledger.runs())
    ledger.close()
    return found, ledger.identity()


def test_many_processes_may_open_a_new_ledger_at_once(tmp_path: Path, postgres: PostgresServer) -> None:
    for url in (f"sqlite:///{tmp_path}/new/ledger.sqlite", postgres.url(postgres.new_database())):
        with ProcessPoolExecutor(6, mp_context=multiprocessing.get_context("fork")) as pool:
            found = list(pool.map(_open, [url] * 6))
        [told] = set(found)
        assert told[0] == 1
        assert len(told[1]) == 32, "one identity, whoever made it"


def test_a_second_opening_does_not_load_the_migrations(tmp_path: Path) -> None:
    import subprocess
    import sys

    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    Ledger(url).runs()
    code = (
        f"import sys; from tasks.ledger.ledger import Ledger; Ledger({url!r}).runs(); print('alembic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
