from __future__ import annotations

import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from profiles.errors import Permanent, Unavailable
from profiles.vocabulary import RunState
from tasks.ledger import database
from tasks.ledger.ledger import Ledger
from tests.support.builders.ledgers import a_run, an_attempt, driven
from tests.support.servers.postgres_server import PostgresServer
from workflows.model.records import StepRow

pytest_plugins = ["tests.support.servers.ledger_fixtures"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "ledger.sqlite"


@pytest.fixture
def file_ledger(path: Path) -> Iterator[Ledger]:
    opened = Ledger(f"sqlite:///{path}")
    yield opened
    opened.close()


@pytest.fixture
def reader(file_ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    """Who may read the file that another one writes, but not write it."""
    driven(file_ledger)
    monkeypatch.setattr(database, "may_write", lambda _path: False)
    opened = Ledger(f"sqlite:///{path}")
    yield opened
    opened.close()


def test_who_may_only_read_sees_what_the_living_writer_writes(reader: Ledger, file_ledger: Ledger) -> None:
    assert reader.run("demo") == a_run()
    file_ledger.open_run(a_run("second"))
    assert reader.run("second") == a_run("second")


@pytest.mark.usefixtures("reader")
def test_who_may_only_read_sees_what_a_writer_left_and_what_the_next_one_writes(
    reader: Ledger, file_ledger: Ledger, path: Path
) -> None:
    file_ledger.close()
    assert not path.with_name("ledger.sqlite-wal").exists()
    assert reader.run("demo") == a_run()
    assert not path.with_name("ledger.sqlite-wal").exists(), "nothing is made"
    with sqlite3.connect(path) as other:
        other.execute("UPDATE runs SET why = 'changed'")
    other.close()
    changed = reader.run("demo")
    assert changed is not None
    assert changed.why == "changed"


def test_who_may_only_read_writes_nothing_and_brings_no_older_ledger_up(reader: Ledger, path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be written: check the file's and folder's owner and mode"):
        reader.open_run(a_run("second"))
    with sqlite3.connect(path) as other:
        other.execute("UPDATE alembic_version SET version_num = '0013'")
    other.close()
    reader.close()
    with pytest.raises(Unavailable, match=r"it has schema 0013 .* let its owner open it once \(`primus runs`\)"):
        reader.runs()


def test_a_new_ledger_makes_its_folder_for_its_owner_only(file_ledger: Ledger, path: Path) -> None:
    file_ledger.runs()
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_ledger_that_is_moved_away_is_noticed_and_nothing_is_lost_once_it_is_back(
    file_ledger: Ledger, path: Path
) -> None:
    fencing = driven(file_ledger)
    away = path.with_name("away")
    path.rename(away)
    for attempt in (lambda: file_ledger.plan_attempt(fencing, an_attempt()), file_ledger.runs):
        with pytest.raises(Unavailable, match="vanished: put it back"):
            attempt()
    assert not path.exists()
    away.rename(path)
    assert file_ledger.plan_attempt(fencing, an_attempt()) == an_attempt()
    assert file_ledger.attempts("demo") == [an_attempt()]


def test_a_newcomer_does_not_start_an_empty_ledger_over_the_log_of_one_that_was_moved(
    file_ledger: Ledger, path: Path
) -> None:
    driven(file_ledger)
    away = path.with_name("away")
    path.rename(away)
    newcomer = Ledger(f"sqlite:///{path}")
    with pytest.raises(Unavailable, match="vanished"):
        newcomer.runs()
    away.rename(path)
    assert newcomer.run("demo") == a_run()
    newcomer.close()


def test_a_ledger_that_was_closed_while_its_file_vanished_does_not_start_a_new_one(
    file_ledger: Ledger, path: Path
) -> None:
    driven(file_ledger)
    file_ledger.close()
    away = path.with_name("away")
    path.rename(away)
    with pytest.raises(Unavailable, match="vanished"):
        file_ledger.runs()
    assert not path.exists()


def test_another_ledger_in_its_place_is_not_written_to(file_ledger: Ledger, path: Path, tmp_path: Path) -> None:
    fencing = driven(file_ledger)
    other = Ledger(f"sqlite:///{tmp_path}/other.sqlite")
    other.runs()
    other.close()
    bytes_before = (tmp_path / "other.sqlite").read_bytes()
    away = path.with_name("away")
    for reason in ("belongs to the old one", "another ledger"):
        path.rename(away)
        shutil.copy(tmp_path / "other.sqlite", path)
        with pytest.raises(Unavailable, match=reason):
            file_ledger.set_run_state("demo", fencing, RunState.RUNNING, "go")
        assert path.read_bytes() == bytes_before
        away.rename(path)
        assert file_ledger.run("demo") == a_run()
        # Closing plays the log into the file, so the second time there is none that would give the swap away.
        file_ledger.close()
        file_ledger.runs()


def test_a_copy_of_the_same_ledger_in_its_place_is_taken(file_ledger: Ledger, path: Path) -> None:
    fencing = driven(file_ledger)
    file_ledger.close()
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    file_ledger.runs()
    copy.rename(path)
    assert file_ledger.set_run_state("demo", fencing, RunState.RUNNING, "go").why == "go"


def test_a_file_that_another_process_keeps_locked_is_reported_and_works_afterwards(
    file_ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.ledger.database._BUSY_SECONDS", 0.05)
    fencing = driven(file_ledger)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="another process"):
        file_ledger.plan_attempt(fencing, an_attempt())
    assert file_ledger.run("demo") == a_run(), "readers do not wait for writers"
    other.execute("ROLLBACK")
    other.close()
    assert file_ledger.plan_attempt(fencing, an_attempt()) == an_attempt()


def test_a_file_that_is_no_ledger_is_named(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this is a letter to my aunt " * 1000)
    with pytest.raises(Permanent, match="damaged"):
        Ledger(f"sqlite:///{path}").runs()
    assert path.read_bytes().startswith(b"this is a letter")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="folder"):
        Ledger(f"sqlite:///{tmp_path}/file/ledger.sqlite").runs()


FULL_DISK = """
import os, sys
from pathlib import Path
from profiles.errors import Unavailable
from tasks.ledger.ledger import Ledger
from tests.support.builders.ledgers import a_run, an_attempt, driven
folder = Path(sys.argv[1])
ledger = Ledger(f"sqlite:///{folder}/ledger.sqlite")
fencing = driven(ledger)
filler = folder / "filler"
with filler.open("wb", buffering=0) as file:
    try:
        while True:
            file.write(b"x" * 4096)
    except OSError:
        pass
planned = 0
try:
    while True:
        ledger.plan_attempt(fencing, an_attempt(planned + 1))
        planned += 1
except Unavailable as error:
    assert "free some space" in str(error), error
assert len(ledger.attempts("demo")) == planned
filler.unlink()
ledger.plan_attempt(fencing, an_attempt(planned + 1))
assert [attempt.number for attempt in ledger.attempts("demo")] == list(range(1, planned + 2))
print("survived")
"""


def test_a_full_disk_is_reported_and_the_same_write_succeeds_once_there_is_room(tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o size=1m tmpfs "$1" && exec "$0" -c "$2" "$1"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, sys.executable, str(tmp_path)]
    if subprocess.run([*command[:4], "true"], check=False, capture_output=True).returncode:
        pytest.skip("no user namespaces here: the ledger was NOT tried on a full disk")
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    done = subprocess.run([*command, FULL_DISK], check=False, capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "survived", done.stderr


def _use_in_child(ledger: Ledger, answers: multiprocessing.SimpleQueue[int]) -> None:
    ledger.add_steps("demo", 1, [StepRow(2, 2.0)])
    answers.put(len(ledger.steps("demo")))
    os._exit(0)  # without the exit handlers of whatever else this test session has imported


def test_a_forked_child_uses_connections_of_its_own(ledger: Ledger) -> None:
    driven(ledger)
    ledger.add_steps("demo", 1, [StepRow(1, 1.0)])
    context = multiprocessing.get_context("fork")
    answers: multiprocessing.SimpleQueue[int] = context.SimpleQueue()
    child = context.Process(target=_use_in_child, args=(ledger, answers))
    child.start()
    child.join(30)
    assert (child.exitcode, answers.get()) == (0, 2)
    ledger.add_steps("demo", 1, [StepRow(3, 3.0)])
    assert [row.step for row in ledger.steps("demo")] == [1, 2, 3]


def test_many_threads_share_one_ledger(ledger: Ledger) -> None:
    fencing = driven(ledger)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: ledger.plan_attempt(fencing, an_attempt(number)), range(1, 41)))
    assert [attempt.number for attempt in ledger.attempts("demo")] == list(range(1, 41))


def test_a_server_that_restarts_is_unavailable_meanwhile_and_loses_nothing(postgres: PostgresServer) -> None:
    ledger = Ledger(postgres.url(postgres.new_database()))
    fencing = driven(ledger)
    postgres.stop()
    try:
        for _ in range(2):
            with pytest.raises(Unavailable, match="check that it runs"):
                ledger.plan_attempt(fencing, an_attempt())
    finally:
        postgres.start()
    assert ledger.plan_attempt(fencing, an_attempt()) == an_attempt()
    ledger.close()


def test_a_wrong_password_and_an_absent_database_say_what_to_change(postgres: PostgresServer) -> None:
    database = postgres.new_database()
    url = postgres.locked(database, "right", tried="hidden")
    with pytest.raises(Permanent, match="check user and password") as refused:
        Ledger(url).runs()
    assert "hidden" not in str(refused.value)
    with pytest.raises(Permanent, match="createdb"):
        Ledger(postgres.url("absent")).runs()
    with pytest.raises(Permanent, match="grant rights"):
        Ledger(postgres.locked(database, "right")).runs()
