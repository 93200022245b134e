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
from deployments.processes.prefork import PID_FILE, drive_here, forked_driver
from profiles.errors import Unavailable
from tasks.ledger.ledger import Ledger
from tasks.prefect.server import quiet_environment
from tasks.prefect.services import ask_runner, serving
from tasks.processes import process_start, record, recorded
from tasks.settings import Settings
from workflows.model.records import Lease
from workflows.model.why import DriverSight

CLAIM_SECONDS = 20.0
"""For a runner to claim a flow run and its driver to take the lease: a second, on a busy machine a few."""


class Driver(Protocol):
    """A driver that is being made ready while we check the request."""

    def drive(self, run: str) -> int:
        """Let it drive `run`; returns its pid. It outlives this process."""
        ...

    def dismiss(self) -> None:
        """It is not needed."""
        ...


def prepare_driver(home: Path, api_url: str) -> Driver:
    """The quickest driver there is: the runner's, one that the nursery forks, else a process that imports now."""
    if serving(home, api_url):
        return ServedDriver(home, api_url)
    nursery = recorded(home / PID_FILE)
    return WarmDriver(home, api_url) if nursery is not None else StartingDriver(home, api_url)


class ServedDriver:
    """A driver that the home's flow runner starts, for a flow run of the deployment `train`; plain where it does not.

    Args:
        home: PRIMUS_HOME.
        api_url: address of the Prefect server.
    """

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
                time.sleep(0.02)
        except Unavailable as error:
            why = str(error)
        say(f"the flow runner does not drive {run} ({why}); a driver of its own is started")
        return StartingDriver(self._home, self._api_url).drive(run)

    def dismiss(self) -> None:
        """Nothing was asked."""


class WarmDriver:
    """A driver that the nursery will fork; started plainly where the nursery turns out not to fit.

    Args:
        home: PRIMUS_HOME.
        api_url: address of the Prefect server.
    """

    def __init__(self, home: Path, api_url: str) -> None:
        self._home, self._api_url = home, api_url

    def drive(self, run: str) -> int:
        """Let it drive `run`; returns its pid."""
        folder = _folder(self._home, run)
        environment = _environment(self._home, self._api_url)
        pid = forked_driver(self._home, self._api_url, run, folder / "driver.log", environment)
        if pid is None:
            return StartingDriver(self._home, self._api_url).drive(run)
        record(folder / "driver.json", pid)
        return pid

    def dismiss(self) -> None:
        """Nothing was started."""


class StartingDriver:
    """A driver that imports while we check the request.

    Args:
        home: PRIMUS_HOME.
        api_url: address of the Prefect server.
    """

    def __init__(self, home: Path, api_url: str) -> None:
        (home / "logs").mkdir(parents=True, exist_ok=True)
        self._home, self._api_url = home, api_url
        self._log = (home / "logs" / f"driver-starting-{os.getpid()}.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "deployments.processes.driver"],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            env=_environment(home, api_url),
            start_new_session=True,
            cwd="/",
        )

    def drive(self, run: str) -> int:
        """Let it drive `run`; returns its pid. The next one will be forked from a warm process."""
        folder = _folder(self._home, run)
        record(folder / "driver.json", self._process.pid)
        os.replace(self._log.name, folder / "driver.log")
        pipe = self._process.stdin
        if pipe is not None:
            try:
                pipe.write(run.encode())
                pipe.close()
            except BrokenPipeError:
                pass  # it died at once; the watcher sees that no driver lives and says where its log is
        self._log.close()
        self._process.returncode = 0  # it outlives us on purpose: no warning that it still runs
        return self._process.pid

    def dismiss(self) -> None:
        """End it, in the middle of its imports: it has read no name and done nothing."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._log.close()
        Path(self._log.name).unlink(missing_ok=True)


def driver_pid(home: Path, run: str) -> int | None:
    """Pid of the living driver that this home gave a run, None where there is none; see `driver_of`."""
    found = recorded(home / "runs" / run / "driver.json")
    return found.pid if found else None


def driver_of(run: str, lease: Lease | None, home: Path, now: float) -> DriverSight:
    """The driver of the run, wherever it is: the holder of its lease, or a process of this home that holds none yet.

    Args:
        run: name of the run.
        lease: the run's, as the ledger has it.
        home: PRIMUS_HOME.
        now: Unix seconds; a holder on another machine counts as living until its lease runs out.
    """
    starting, here = driver_pid(home, run), socket.gethostname()
    path = home / "runs" / run / "driver.log"
    log = str(path) if path.exists() else ""
    if lease is None:
        return DriverSight(starting is not None, here if starting else "", starting, log)
    holder = lease.driver
    if holder.host != here:
        return DriverSight(lease.expires_at > now, holder.host, holder.pid)
    alive = process_start(holder.pid) == holder.started_at
    return DriverSight(alive or starting is not None, here, holder.pid if alive else starting or holder.pid, log)


def _folder(home: Path, run: str) -> Path:
    path = home / "runs" / run
    path.mkdir(parents=True, exist_ok=True)
    return path


def _environment(home: Path, api_url: str) -> dict[str, str]:
    return {**quiet_environment(home), "PREFECT_API_URL": api_url, "PRIMUS_HOME": str(home)}


def main() -> int:
    """Import, wait for a name, drive."""
    importlib.import_module("flows.train")  # while the name is not known yet
    run = sys.stdin.read().strip()
    return drive_here(run) if run else 0


if __name__ == "__main__":
    sys.exit(main())
