"""Who drives a run is asked of its lease: a driver on another machine is as good as one here."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deployments.cli.train import stop_run
from deployments.exit_codes import FAILED, GOOD
from deployments.processes.driver import driver_of
from deployments.screen.live import follow
from deployments.screen.views import status_document
from profiles.request import TrainRequest
from profiles.vocabulary import RunState
from tasks.ledger.ledger import Ledger
from tasks.processes import process_start, record
from tasks.runs.open import open_run
from tasks.settings import Settings
from workflows.model.records import Driver, Lease

NOW = 1000.0
HERE = socket.gethostname()
ELSEWHERE = Driver("primus-runner-7d9f", 23, 900.0)


@pytest.fixture
def ledger(settings: Settings) -> Iterator[Ledger]:
    """With one run, `mine`."""
    made = Ledger(settings.ledger_url)
    open_run(TrainRequest(profile="demo", name="mine"), settings, made, time.time())
    yield made
    made.close()


def myself() -> Driver:
    return Driver(HERE, os.getpid(), process_start(os.getpid()) or 0.0)


@pytest.mark.parametrize(
    ("said", "lease", "alive", "host"),
    [
        ("nobody took it yet", None, False, ""),
        ("another machine, its lease runs", Lease("r", 1, ELSEWHERE, NOW + 1), True, ELSEWHERE.host),
        ("another machine, its lease ran out", Lease("r", 1, ELSEWHERE, NOW), False, ELSEWHERE.host),
        ("a process of this machine that lives", Lease("r", 1, myself(), NOW - 1), True, HERE),
        ("one that is gone, however long its lease", Lease("r", 1, Driver(HERE, 1, 1.5), NOW + 9), False, HERE),
    ],
)
def test_the_lease_says_who_drives(tmp_path: Path, said: str, lease: Lease | None, alive: bool, host: str) -> None:
    found = driver_of("r", lease, tmp_path, NOW)
    assert (found.alive, found.host) == (alive, host), said


def test_a_driver_that_was_just_started_here_holds_no_lease_yet(tmp_path: Path) -> None:
    (tmp_path / "runs" / "r").mkdir(parents=True)
    record(tmp_path / "runs" / "r" / "driver.json", os.getpid())
    assert driver_of("r", None, tmp_path, NOW).pid == os.getpid()
    relieved = driver_of("r", Lease("r", 1, Driver(HERE, 1, 1.5), NOW + 9), tmp_path, NOW)
    assert (relieved.alive, relieved.pid) == (True, os.getpid())
    elsewhere = driver_of("r", Lease("r", 2, ELSEWHERE, NOW + 9), tmp_path, NOW)
    assert (elsewhere.host, elsewhere.pid) == (ELSEWHERE.host, 23), "the ledger knows better than a file"


def test_status_tells_a_driver_on_another_machine_as_alive(settings: Settings, ledger: Ledger) -> None:
    ledger.acquire("mine", ELSEWHERE, time.time(), lambda _: None)
    driver = status_document("mine", settings, ledger)["driver"]
    assert driver == {"host": ELSEWHERE.host, "pid": 23, "alive": True}


def test_stop_asks_the_driver_on_another_machine_and_starts_none_here(settings: Settings, ledger: Ledger) -> None:
    lease = ledger.acquire("mine", ELSEWHERE, time.time(), lambda _: None)
    ended = threading.Event()

    def drive() -> None:
        theirs = Ledger(settings.ledger_url)
        while not theirs.story("mine").requests and not ended.wait(0.02):
            pass
        theirs.set_run_state("mine", lease.fencing, RunState.STOPPED, "as asked", time.time())
        theirs.close()

    thread = threading.Thread(target=drive)
    thread.start()
    try:
        assert stop_run("mine", "enough", as_json=False) == GOOD
    finally:
        ended.set()
        thread.join()
    assert not (settings.home / "runs" / "mine" / "driver.json").exists()
    assert not (settings.home / "server.json").exists()
    assert stop_run("mine", "again", as_json=False) == GOOD != FAILED


def test_whoever_follows_is_told_when_nobody_drives(
    settings: Settings, ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    assert follow("mine", settings, ledger) is RunState.UNKNOWN
    assert "the driver of mine is gone" in capsys.readouterr().err
