"""Where the coordinator's journal lies: read once at its start, appended to from then on."""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from typing import Callable, Generator, List

from workflows.programs import coordination_journal as journal
from workflows.programs.appender import Appender
from workflows.programs.coordination_events import Event

JOURNAL_SECONDS = 1.0
"""How long the storage may take to write down an order before launchers hear of it."""
SYNC_SECONDS = 0.02
"""How long they wait for it to be synced as well; a disk takes a fraction of a millisecond, a busy one a second. Where
the node is lost meanwhile, launchers know more orders than the next coordinator, which then uses no right any more."""


@contextmanager
def undisturbed() -> Generator[None, None, None]:
    """Nothing is searched for garbage meanwhile: of a hundred thousand new objects nearly all are kept."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Memory:
    """The journal at `path`. It is written behind the coordinator's back, since a storage may hang."""

    def __init__(self, path: str, sync: Callable[[int], None] = os.fdatasync) -> None:
        self._path = path
        self._appender = Appender(sync=sync)
        self._start = b""
        """What the first line is parted by from one that was cut off."""
        self._trouble = ""

    def read(self) -> List[Event]:
        """Every event of earlier lives, in order; none where there were none or the file cannot be read."""
        try:
            with open(self._path, "rb") as raw:
                size = raw.seek(0, os.SEEK_END)
                raw.seek(max(0, size - 1))
                self._start = b"\n" if raw.read() not in (b"", b"\n") else b""
            with open(self._path, encoding="utf-8", errors="replace") as file:
                return journal.read(file)
        except FileNotFoundError:
            return []
        except OSError as error:
            print(f"coordinator: {self._path} cannot be read: {error.strerror}; starting without memory", flush=True)
            return []

    def write(self, event: Event, order: bool, surely: bool) -> None:
        """Remember an event.

        Args:
            event: what happened.
            order: an order follows from it: it is synced, so that it outlives the node as well.
            surely: all of that is done, or the storage was too slow, when this returns.
        """
        data, self._start = self._start + (journal.to_line(event) + "\n").encode(), b""
        self._appender.append(self._path, data, sync=order)
        if surely:
            written = self._appender.flush(JOURNAL_SECONDS, synced=False)
            late = f"{self._path}: not {{}} in {JOURNAL_SECONDS if not written else SYNC_SECONDS:g} s"
            if not written:
                self._told(late.format("written"))
            else:
                done = self._appender.flush(SYNC_SECONDS)
                self._told(self._appender.last_error if done else late.format("synced"))

    def _told(self, trouble: str) -> None:
        """What the storage does is said when it changes; nobody is kept waiting for it."""
        if trouble and trouble != self._trouble:
            print(f"coordinator: {trouble}; going on, an order may be forgotten when the node is lost", flush=True)
        self._trouble = trouble

    def close(self) -> None:
        """Write what is left."""
        self._appender.close(2.0)
