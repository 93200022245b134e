from __future__ import annotations

import ast
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, Table, create_engine, text

import tasks.ledger.schema
from profiles.errors import Permanent
from tasks.ledger.database import parse_url
from tasks.ledger.ledger import Ledger
from tasks.ledger.rows import to_row
from tasks.ledger.tables import METADATA, SCHEMA
from tests.support.builders.ledgers import a_person, a_run
from tests.support.running.made_once import UPGRADE, laid_once
from tests.support.servers.postgres_server import PostgresServer
from workflows.model.records import UNVERIFIED

pytest_plugins = ["tests.support.servers.ledger_fixtures"]


@pytest.fixture(autouse=True)
def made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ledger by its migrations, which elsewhere run once."""
    monkeypatch.setattr(tasks.ledger.schema, "_upgrade", UPGRADE)


def test_the_migrations_end_at_the_schema_that_the_program_expects() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(tasks.ledger.schema.__file__).parent / "migrations"))
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [SCHEMA]


def test_migrating_an_empty_database_gives_exactly_the_tables_of_the_program(ledger: Ledger) -> None:
    with ledger.database.reading() as transaction:
        context = MigrationContext.configure(transaction.connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []


def test_the_tables_that_other_tests_copy_are_those_of_the_migrations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks.ledger.schema, "_upgrade", laid_once(UPGRADE))
    laid: list[object] = []
    for name in ("migrated", "copied"):
        ledger = Ledger(f"sqlite:///{tmp_path}/{name}.sqlite")
        ledger.open_run(a_run())
        with ledger.database.reading() as transaction:
            found = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"
            laid.append(transaction.connection.exec_driver_sql(found).all())
        ledger.close()
    assert laid[0] == laid[1]


def test_migrations_are_frozen_copies_that_import_nothing_of_ours() -> None:
    for path in (Path(tasks.ledger.schema.__file__).parent / "migrations" / "versions").glob("v*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        modules = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
        modules |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        assert {name.partition(".")[0] for name in modules} <= {"__future__", "alembic", "sqlalchemy"}, path.name


def _stamp(ledger: Ledger, version: str) -> None:
    """Say that the ledger has another schema."""
    with ledger.database.writing() as transaction:
        transaction.connection.execute(text(f"UPDATE alembic_version SET version_num = '{version}'"))


def test_a_ledger_of_a_development_version_is_refused_and_says_what_to_do(ledger_url: str, ledger: Ledger) -> None:
    ledger.open_run(a_run())
    for version in (f"{number:04}" for number in range(1, 13)):
        _stamp(ledger, version)
        older = Ledger(ledger_url)
        says = rf"schema {version}, of a development version.*a new one.*PRIMUS_LEDGER_URL.*brings it to 0013;"
        with pytest.raises(Permanent, match=says + " nothing was changed"):
            older.runs()
        with pytest.raises(Permanent, match=says):
            older.open_run(a_run())
        older.close()
    _stamp(ledger, SCHEMA)
    same = Ledger(ledger_url)
    assert [run.name for run in same.runs()] == ["demo"]
    same.close()


def _at_0013(url: str) -> None:
    """Make a ledger as 0013 left it, with a run that waits and two that do not."""
    config = Config()
    config.set_main_option("script_location", str(Path(tasks.ledger.schema.__file__).parent / "migrations"))
    engine = create_engine(parse_url(url))
    with engine.connect() as connection, connection.begin():
        config.attributes["connection"] = connection
        command.upgrade(config, "0013")
        connection.execute(text("INSERT INTO ledger (id, created_at) VALUES ('the-same', 1.0)"))
        runs = Table("runs", MetaData(), autoload_with=connection)
        for name, why in _WHYS.items():
            row = {key: value for key, value in to_row(a_run(name, why=why)).items() if key in runs.c}
            connection.execute(runs.insert().values(row))
    engine.dispose()


_WHYS = {
    "away": "attempt 1 makes progress [waits, training is left alone: the API [of a] is away]",
    "steps": "attempt 1 makes progress",
    "unheard": "up [by the second path: rank 0 is at step 9]",
}


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_ledger_of_0013_is_brought_up_and_says_what_its_runs_wait_for(
    database: str, tmp_path: Path, postgres: PostgresServer
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite" if database == "sqlite" else postgres.url(postgres.new_database())
    _at_0013(url)
    ledger = Ledger(url)
    runs = {run.name: run for run in ledger.runs()}
    assert {name: run.why for name, run in runs.items()} == _WHYS
    assert {name: (run.waits_for, run.goes_on, run.reason) for name, run in runs.items()} == {
        "away": ("the API [of a] is away", False, "attempt 1 makes progress"),
        "steps": ("", False, "attempt 1 makes progress"),
        "unheard": ("rank 0 is at step 9", True, "up"),
    }
    assert {(run.owner, tuple(run.tags)) for run in runs.values()} == {("", ())}
    assert ledger.identity() == "the-same"
    with ledger.database.reading() as transaction:
        context = MigrationContext.configure(transaction.connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []
    ledger.open_run(a_run())
    ledger.close()


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_what_people_did_before_somebody_checked_their_names_is_unverified(
    database: str, tmp_path: Path, postgres: PostgresServer
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite" if database == "sqlite" else postgres.url(postgres.new_database())
    _at_0013(url)
    asked = {"id": "q", "run": "steps", "incident": "i", "question": "?", "state": "approved", "asked_at": 1.0}
    asked |= {"expires_at": 9.0, "answered_at": 2.0, "answered_by": "ada@desk", "why": "spare"}
    engine = create_engine(parse_url(url))
    with engine.connect() as connection, connection.begin():
        tables = {name: Table(name, MetaData(), autoload_with=connection) for name in ("approvals", "history")}
        connection.execute(tables["approvals"].insert().values(asked))
        lines = [
            {"at": 1.0, "run": "steps", "subject": "s", "why": "w", "kind": kind, "data": data} for kind, data in _DID
        ]
        connection.execute(tables["history"].insert(), lines)
    engine.dispose()
    ledger = Ledger(url)
    given = ledger.approval("q")
    assert given is not None
    assert (given.answered_by, str(given.answerer)) == ("ada@desk", "ada@desk (unverified)")
    told = [(line.kind, line.by is not None) for line in ledger.history()]
    assert told == [(kind, place < 6) for place, (kind, _) in enumerate(_DID)]
    acts = ledger.story("steps").acts
    assert [act.what for act in acts] == ["train", "resume", "stop", "approve", "pause", "mode act"]
    assert {act.by for act in acts} == {UNVERIFIED}
    ledger.pause("steps", "look", by=a_person())
    assert ledger.story("steps").acts[-1].by == a_person()
    ledger.close()


_DID = [
    ("run", '{"created_at": 1.0, "resumed_at": null}'),
    ("run", '{"state": "pending", "resumed_at": 3.0}'),
    ("request", '{"kind": "stop"}'),
    ("approval", '{"state": "approved", "answered_by": "ada@desk"}'),
    ("paused", "{}"),
    ("mode", '{"mode":"act"}'),
    ("approval", '{"state": "waiting", "answered_by": "", "why": ""}'),
    ("run", '{"state": "running", "why": "goes on"}'),
    ("request", '{"kind": "wake"}'),
    ("lease", '{"fencing":1}'),
]
"""Kind and data of lines as older versions wrote them; the first six are people's acts."""


def test_a_refused_ledger_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger(f"sqlite:///{path}")
    ledger.open_run(a_run())
    _stamp(ledger, "0012")
    ledger.close()
    before = path.read_bytes()
    with pytest.raises(Permanent, match="0012"):
        Ledger(f"sqlite:///{path}").runs()
    assert path.read_bytes() == before


def test_a_ledger_of_the_present_schema_opens_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger(f"sqlite:///{path}")
    ledger.open_run(a_run())
    ledger.close()
    before = path.read_bytes()
    again = Ledger(f"sqlite:///{path}")
    assert [run.name for run in again.runs()] == ["demo"]
    again.close()
    assert path.read_bytes() == before


def test_a_ledger_of_a_newer_program_is_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    ledger = Ledger(url)
    _stamp(ledger, "9999")
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
