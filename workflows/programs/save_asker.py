"""Asks ranks to save, by a signal or a file, and hears whether they did. What follows is decided in `lifecycle`."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Any, Callable, Iterable, List, Optional

from workflows.programs import ranks, save_way
from workflows.programs.launcher_orders import Note
from workflows.programs.save_way import Asked, SaveSeen, SaveWay

REMOVED_SECONDS = 2.0
"""So long ranks that start wait for the file of an earlier request to be gone: a storage may hang."""


class SaveAsker:
    """One pod's requests to save.

    Args:
        way: of the program.
        pids: of the ranks that live.
        seen: called once a save that was asked for is complete.
        tell: hears what is to be said in the log; called from other threads too.
    """

    def __init__(
        self,
        way: SaveWay,
        pids: Callable[[], List[int]],
        seen: Callable[[SaveSeen], None],
        tell: Callable[[Note], None],
    ) -> None:
        self.way = way
        self._pids, self._seen, self._news = pids, seen, tell
        self._asked: Optional[Asked] = None
        self._file_lock = threading.Lock()

    def ask(self, step: Optional[int], why: str) -> None:
        """Ask for a save now.

        Args:
            step: the last one that this pod's ranks have reported; None: none.
            why: stands in the file.
        """
        if not self.way.ends_itself:
            self._asked = save_way.asked(time.time(), step)
        if self.way.file:
            self._on_file(lambda: make(self.way.file, why))
        if self.way.signal != save_way.TERM or not self.way.file:
            self._tell(signal.Signals[f"SIG{self.way.signal}"])

    def end(self, why: str) -> None:
        """Tell ranks that have saved, or had the time to, to end."""
        self._say(f"the ranks are told to end: {why}")
        self._tell(signal.SIGTERM)

    def hear(self, reports: Iterable[Any]) -> None:
        """What this pod's ranks or its prover report: one of it may say that the save is complete."""
        for report in reports if self._asked is not None else ():
            self._asked = save_way.hear(self._asked, report) if self._asked is not None else None
        if self._asked is not None and self._asked.seen:
            seen, self._asked = SaveSeen(self._asked.seen), None
            self._remove()
            self._seen(seen)

    def begin(self) -> None:
        """Ranks are about to start: what was asked of others before them does not concern them."""
        self._asked = None
        thread = self._remove()
        if thread is not None:
            thread.join(REMOVED_SECONDS)
            if thread.is_alive():
                self._say(
                    f"{self.way.file}: the storage did not answer in {REMOVED_SECONDS:g} s; it may still be there"
                )

    def _say(self, text: str) -> None:
        self._news(Note(text))

    def _tell(self, number: int) -> None:
        for pid in self._pids():
            ranks.tell(pid, number)

    def _remove(self) -> Optional[threading.Thread]:
        return self._on_file(lambda: remove(self.way.file)) if self.way.file else None

    def _on_file(self, work: Callable[[], None]) -> threading.Thread:
        """Do something with the file, one after the other, in a thread: a storage may hang."""

        def run() -> None:
            try:
                with self._file_lock:
                    work()
            except OSError as error:
                self._say(f"{self.way.file}: {error.strerror or error}; programs that watch it hear of no request")

        thread = threading.Thread(target=run, name="save file", daemon=True)
        thread.start()
        return thread


def make(path: str, text: str) -> None:
    """Let the file be there, whole at once: its name appears when it is written.

    Raises:
        OSError: the storage refused.
    """
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    draft = os.path.join(folder, f".{os.path.basename(path)}.{os.uname().nodename}.{os.getpid()}")
    try:
        with open(draft, "w", encoding="utf-8") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


def remove(path: str) -> None:
    """Let the file be gone.

    Raises:
        OSError: the storage refused.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
