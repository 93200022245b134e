"""Warm drivers: forked from a process that has imported everything, and done without where that does not fit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deployments.processes import prefork
from deployments.processes.driver import OwnDriver, driver_pid, prepare_driver
from deployments.processes.prefork import PID_FILE, SOCKET, ensure_nursery, forked_driver, stop_nursery
from tasks.processes import process_start, recorded
from tests.support.harness.stages import DEADLINE_SECONDS, Stage, outcomes, stage, succeeded


@pytest.fixture
def scene(prefect_server: str) -> Iterator[Stage]:
    with stage(prefect_server) as made:
        yield made
        stop_nursery(made.home)


def eventually(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def warm(scene: Stage) -> int:
    ensure_nursery(scene.home, scene.api_url)
    eventually((scene.home / SOCKET).exists, "the nursery answers")
    found = recorded(scene.home / PID_FILE)
    assert found is not None
    return found.pid


@pytest.mark.story
def test_a_forked_driver_outlives_the_nursery(scene: Stage) -> None:
    mother = warm(scene)
    pid = prepare_driver(scene.home, scene.api_url).drive(scene.open().run)
    assert parent(pid) == mother
    assert driver_pid(scene.home, scene.run) == pid
    eventually(lambda: os.getsid(pid) == pid, "it has a session of its own")
    scene.at_step(8)
    assert stop_nursery(scene.home)
    assert process_start(pid) is not None
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["succeeded"]
    scene.no_orphans()


@pytest.mark.story
def test_without_a_nursery_that_answers_a_driver_is_started_plainly(scene: Stage) -> None:
    mother = warm(scene)
    (scene.home / SOCKET).unlink()
    driver = prepare_driver(scene.home, scene.api_url)
    assert isinstance(driver, OwnDriver)
    assert driver.forked
    pid = driver.drive(scene.open().run)
    assert parent(pid) != mother
    assert succeeded(scene.end()), scene.tell()


def test_a_nursery_of_other_code_or_for_another_server_is_replaced(
    scene: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = warm(scene)
    ensure_nursery(scene.home, scene.api_url)
    assert recorded(scene.home / PID_FILE) is not None
    assert warm(scene) == first, "the same code and server: left alone"
    log = scene.home / "driver.log"
    assert forked_driver(scene.home, "http://127.0.0.1:1/api", "none", log, {}) is None
    monkeypatch.setattr(prefork, "code_stamp", lambda: "changed")
    assert forked_driver(scene.home, scene.api_url, "none", log, {}) is None
    assert not log.exists()
    ensure_nursery(scene.home, scene.api_url)
    assert process_start(first) is None
    found = recorded(scene.home / PID_FILE)
    assert found is not None
    assert found.pid != first


def test_a_nursery_whose_home_forgot_it_leaves(scene: Stage) -> None:
    pid = warm(scene)
    (scene.home / PID_FILE).unlink()
    eventually(lambda: process_start(pid) is None, "it leaves")


def test_only_its_owner_may_ask_and_nonsense_is_not_answered(scene: Stage) -> None:
    pid = warm(scene)
    assert (scene.home / SOCKET).stat().st_mode & 0o777 == 0o600
    log = scene.home / "no" / "such" / "folder" / "driver.log"
    child = forked_driver(scene.home, scene.api_url, "none", log, dict(os.environ))
    assert child is not None
    eventually(lambda: process_start(child) is None, "a driver without a log ends")
    assert process_start(pid) is not None
    assert "driver.log" in (scene.home / "logs" / "nursery.log").read_text()


def test_a_driver_that_is_not_needed_ends_at_once(scene: Stage) -> None:
    driver = prepare_driver(scene.home, scene.api_url)
    assert isinstance(driver, OwnDriver)
    assert not driver.forked
    driver.dismiss()
    assert list((scene.home / "logs").glob("driver-starting-*")) == []
