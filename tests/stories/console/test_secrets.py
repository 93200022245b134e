"""Ten secrets are planted where people keep them; nothing that we write down may hold one of them."""

from __future__ import annotations

import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from profiles.vocabulary import RunState
from tasks.ledger.ledger import Ledger
from tests.support.harness.consoles import console
from tests.support.harness.many_runs import cause_kill
from tests.support.harness.stages import PROFILE
from tests.support.running.waiting import until
from tests.support.servers.postgres_server import PostgresServer
from tests.support.servers.prefect_servers import give_database

pytestmark = pytest.mark.story
pytest_plugins = ["tests.support.servers.ledger_fixtures"]
KEPT_BY_PEOPLE = (
    "AWS_SECRET_ACCESS_KEY",
    "GITHUB_TOKEN",
    "HF_TOKEN",
    "KUBE_TOKEN",
    "NGC_API_KEY",
    "SLACK_WEBHOOK_URL",
    "WANDB_API_KEY",
)
OUR_FILES = {"token", "prefect-auth"}
"""Where a secret of ours is kept, for the owner of the home only."""


def test_no_secret_is_written_down(postgres: PostgresServer) -> None:
    planted = {name: secrets.token_hex(16) for name in (*KEPT_BY_PEOPLE, "PRIMUS_TOKEN")}
    password, auth = secrets.token_hex(16), secrets.token_hex(16)
    words = {**planted, "the ledger's password": password, "the server's password": auth}
    assert len(words) == 10
    database = postgres.new_database()
    url = postgres.locked(database, password)
    postgres.run(f"ALTER DATABASE {database} OWNER TO locked")
    postgres.run("ALTER SCHEMA public OWNER TO locked", database)
    environment = {**planted, "PRIMUS_LEDGER_URL": url, "PREFECT_SERVER_API_AUTH_STRING": f"admin:{auth}"}
    with tempfile.TemporaryDirectory(prefix="primus-", ignore_cleanup_errors=True) as folder:
        home = Path(folder) / "home"
        with console(home, **environment) as made:
            made.password = f"admin:{auth}"
            give_database(home)
            made.up()
            ledger = Ledger(url)
            identity = made.ask("train/local", {"request": {"profile": str(PROFILE), "name": "open", "mode": "act"}})
            until("the run trains", lambda: ledger.run("open") and ledger.steps("open"), made.told)
            assert len(shown := environments(home)) >= 3, "server, runner and monitor; a driver is forked"
            assert [word for word in (password, auth) if word.encode() in b"".join(shown)] == []
            beside = made.primus("exec", "open", "--rank", "1", "--", "sh", "-c", "env; exit 7", code=7).stdout
            assert "PRIMUS_RANK=1" in beside.splitlines()
            assert [word for word in words.values() if word in beside] == []
            cause_kill("open", home, ledger)
            assert made.ended(identity)["type"] == "COMPLETED", made.told()
            assert ledger.story("open").run.state is RunState.SUCCEEDED
            made.ended(made.ask("report/local", {}))
            said = [made.primus("status", "open").stdout, made.primus("ledger", "--json").stdout]
            said += [made.primus("render", "train", str(PROFILE)).stdout]
            said += [str(made.post(f"/{what}/filter", {})) for what in ("flow_runs", "task_runs", "logs", "artifacts")]
            said += [str(made.post("/events/filter", {"limit": 50})), str(made.flow_runs("train/local"))]
            ledger.close()
        texts = {f"answer {number}": text.encode() for number, text in enumerate(said)}
        texts |= {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}
        texts["the ledger"] = dumped(postgres, database)
    assert len(texts) > 50, "homes hold the server's database, logs, manifests and what the ranks wrote"
    found = {
        f"{what} in {name}"
        for name, text in texts.items()
        for what, word in words.items()
        if word.encode() in text and name not in OUR_FILES
    }
    assert found == set()


def environments(home: Path) -> list[bytes]:
    """Of all processes that were started for the home, as others see them."""
    found = list[bytes]()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            found += [text for text in [path.read_bytes()] if str(home).encode() in text]
    return found


def dumped(postgres: PostgresServer, database: str) -> bytes:
    """Every row of every table."""
    with psycopg.connect(f"host={postgres.folder} user=owner dbname={database}") as connection:
        tables = connection.execute("select tablename from pg_tables where schemaname = 'public'").fetchall()
        assert len(tables) > 10
        rows = [connection.execute(f'select * from "{name}"'.encode()).fetchall() for (name,) in tables]
    return str(rows).encode()
