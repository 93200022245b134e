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


LOOK_SECONDS = 2.0
"""Between two looks for signs of life."""
WORKING_CORES = 0.01
"""A rank that uses less of the processor only keeps its threads awake: watchdogs and bars take some thousandths. On a
node whose processors are taken by others, one that works gets a few hundredths."""
MOVED_BYTES = 64 * 1024
"""A rank that reads and writes less between two looks only says that it waits."""


class LifeSigns:
    """Whether this pod's ranks do anything, for a coordinator that hears of no steps.

    `look` returns the activity of each rank, given their first processes (`usage.rank_activity`); `clock` is monotonic.
    """

    def __init__(
        self,
        look: Optional[Callable[[Mapping[int, int]], Mapping[int, Any]]] = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look, self._clock = look, clock
        self._pids: Mapping[int, int] = {}
        self._before: Mapping[int, Any] = {}
        self._at = float("-inf")
        self._printed = False

    def watch(self, pids: Mapping[str, int]) -> None:
        """Look at these processes from now on, by the rank as text."""
        self._pids = {int(number): pid for number, pid in pids.items()}
        self._before = {}

    def note_output(self) -> None:
        """A rank has printed something; from any thread."""
        self._printed = True

    def take(self) -> Optional[Dict[str, Any]]:
        """What a new look shows, as JSON; None: none is due, or nothing is known yet."""
        now = self._clock()
        seconds, pids, before = now - self._at, self._pids, self._before
        if seconds < LOOK_SECONDS or not pids:
            return None
        if self._look is None:
            from workflows.programs.launcher.usage import rank_activity  # imported late, so that ranks start sooner

            self._look = rank_activity
        found = self._look(pids)
        printed, self._printed = self._printed, False
        self._before, self._at = found, now
        if not before or not found:
            return {"alive": True, "stopped": []} if printed else None
        working = {rank for rank, one in found.items() if _works(one, before.get(rank), seconds)}
        stopped = sorted(rank for rank, one in found.items() if one.stopped and rank not in working)
        return {"alive": printed or bool(working), "stopped": stopped}


def _works(now: Any, before: Optional[Any], seconds: float) -> bool:
    """Whether a rank did something in the `seconds` since `before`; one that was not there then has begun."""
    if before is None or now.processes != before.processes:
        return True
    cores = (now.cpu_seconds - before.cpu_seconds) / seconds
    return cores >= WORKING_CORES or now.moved_bytes - before.moved_bytes >= MOVED_BYTES
