"""Background processes of a home: none is left alive that no file names, none is started on a full disk."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from profiles.errors import ProfileError, Unavailable
from tasks import processes
from tasks.processes import end_services, no_room, process_start, record_or_end, services_of, start_recorded
from tasks.secret_files import by_files, read_secret_files
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
        start_recorded(tmp_path / "server.json", "code", (), tmp_path / "logs" / "server.log", {}, "")
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


SHOWN = """
import os, sys
print(open("/proc/self/environ").read(), "|", os.environ.get("PRIMUS_LEDGER_URL"), sys.argv[1:], flush=True)
input()
"""


def test_a_service_has_its_secrets_by_files_and_is_found_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "shown.py").write_text(SHOWN)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[3])])
    environment = {"PYTHONPATH": path, "PREFECT_HOME": str(tmp_path / "prefect"), "PRIMUS_LEDGER_URL": "p://u:s3cret@h"}
    command, seen = by_files(tmp_path, "shown", environment)
    with subprocess.Popen(
        [*command, "-x"], env=seen, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        others, told = child.stdout.readline().split("|")
        assert services_of(tmp_path, ["shown"]) == {child.pid: "shown"}
        child.communicate("\n")
    assert "s3cret" not in others
    assert told.split() == ["p://u:s3cret@h", "['-x']"]
    assert list((tmp_path / "secrets").iterdir()) == [], "whoever read it removed it"
    assert by_files(tmp_path, "shown", {"A": "b"}) == ([sys.executable, "-m", "shown"], {"A": "b"})


def test_a_secret_of_a_file_is_read_once_and_what_is_set_outranks_it(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("p://a\n")
    named = {"PRIMUS_LEDGER_URL_FILE": str(tmp_path / "url")}
    for told in ({}, {"PRIMUS_LEDGER_URL": ""}, {"PRIMUS_LEDGER_URL": "p://b"}):
        environ = named | told
        read_secret_files(environ)
        assert environ["PRIMUS_LEDGER_URL"] == (told.get("PRIMUS_LEDGER_URL") or "p://a")
    assert (tmp_path / "url").exists(), "it is somebody else's file"
    with pytest.raises(ProfileError, match=r"PRIMUS_LEDGER_URL_FILE: cannot read .*/none: "):
        read_secret_files({"PRIMUS_LEDGER_URL_FILE": str(tmp_path / "none")})
