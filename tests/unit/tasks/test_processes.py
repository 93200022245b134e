"""Background processes of a home: none is left alive that no file names, none is started on a full disk."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from profiles.errors import Unavailable
from tasks import processes
from tasks.processes import end_services, no_room, process_start, record_or_end, services_of, start_recorded
from tests.support.running.waiting import until

SLEEPS = [sys.executable, "-S", "-c", "import time; time.sleep(1000)"]


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int, _offset: int, _size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(processes.os, "posix_fallocate", refuse)


@pytest.mark.usefixtures("full_disk")
def test_on_a_full_disk_nothing_is_started(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"server is not started: disk full: .* MB are free, 17 MB are needed"):
        start_recorded(tmp_path / "server.json", SLEEPS, tmp_path / "logs" / "server.log", {}, "")
    assert list(tmp_path.iterdir()) == [], "not even the probe stays"


def test_where_there_is_room_nothing_is_said_and_nothing_stays(tmp_path: Path) -> None:
    assert no_room(tmp_path) == ""
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_for_another_reason_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot be written (File exists)" in no_room(tmp_path / "file")


def test_a_process_whose_pid_file_cannot_be_written_is_ended(tmp_path: Path) -> None:
    child = subprocess.Popen(SLEEPS, start_new_session=True)
    with pytest.raises(Unavailable, match="server was ended again"):
        record_or_end(tmp_path / "gone" / "server.json", child.pid)
    assert process_start(child.pid) is None
    child.wait()


@pytest.fixture
def stray(tmp_path: Path) -> Generator[subprocess.Popen[bytes]]:
    """A service of the home that no file names: whoever started it was killed before he could write."""
    child = subprocess.Popen(
        [sys.executable, "-m", "code", "-q"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PREFECT_HOME": str(tmp_path / "prefect")},
        start_new_session=True,
    )
    until("it runs as `python -m code`", lambda: services_of(tmp_path, ["code"]))
    yield child
    child.kill()
    child.communicate()


def test_a_service_that_no_file_names_is_found_by_its_home(tmp_path: Path, stray: subprocess.Popen[bytes]) -> None:
    assert services_of(tmp_path, ["code"]) == {stray.pid: "code"}
    assert services_of(tmp_path / "other", ["code"]) == {}, "another home's"
    assert services_of(tmp_path, ["deployments.processes.runner"]) == {}, "another service's"
    assert end_services(tmp_path, ["deployments.processes.runner", "code"]) == ["code"]
    assert process_start(stray.pid) is None
    assert end_services(tmp_path, ["code"]) == []


def test_what_a_service_forked_to_drive_runs_outlives_it(tmp_path: Path, stray: subprocess.Popen[bytes]) -> None:
    assert stray.stdin is not None
    stray.stdin.write(b"from tasks.processes import name_driver as named; named()\n")
    stray.stdin.flush()
    until("it is named", lambda: not services_of(tmp_path, ["code"]))
    assert end_services(tmp_path, ["code"]) == []
    assert process_start(stray.pid) is not None
