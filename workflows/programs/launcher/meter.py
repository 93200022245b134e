"""Looks now and then at what the ranks of this pod use, in a thread of its own: a driver in trouble holds up nobody.

Only the newest look is kept, so nothing grows while nobody asks.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Callable, Dict, Mapping, Optional, Set

FIRST_SECONDS = 1.0
"""After ranks began; their processor time is known one look later."""
SECONDS = 15.0
"""Between two looks; one costs a few milliseconds."""

Look = Callable[[Mapping[int, int]], Dict[str, Any]]
"""What the ranks use, given the first process of each."""


class Meter:
    """The thread and what it saw last.

    Args:
        begin: called in the thread before its first look, gives the way to look.
        seconds: between two looks.
        first_seconds: from the begin of ranks to the first look at them.
    """

    def __init__(
        self, begin: Callable[[], Look], seconds: float = SECONDS, first_seconds: float = FIRST_SECONDS
    ) -> None:
        self._begin = begin
        self._seconds = seconds
        self._first_seconds = first_seconds
        self._changed = threading.Condition()
        self._pids: Mapping[int, int] = {}
        self._newest: Optional[Dict[str, Any]] = None
        self._began = False

    def watch(self, pids: Mapping[str, int]) -> None:
        """Look at these processes from now on, by the rank's number."""
        with self._changed:
            self._pids = {int(number): pid for number, pid in pids.items()}
            self._changed.notify_all()
        if not self._began:
            self._began = True
            threading.Thread(target=self._run, name="meter", daemon=True).start()

    def newest(self) -> Optional[Dict[str, Any]]:
        """The newest look that nobody has taken yet; None: there is none."""
        with self._changed:
            found, self._newest = self._newest, None
        return found

    def _run(self) -> None:
        look = self._begin()
        seen: Mapping[int, int] = {}
        while True:
            with self._changed:
                if self._pids is seen:
                    self._changed.wait(self._seconds)
                pids = self._pids
            if pids is not seen:
                seen = pids
                time.sleep(self._first_seconds)
            with contextlib.suppress(OSError, ValueError, LookupError):  # /proc says what nobody has seen before
                found = look(pids)
                with self._changed:
                    self._newest = found


class Looks:
    """Looks at ranks, one after the other; a limit that is nearly reached is said once for the same processes.

    Args:
        say: hears it in words.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        # Imported here, in the meter's thread: ranks begin sooner without.
        from workflows.programs.launcher import usage

        self._use, self._devices, self._library = usage, usage, usage.opened()
        self._say = say
        self._before: Mapping[int, Any] = {}
        self._pids: Mapping[int, int] = {}
        self._at = 0.0
        self._said: Set[str] = set()

    def look(self, pids: Mapping[int, int]) -> Dict[str, Any]:
        """As it travels: `at` (Unix seconds), `ranks`, `nics`, `gpus`, and the pod's own figures."""
        if pids != self._pids:
            self._pids, self._before, self._said = pids, {}, set()
        now = time.monotonic()
        ranks = self._use.ranks(pids)
        found: Dict[str, Any] = {
            "at": time.time(),
            "ranks": self._use.told(ranks, self._before, now - self._at),
            "nics": self._devices.nics(),
            "gpus": self._devices.gpus(self._library),
            **self._use.pod(),
        }
        self._before, self._at = ranks, now
        for what, words in self._use.close_to_its_limit(found).items():
            if what not in self._said:
                self._said.add(what)
                self._say(words)
        return found
