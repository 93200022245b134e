"""The process that drives one run, `python -m deployments.processes.driver`, and the ways to get one quickly.

It is started before the run's name is known, imports what it needs meanwhile, and reads the name from its standard
input, so the command line's checks and these imports happen at the same time. It ends where the input ends without a
name.
"""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

from deployments.exit_codes import say
from deployments.processes.last_words import driver_file, driver_log, given_driver
from deployments.processes.prefork import PID_FILE, drive_here, forked_driver
from profiles.errors import Unavailable
from tasks.addresses import prepare
from tasks.embedded.runtime.inherited import reset_inherited
from tasks.ledger.ledger import Ledger
from tasks.prefect.server import quiet_environment
from tasks.prefect.services import ask_runner, serving
from tasks.processes import last_words, process_start, record_or_end, recorded
from tasks.secret_files import by_files
from tasks.settings import Settings
from workflows.model.records import Lease
from workflows.model.why import DriverSight

CLAIM_SECONDS = 20.0
"""For a runner to claim a flow run and its driver to take the lease: a second, on a busy machine a few."""
CLAIM_LOOK_SECONDS = 0.02


class Driver(Protocol):
    """A driver that is being made ready while we check the request."""

    def drive(self, run: str) -> int:
        """Let it drive `run`; returns its pid. It outlives this process."""
        ...

    def dismiss(self) -> None:
        """It is not needed."""
        ...


def prepare_driver(home: Path, api_url: str) -> Driver:
    """The quickest driver there is: the runner's, or one of our own."""
    if serving(home, api_url):
        return ServedDriver(home, api_url)
    return OwnDriver(home, api_url, forked=recorded(home / PID_FILE) is not None)


class ServedDriver:
    """A driver that the home's flow runner starts, for a flow run of `train`; one of our own where it does not."""

    def __init__(self, home: Path, api_url: str) -> None:
        self._home, self._api_url = home, api_url

    def drive(self, run: str) -> int:
        """Let it drive `run`; returns its pid, read from the lease."""
        ledger = Ledger(Settings.from_environment(os.environ).ledger_url)
        before, why = ledger.lease(run), "it did not begin in time"
        try:
            asked, deadline = ask_runner(self._home, run, "primus train"), time.monotonic() + CLAIM_SECONDS
            while asked and time.monotonic() < deadline:
                lease = ledger.lease(run)
                if lease is not None and (before is None or lease.fencing != before.fencing):
                    return lease.driver.pid
                time.sleep(CLAIM_LOOK_SECONDS)
        except Unavailable as error:
            why = str(error)
        say(f"the flow runner does not drive {run} ({why}); a driver of its own is started")
        return OwnDriver(self._home, self._api_url).drive(run)

    def dismiss(self) -> None:
        """Nothing was asked."""


class OwnDriver:
    """A driver that this home starts: a process that imports while we check the request, or one that the nursery forks.

    With `forked` it is left to the nursery; where that turns out not to fit, a process is started when the run is
    known.
    """

    def __init__(self, home: Path, api_url: str, *, forked: bool = False) -> None:
        self.forked = forked
        self._home, self._api_url = home, api_url
        self._environment = {**quiet_environment(home), "PREFECT_API_URL": api_url, "PRIMUS_HOME": str(home)}
        self._log = home / "logs" / f"driver-starting-{os.getpid()}.log"
        self._process = None if forked else self._start()

    def drive(self, run: str) -> int:
        """Let it drive `run`; returns its pid. The next one will be forked from a warm process."""
        log = driver_log(self._home, run)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)  # the words of an earlier driver are not this one's
        pid = forked_driver(self._home, self._api_url, run, log, self._environment) if self.forked else None
        if pid is None:
            pid = self._hand_over(run, log)
        record_or_end(driver_file(self._home, run), pid)
        return pid

    def dismiss(self) -> None:
        """End it, in the middle of its imports: it has read no name and done nothing."""
        if self._process is None:
            return
        self._process.kill()
        self._process.communicate()
        self._log.unlink(missing_ok=True)

    def _start(self) -> subprocess.Popen[bytes]:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        command, environment = by_files(self._home, "deployments.processes.driver", self._environment)
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                cwd="/",
            )

    def _hand_over(self, run: str, log: Path) -> int:
        process = self._process or self._start()
        os.replace(self._log, log)
        if process.stdin is not None:
            try:
                process.stdin.write(run.encode())
                process.stdin.close()
            except BrokenPipeError:
                pass  # it died at once; the watcher sees that no driver lives and says where its log is
        process.returncode = 0  # it outlives us on purpose: no warning that it still runs
        return process.pid


def driver_that_took(run: str, ledger: Ledger, home: Path) -> tuple[DriverSight, bool]:
    """The driver that the run was given, and whether it took it: it may have ended, or not come to it in time."""
    deadline = time.monotonic() + CLAIM_SECONDS
    while True:
        lease = ledger.lease(run)
        found = driver_of(run, lease, home, time.time())
        took = lease is not None and found.alive and lease.driver.pid == found.pid
        if took or not found.alive or time.monotonic() > deadline:
            return found, took
        time.sleep(CLAIM_LOOK_SECONDS)


def driver_pid(home: Path, run: str) -> int | None:
    """Pid of the living driver that this home gave a run, None where there is none; see `driver_of`."""
    found = recorded(driver_file(home, run))
    return found.pid if found else None


def driver_of(run: str, lease: Lease | None, home: Path, now: float) -> DriverSight:
    """The driver of the run, wherever it is: the holder of its lease, or a process of this home that holds none yet.

    `now` is in Unix seconds: a holder on another machine counts as living until its lease runs out.
    """
    starting, here = driver_pid(home, run), socket.gethostname()
    path = driver_log(home, run)
    log = str(path) if path.exists() else ""
    if lease is not None and lease.driver.host != here:
        return DriverSight(lease.expires_at > now, lease.driver.host, lease.driver.pid)
    if lease is not None and process_start(lease.driver.pid) == lease.driver.started_at:
        return DriverSight(True, here, lease.driver.pid, log)
    if starting is not None:
        return DriverSight(True, here, starting, log)
    given, held_since = given_driver(home, run), lease.driver.started_at if lease is not None else 0.0
    # One that died before it could be looked at has no start: nothing came after it.
    if given is not None and (given.started_at >= held_since or given.started_at == 0.0):
        return DriverSight(False, here, given.pid, log, last_words(path))
    return DriverSight(False, here if lease else "", lease.driver.pid if lease else None, log)


def main() -> int:
    """Import, wait for a name, drive."""
    reset_inherited()
    prepare(os.environ)
    importlib.import_module("flows.train")  # while the name is not known yet
    run = sys.stdin.read().strip()
    return drive_here(run) if run else 0


if __name__ == "__main__":
    sys.exit(main())
