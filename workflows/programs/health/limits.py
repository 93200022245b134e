"""Limits of the node daemon's requests: the token, a rate, a number at the same time.

Work that many callers want at the same time is done once, and works that disturb each other take turns; a caller that
cannot have its turn in time gets an answer that says so.
"""

from __future__ import annotations

import hmac
import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Callable, Dict, Generator, Hashable, TypeVar

BURST = 10.0
"""Seconds of the rate that may come at once: a fleet's questions arrive together."""

T = TypeVar("T")


class RateLimiter:
    """A token bucket that fills at `per_second`; requests are refused while it is empty."""

    def __init__(self, per_second: float, now: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._now = per_second, now
        self._most = max(1.0, BURST * per_second)
        self._level, self._at = self._most, now()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Whether one more is allowed now."""
        with self._lock:
            now = self._now()
            self._level = min(self._most, self._level + (now - self._at) * self._rate)
            self._at = now
            if self._level < 1.0:
                return False
            self._level -= 1.0
            return True


class ConnectionLimiter:
    """So many at the same time."""

    def __init__(self, most: int) -> None:
        self._slots = threading.Semaphore(most)

    def enter(self) -> bool:
        """Whether there is room; `leave` afterwards."""
        return self._slots.acquire(blocking=False)

    def leave(self) -> None:
        """Give the place back."""
        self._slots.release()


class Gate:
    """Authorises requests that start work: those with the bearer `token` ("": none), or all if `compatible`."""

    def __init__(self, token: str, compatible: bool) -> None:
        self._token, self._compatible = token, compatible

    def refusal(self, authorization: str) -> str:
        """Why a request may not start work; "": it may. Takes as long for a wrong token as for a right one."""
        if self._compatible:
            return ""
        if not self._token:
            return "this daemon was started without a token, so nobody may start work: set PRIMUS_TOKEN"
        scheme, _, given = authorization.partition(" ")
        right = hmac.compare_digest(given.strip().encode("utf-8", "replace"), self._token.encode())
        if scheme.lower() == "bearer" and right:
            return ""
        return "starting work needs the header Authorization: Bearer with the daemon's token"


class SharedResult:
    """Runs one thing at a time for each key; whoever asks meanwhile gets the same answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Dict[Hashable, "Future[Any]"] = {}

    def do(self, key: Hashable, work: Callable[[], T]) -> T:
        """The answer of `work`, run here or by whoever began it first.

        Raises:
            whatever `work` raises, for all who wait for it.
        """
        mine: "Future[T]" = Future()
        with self._lock:
            running = self._running.setdefault(key, mine)
        if running is not mine:
            return running.result()
        try:
            answer = work()
        except BaseException as error:
            self._forget(key)
            mine.set_exception(error)
            raise
        self._forget(key)
        mine.set_result(answer)
        return answer

    def _forget(self, key: Hashable) -> None:
        with self._lock:
            del self._running[key]


class ExclusiveTurns:
    """What cannot be shared: one holder at a time for each name."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holders: Dict[str, str] = {}

    @contextmanager
    def turn(self, name: str, holder: str, seconds: float) -> Generator[str, None, None]:
        """Have `name` for oneself; waits at most so long.

        Yields:
            "" with the turn, or who had it all the time.
        """
        ends = time.monotonic() + seconds
        with self._changed:
            while name in self._holders and time.monotonic() < ends:
                self._changed.wait(max(0.0, ends - time.monotonic()))
            other = self._holders.get(name, "")
            if not other:
                self._holders[name] = holder
        try:
            yield other
        finally:
            if not other:
                with self._changed:
                    del self._holders[name]
                    self._changed.notify_all()

    def holder(self, name: str) -> str:
        """Who has it now; "": nobody."""
        with self._changed:
            return self._holders.get(name, "")
