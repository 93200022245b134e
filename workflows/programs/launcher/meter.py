"""Samples the resources that this pod's ranks use, in a thread of its own, since a driver in trouble may hang.

Only the newest sample is kept.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Callable, Dict, Mapping, Optional, Set

FIRST_SAMPLE_SECONDS = 1.0
"""From the start of ranks to their first sample; processor time is known from the second one on."""
SAMPLE_SECONDS = 15.0
"""Between two samples, which cost a few milliseconds each."""

Sample = Callable[[Mapping[int, int]], Dict[str, Any]]
"""What the ranks use, given the first process of each."""


class Meter:
    """The thread and its newest sample; `begin` is called in the thread and returns the function that samples."""

    def __init__(
        self, begin: Callable[[], Sample], seconds: float = SAMPLE_SECONDS, first_seconds: float = FIRST_SAMPLE_SECONDS
    ) -> None:
        self._begin = begin
        self._seconds = seconds
        self._first_seconds = first_seconds
        self._changed = threading.Condition()
        self._pids: Mapping[int, int] = {}
        self._newest: Optional[Dict[str, Any]] = None
        self._began = False

    def watch(self, pids: Mapping[str, int]) -> None:
        """Sample these processes from now on, by the rank as text."""
        with self._changed:
            self._pids = {int(number): pid for number, pid in pids.items()}
            self._changed.notify_all()
        if not self._began:
            self._began = True
            threading.Thread(target=self._run, name="meter", daemon=True).start()

    def take_newest(self) -> Optional[Dict[str, Any]]:
        """The newest sample, once; None: there is no new one."""
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


class UsageSampler:
    """Samples usage; `say` gets a line, once for the same processes, when a limit is nearly reached."""

    def __init__(self, say: Callable[[str], None]) -> None:
        # Imported here, in the meter's thread, so that ranks start sooner.
        from workflows.programs.launcher import usage

        self._usage, self._library = usage, usage.open_library()
        self._say = say
        self._before: Mapping[int, Any] = {}
        self._pids: Mapping[int, int] = {}
        self._at = 0.0
        self._said: Set[str] = set()

    def sample(self, pids: Mapping[int, int]) -> Dict[str, Any]:
        """A sample as JSON: `at` (Unix seconds), `ranks`, `nics`, `gpus`, and the pod's own figures."""
        if pids != self._pids:
            self._pids, self._before, self._said = pids, {}, set()
        now = time.monotonic()
        ranks = self._usage.rank_usage(pids)
        found: Dict[str, Any] = {
            "at": time.time(),
            "ranks": self._usage.to_json(ranks, self._before, now - self._at),
            "nics": self._usage.nic_usage(),
            "gpus": self._usage.gpu_usage(self._library),
            **self._usage.pod_usage(),
        }
        self._before, self._at = ranks, now
        for what, words in self._usage.close_to_its_limit(found).items():
            if what not in self._said:
                self._said.add(what)
                self._say(words)
        return found
