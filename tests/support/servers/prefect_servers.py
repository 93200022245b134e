"""Prefect servers of tests begin with a database that is migrated already: its migrations are most of an empty start.

It is made once for each version of Prefect and kept in `build/`, for all workers and all sessions on this machine.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest import mock

import prefect

from tests.support.running.waiting import patience

KEPT = Path(__file__).resolve().parents[3] / "build" / "prefect-databases"
START_SECONDS = patience(120)
"""Generous: a server that came too late fails every story of its worker."""


def migrated_database() -> Path:
    """A closed SQLite database as this version of Prefect leaves it after its migrations; nobody may write to it."""
    kept = KEPT / f"{prefect.__version__}.db"
    KEPT.mkdir(parents=True, exist_ok=True)
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=KEPT) as folder:
                _migrate(Path(folder) / "new.db").rename(kept)
    return kept


def _migrate(path: Path) -> Path:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")}
    environment = kept | {
        "PREFECT_HOME": str(path.parent / "home"),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{path}",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    command = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "--yes"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=10 * START_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with closing(sqlite3.connect(path)) as database:
        # All of it in the one file that is copied, nothing in a log beside it.
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        [mode] = database.execute("PRAGMA journal_mode=DELETE").fetchone()
    assert mode == "delete", mode
    return path


def give_database(home: Path) -> None:
    """What the first start of this PRIMUS_HOME's own server would have made; the home is new."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = home / "prefect"
    folder.mkdir()
    shutil.copyfile(migrated_database(), folder / "prefect.db")


@contextmanager
def migrated_harness() -> Generator[str]:
    """Prefect's own harness for tests, on a copy of the migrated database; the address of its server's API."""
    from prefect.settings import PREFECT_API_URL
    from prefect.testing import utilities

    def folder() -> str:
        made = tempfile.mkdtemp()
        shutil.copyfile(migrated_database(), Path(made) / "prefect-test.db")
        return made

    with mock.patch.object(utilities, "mkdtemp", folder), utilities.prefect_test_harness(START_SECONDS):
        yield str(PREFECT_API_URL.value())
