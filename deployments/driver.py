"""The process that drives one run: `python -m deployments.driver`.

It is started before the run's name is known, imports what it needs meanwhile, and reads the name from its standard
input: so the command line's checks and these imports happen at the same time. End of input without a name: it ends.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from deployments.processes import record, recorded
from deployments.server import quiet_environment


class StartingDriver:
    """A driver that imports while we check the request.

    Args:
        home: PRIMUS_HOME.
        api_url: address of the Prefect server.
    """

    def __init__(self, home: Path, api_url: str) -> None:
        (home / "logs").mkdir(parents=True, exist_ok=True)
        self._home = home
        self._log = (home / "logs" / f"driver-starting-{os.getpid()}.log").open("ab")
        environment = {**quiet_environment(home), "PREFECT_API_URL": api_url, "PRIMUS_HOME": str(home)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "deployments.driver"],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            env=environment,
            start_new_session=True,
            cwd="/",
        )

    def drive(self, run: str) -> int:
        """Let it drive `run`; returns its pid. It outlives this process."""
        path = self._home / "runs" / run
        path.mkdir(parents=True, exist_ok=True)
        record(path / "driver.json", self._process.pid)
        os.replace(self._log.name, path / "driver.log")
        self._send(run)
        self._process.returncode = 0  # it outlives us on purpose: no warning that it still runs
        return self._process.pid

    def dismiss(self) -> None:
        """It is not needed: it ends by itself, and its log with it."""
        self._send("")
        self._process.wait()
        Path(self._log.name).unlink(missing_ok=True)

    def _send(self, text: str) -> None:
        pipe = self._process.stdin
        if pipe is not None:
            try:
                pipe.write(text.encode())
                pipe.close()
            except BrokenPipeError:
                pass  # it died at once; the watcher sees that no driver lives and says where its log is
        self._log.close()


def driver_pid(home: Path, run: str) -> int | None:
    """Pid of the living driver of a run on this machine, None where there is none."""
    found = recorded(home / "runs" / run / "driver.json")
    return found.pid if found else None


def main() -> int:
    """Import, wait for a name, drive."""
    from flows.train import train
    from profiles.request import TrainRequest

    run = sys.stdin.read().strip()
    if not run:
        return 0
    asyncio.run(train(TrainRequest(name=run, profile="")))  # pyright: ignore[reportArgumentType]
    return 0


if __name__ == "__main__":
    sys.exit(main())
