"""What a driver of this home leaves beside its run: which process it is, what it said, and how it ended.

A driver that dies before it has taken its run can write nothing to the ledger. Its log is what remains, and `primus
status` and `primus why` read the end of it.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tasks.processes import Recorded, record, written


def driver_file(home: Path, run: str) -> Path:
    """The pid file of the newest driver that this home gave a run."""
    return home / "runs" / run / "driver.json"


def driver_log(home: Path, run: str) -> Path:
    """Where it writes; its folder is there once it was started."""
    return home / "runs" / run / "driver.log"


def given_driver(home: Path, run: str) -> Recorded | None:
    """The newest driver that this home gave a run, which may have ended; None where it gave none."""
    return written(driver_file(home, run))


@contextmanager
def driving_here(home: Path, run: str) -> Generator[None]:
    """Inside the block this process is the run's driver: known by its pid file, its death by its log."""
    log = driver_log(home, run)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    record(driver_file(home, run), os.getpid())
    try:
        yield
    except BaseException:
        note(home, run, traceback.format_exc())
        raise


def note(home: Path, run: str, text: str) -> None:
    """Write into the log of the run's driver."""
    with driver_log(home, run).open("a", encoding="utf-8") as log:
        log.write(f"{text}\n")
