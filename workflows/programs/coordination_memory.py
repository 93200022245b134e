"""Where the coordinator's journal lies: read once at its start, appended to from then on."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import Generator, List

from workflows.programs import coordination_journal as journal
from workflows.programs.appender import Appender
from workflows.programs.coordination_events import Event

JOURNAL_SECONDS = 1.0
"""How long the storage may take to write down an order before launchers hear of it."""


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

    def __init__(self, path: str) -> None:
        self._path = path
        self._appender = Appender()

    def read(self) -> List[Event]:
        """Every event of earlier lives, in order; none where there were none or the file cannot be read."""
        try:
            with open(self._path, encoding="utf-8", errors="replace") as file:
                return journal.read(file)
        except FileNotFoundError:
            return []
        except OSError as error:
            print(f"coordinator: {self._path} cannot be read: {error.strerror}; starting without memory", flush=True)
            return []

    def write(self, event: Event, surely: bool) -> None:
        """Remember an event; with `surely` it is in the file (or the storage was too slow) when this returns."""
        self._appender.append(self._path, (journal.to_line(event) + "\n").encode())
        if surely:
            self._appender.flush(JOURNAL_SECONDS)

    def close(self) -> None:
        """Write what is left."""
        self._appender.close(2.0)
