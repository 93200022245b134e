"""Thirty runs driven at once, a rank of each killed: everything on PostgreSQL beside everything on SQLite."""

from __future__ import annotations

import statistics
import tempfile
from contextlib import nullcontext
from pathlib import Path

from tests.support.harness.consoles import console
from tests.support.harness.many_runs import Many, calm_profile, drive_many, wide_cluster
from tests.support.servers.postgres_server import PostgresServer, missing_program, postgres_server

RUNS, STEPS = 30, 120


def driven(server: PostgresServer | None) -> tuple[Many, int]:
    """What became of them, and how often a log says that SQLite was locked."""
    with tempfile.TemporaryDirectory(prefix="primus-bench-", ignore_cleanup_errors=True) as folder:
        home, place = Path(folder) / "home", Path(folder)
        ledger_url = server.url(server.new_database()) if server else f"sqlite:///{home}/ledger.sqlite"
        environment = {"PRIMUS_LEDGER_URL": ledger_url, "PRIMUS_CLUSTER": str(wide_cluster(place, 2 * RUNS + 4))}
        if server:
            url = server.url(server.new_database()).replace("postgresql", "postgresql+asyncpg", 1)
            environment["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = url
        with console(home, **environment) as made:
            made.up()
            many = drive_many(made, calm_profile(place), ledger_url, RUNS, STEPS)
            logs = "".join(path.read_text(errors="replace") for path in (home / "logs").glob("*.log"))
            return many, logs.count("database is locked")


def tell(what: str, many: Many, locked: int) -> None:
    """One line."""
    back = [
        incident.resumed_at - incident.detected_at
        for story in many.stories
        for incident in story.troubles
        if incident.resumed_at is not None
    ]
    median = statistics.median(back) if back else float("nan")
    print(
        f"{what}: {len(many.stories) - len(many.bad)} of {len(many.stories)} ended right in {many.wall_seconds:.0f} s, "
        f"at most {many.most_at_once} at once; noticed -> first step again: median {median:.1f} s; "
        f"'database is locked' {locked} times"
    )


def main() -> int:
    """Print both; 1 where a run on PostgreSQL did not end right."""
    with nullcontext() if missing_program() else postgres_server() as server:
        bad = 0
        if server is None:
            print(missing_program())
        else:
            many, locked = driven(server)
            tell("PostgreSQL", many, locked)
            bad = len(many.bad) + locked
        tell("SQLite", *driven(None))
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
