"""A descriptor that somebody else reads, written to by a thread of its own: who does not read it holds up nobody.

The descriptor stays as it is: it may be shared, and others would not expect it to refuse what does not fit.
"""

from __future__ import annotations

import os
import select
import threading
import time
from typing import List

QUEUE_BYTES = 4 * 1024 * 1024
"""Bytes that wait for the reader at most."""
RELAYED_SHARE = 0.5
"""Of the queue, for what can be read elsewhere too: the rest is kept for what the program itself has to say."""
REST_SECONDS = 0.05
"""After each writing, so that what is said often comes in bundles."""


class Printer:
    """Writes to `fd`, soon; what does not fit in the queue is dropped, counted, and the count is said in its place.

    Args:
        fd: written to; it may block, or be closed by its reader.
        queue_bytes: what waits at most.
    """

    def __init__(self, fd: int, queue_bytes: int = QUEUE_BYTES) -> None:
        self._fd = fd
        self._queue_bytes = queue_bytes
        self._waiting: List[bytes] = []
        self._waiting_bytes = 0
        self._dropped = 0
        self._changed = threading.Condition()
        self._idle = False
        self._busy = False
        self._ending = threading.Event()
        threading.Thread(target=self._run, name="printer", daemon=True).start()

    def print(self, data: bytes, share: float = 1.0) -> None:
        """Let `data`, whole lines, be written.

        Args:
            data: to write.
            share: of the queue that may be full with it.
        """
        with self._changed:
            if self._waiting_bytes + len(data) > self._queue_bytes * share:
                self._dropped += data.count(b"\n")
                return
            if self._dropped:
                self._mark()
            self._waiting.append(data)
            self._waiting_bytes += len(data)
            if self._idle:
                self._changed.notify_all()

    def close(self, timeout_seconds: float) -> bool:
        """Wait until everything is written; False where nobody read it in time, and it is left."""
        deadline = time.monotonic() + timeout_seconds
        self._ending.set()
        with self._changed:
            if self._dropped:
                self._mark()
            self._changed.notify_all()
            while self._waiting or self._busy:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def _mark(self) -> None:
        mark = b"... %d lines are missing here: this output was not read in time\n" % self._dropped
        self._waiting.append(mark)
        self._waiting_bytes += len(mark)
        self._dropped = 0

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._idle = True
                while not self._waiting:
                    self._changed.wait()
                self._idle = False
                data = b"".join(self._waiting)
                self._waiting, self._waiting_bytes = [], 0
                self._busy = True
            self._write(data)
            self._ending.wait(REST_SECONDS)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                try:
                    view = view[os.write(self._fd, view) :]
                except BlockingIOError:  # somebody else has made it so
                    select.select([], [self._fd], [])
        except (OSError, ValueError):
            return  # nobody will read it, or the disk is full: the training goes on, and the run's folder has it all
