"""A private PostgreSQL server for tests: an empty cluster in a folder of its own, reached by a Unix socket only."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

UNPRIVILEGED = "nobody"
"""PostgreSQL refuses to run as root."""


def missing_program() -> str:
    """Why there can be no server here; "" where there can."""
    missing = [name for name in ("initdb", "postgres") if shutil.which(name) is None]
    return f"{' and '.join(missing)} not on PATH: the ledger was NOT tried on PostgreSQL" if missing else ""


class PostgresServer:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._as_user = {"user": UNPRIVILEGED, "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        if self._as_user:
            shutil.chown(folder, UNPRIVILEGED)
        arguments = ["initdb", "-D", f"{folder}/data", "-A", "trust", "-U", "owner", "--no-sync", "-E", "UTF8"]
        subprocess.run([*arguments, "--locale=C"], check=True, capture_output=True, cwd="/", **self._as_user)
        rules = folder / "data" / "pg_hba.conf"
        rules.write_text("local all locked scram-sha-256\n" + rules.read_text())

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            options = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=400"]
            self._process = subprocess.Popen(
                ["postgres", "-D", f"{self.folder}/data", "-k", str(self.folder), *options],
                stdout=log,
                stderr=log,
                cwd="/",
                **self._as_user,
            )
        deadline = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self._conninfo("postgres")).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(2)  # fast shutdown: clients are cut off
            self._process.wait(30)
            self._process = None

    def run(self, statement: str, database: str = "postgres") -> None:
        with psycopg.connect(self._conninfo(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    def locked(self, database: str, password: str, tried: str = "") -> str:
        """URL of a database for the one user who needs a password.

        Args:
            database: its name.
            password: the right one from now on.
            tried: the one in the URL; "": the right one.
        """
        self.run("DO $$BEGIN CREATE ROLE locked LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END$$")
        self.run(f"ALTER ROLE locked PASSWORD '{password}'")
        return self.url(database, f"locked:{tried or password}")

    def new_database(self, template: str = "template1") -> str:
        self._databases += 1
        name = f"ledger{self._databases}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def url(self, database: str, user: str = "owner") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def _conninfo(self, database: str) -> str:
        return f"host={self.folder} user=owner dbname={database}"


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as folder:
        server = PostgresServer(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()
