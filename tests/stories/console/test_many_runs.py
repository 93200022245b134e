"""Thirty runs driven at once on PostgreSQL, each with a fault."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.support.harness.consoles import console
from tests.support.harness.many_runs import calm_profile, drive_many, wide_cluster
from tests.support.servers.postgres_server import PostgresServer

pytestmark = [pytest.mark.story, pytest.mark.alone]  # it fills the machine
pytest_plugins = ["tests.support.servers.ledger_fixtures"]
RUNS = 30
STEPS = 200
"""At two a second: the first must not be through before a slow machine has begun the last."""


def test_thirty_runs_with_a_fault_each_all_come_back(postgres: PostgresServer) -> None:
    ledger_url, server = postgres.url(postgres.new_database()), postgres.url(postgres.new_database())
    with tempfile.TemporaryDirectory(prefix="primus-", ignore_cleanup_errors=True) as folder:
        environment = {
            "PRIMUS_LEDGER_URL": ledger_url,
            "PRIMUS_CLUSTER": str(wide_cluster(Path(folder), 2 * RUNS + 4)),
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": server.replace("postgresql", "postgresql+asyncpg", 1),
        }
        with console(Path(folder) / "home", **environment) as made:
            made.up()
            many = drive_many(made, calm_profile(Path(folder)), ledger_url, RUNS, steps=STEPS)
            assert many.bad == [], made.told()
            assert many.most_at_once >= 0.8 * RUNS, many.most_at_once
            # The ledger has a run's end first; its flow run tells the server afterwards.
            states = [made.ended(one["id"])["type"] for one in made.flow_runs("train/wide")]
            assert states == ["COMPLETED"] * RUNS
            logs = "".join(path.read_text(errors="replace") for path in (made.home / "logs").glob("*.log"))
            assert "database is locked" not in logs
            assert not list(made.home.rglob("*.db")), "nothing was written to SQLite"
