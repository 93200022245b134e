"""What a driver leaves that died before it could write to the ledger, and where people read it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deployments.cli.train import show_status
from deployments.cli.why import show_why
from deployments.exit_codes import GOOD
from deployments.processes.driver import OwnDriver, driver_of, driver_that_took
from deployments.processes.last_words import driver_file, driver_log, driving_here
from deployments.screen.views import status_document
from profiles.request import TrainRequest
from profiles.vocabulary import RunState
from tasks.ledger.ledger import Ledger
from tasks.processes import MOST_CHARACTERS, NO_WORD, last_words, process_start, record, written
from tasks.runs.open import open_run
from tasks.settings import Settings
from tests.support.cases.rows import rows
from workflows.model.records import Driver, Lease


@pytest.fixture
def ledger(settings: Settings) -> Iterator[Ledger]:
    """With one run, `mine`."""
    made = Ledger(settings.ledger_url)
    open_run(TrainRequest(profile="demo", name="mine"), settings, made, time.time())
    yield made
    made.close()


@rows("deployments/last_words")
def test_the_last_words_are_the_error_that_it_did_not_survive(tmp_path: Path, log: str, words: str) -> None:
    (tmp_path / "driver.log").write_text(log)
    assert last_words(tmp_path / "driver.log") == words


def test_a_log_that_is_not_there_or_endless_is_told_too(tmp_path: Path) -> None:
    assert last_words(tmp_path / "driver.log") == NO_WORD
    (tmp_path / "driver.log").write_bytes(b"\xff" * 1_000_000)
    assert len(last_words(tmp_path / "driver.log")) <= MOST_CHARACTERS


def dead(home: Path, run: str, words: str) -> int:
    """Pid of a driver that this home gave the run, that said so and ended."""
    driver_log(home, run).parent.mkdir(parents=True, exist_ok=True)
    with driver_log(home, run).open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.stdin.read(); {words}"], stdin=subprocess.PIPE, stderr=log
        )
    record(driver_file(home, run), process.pid)
    process.communicate()
    return process.pid


def test_status_and_why_tell_what_killed_it(
    settings: Settings, ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    pid = dead(settings.home, "mine", "raise ImportError('no socks here')")
    told = f"its driver, process {pid}, ended before it took the run: ImportError: no socks here"
    assert status_document("mine", settings, ledger)["driver_end"] == told
    assert show_status("mine", as_json=False) == GOOD
    assert f"{told}\nwhen that is mended, go on: primus resume mine" in capsys.readouterr().out
    assert show_why("mine", as_json=False) == GOOD
    said = capsys.readouterr().out
    assert f"no driver is alive: nobody plans attempt 1; {told}" in said
    assert str(driver_log(settings.home, "mine")) in said


def test_who_took_the_run_and_died_is_told_so(settings: Settings, ledger: Ledger) -> None:
    pid = dead(settings.home, "mine", "raise OSError('gone')")
    given = written(driver_file(settings.home, "mine"))
    lease = ledger.acquire("mine", Driver(os.uname().nodename, pid, given.started_at), time.time(), lambda _: None)
    told = f"its driver, process {pid}, ended: OSError: gone"
    assert status_document("mine", settings, ledger)["driver_end"] == told
    ledger.set_run_state("mine", lease.fencing, RunState.SUCCEEDED, "attempt 1 completed", time.time())
    assert status_document("mine", settings, ledger)["driver_end"] == "", "nobody is missed"


def test_the_words_of_an_earlier_driver_are_not_those_of_the_last(tmp_path: Path) -> None:
    pid = dead(tmp_path, "r", "raise OSError('mine')")
    given = written(driver_file(tmp_path, "r"))
    here = os.uname().nodename
    later = Lease("r", 1, Driver(here, pid + 1, given.started_at + 100.0), 0.0)
    assert driver_of("r", later, tmp_path, 1.0).end == ""
    earlier = Lease("r", 1, Driver(here, pid + 1, given.started_at - 100.0), 0.0)
    assert driver_of("r", earlier, tmp_path, 1.0).end == "OSError: mine"


def test_a_driver_does_not_say_what_an_earlier_one_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead(tmp_path, "r", "raise OSError('earlier')")
    silent = subprocess.Popen([sys.executable, "-c", ""])
    silent.communicate()
    monkeypatch.setattr("deployments.processes.driver.forked_driver", lambda *_: silent.pid)
    assert OwnDriver(tmp_path, "http://127.0.0.1:9/api", forked=True).drive("r") == silent.pid
    assert driver_of("r", None, tmp_path, 1.0).end == NO_WORD


def test_a_driver_of_the_runner_leaves_them_too(tmp_path: Path) -> None:
    def fail() -> None:
        with driving_here(tmp_path, "r"):
            found = driver_of("r", None, tmp_path, 1.0)
            assert (found.alive, found.pid) == (True, os.getpid())
            raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        fail()
    assert last_words(driver_log(tmp_path, "r")) == "ValueError: no room"


def test_a_driver_has_a_run_once_it_holds_the_lease(
    settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver_file(settings.home, "mine").parent.mkdir(parents=True)
    record(driver_file(settings.home, "mine"), os.getpid())
    monkeypatch.setattr("deployments.processes.driver.CLAIM_SECONDS", 0.0)
    assert driver_that_took("mine", ledger, settings.home)[1] is False, "it lives, and has not taken it"
    me = Driver(os.uname().nodename, os.getpid(), process_start(os.getpid()) or 0.0)
    ledger.acquire("mine", me, time.time(), lambda _: None)
    seen, took = driver_that_took("mine", ledger, settings.home)
    assert (seen.pid, took) == (os.getpid(), True)


def test_nobody_waits_for_a_driver_that_is_dead(settings: Settings, ledger: Ledger) -> None:
    dead(settings.home, "mine", "raise SystemExit('enough')")
    seen, took = driver_that_took("mine", ledger, settings.home)
    assert (seen.alive, seen.end, took) == (False, "enough", False)
