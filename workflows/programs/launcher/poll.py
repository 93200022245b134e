"""Waits for many descriptors: urgent ones are served at once, output in batches."""

from __future__ import annotations

import select
import time
from typing import List, Sequence, Tuple

SHORTEST_REST_SECONDS = 0.01
LONGEST_REST_SECONDS = 0.1
WORK_SHARE = 0.01
"""Share of a core for reading output. A reader that always finds more rests twice as long the next time, until it takes
no more than this, so that lines come in bundles. Output that comes once in a while, even every twentieth of a second,
is read at once, line by line, because the detection of hangs needs the times of single steps."""


class PacedPoll:
    """Waits for the ranks' output (`output_fd`) and for urgent descriptors such as signals and orders."""

    def __init__(self, output_fd: int, urgent_fds: Sequence[int]) -> None:
        self._output_fd = output_fd
        self._urgent = select.epoll()
        self._all = select.epoll()
        for fd in urgent_fds:
            self._urgent.register(fd, select.EPOLLIN)
        self._all.register(self._urgent.fileno(), select.EPOLLIN)
        self._all.register(output_fd, select.EPOLLIN)
        self._rest_until = float("-inf")
        self._rest = SHORTEST_REST_SECONDS
        self._rested = False
        self._behind = False
        """Whether more had been printed when the last rest was over."""
        self._worked = time.process_time()
        """Processor seconds of the whole program after the last round: threads that write and send count too."""

    def add(self, fd: int) -> None:
        """Add an urgent descriptor; closing it removes it."""
        self._urgent.register(fd, select.EPOLLIN)

    def wait(self, timeout_seconds: float) -> Tuple[bool, List[int]]:
        """Whether output is to be read now, and the urgent descriptors that are readable."""
        paced = self._rest_until - time.monotonic()
        if paced > 0:
            urgent = [fd for fd, _ in self._urgent.poll(min(paced, timeout_seconds))]
            if urgent or paced >= timeout_seconds:
                return False, urgent
            timeout_seconds -= paced
        ready = {fd for fd, _ in self._all.poll(0)}
        if self._rested:
            self._rested, self._behind = False, self._output_fd in ready
        ready = ready or {fd for fd, _ in self._all.poll(timeout_seconds)}
        output = self._output_fd in ready
        return output, [fd for fd, _ in self._urgent.poll(0)] if len(ready) > output else []

    def pace(self, flooded: bool) -> None:
        """Set the next rest after output was handled.

        `flooded`: one round could not take all of it, and a rank that waits for its reader must not be held up.
        """
        before, self._worked = self._worked, time.process_time()
        wanted = min((self._worked - before) / WORK_SHARE, 2 * self._rest) if self._behind else 0.0
        self._rest = min(LONGEST_REST_SECONDS, max(SHORTEST_REST_SECONDS, wanted))
        self._rest_until, self._rested = time.monotonic() + (0.0 if flooded else self._rest), True
