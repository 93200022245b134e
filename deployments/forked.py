"""What a driver does that was forked from a warm process: be as a freshly started one, drive, and end."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

HAND_OVER_SECONDS = 3.0
"""For each of the two; a server that answers takes a few milliseconds."""


def end_with(drive: Callable[[], int]) -> NoReturn:
    """Drive in a session of its own and end this process with what comes of it, without unwinding into who forked it.

    Args:
        drive: the work; its result is the exit code, 1 where it raises.
    """
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        code = drive()
    except BaseException:
        traceback.print_exc()
    finally:
        _hand_over()
        # Not sys.exit: that would unwind into the loop that forked it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _hand_over() -> None:
    """Wait until Prefect's own threads have sent what they hold: the end of the flow's log, and its last events."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (APILogWorker, EventsWorker):
        with suppress(Exception):  # a server that is away gets neither, and the run has ended either way
            worker.drain_all(timeout=HAND_OVER_SECONDS)
