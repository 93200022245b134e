"""Who may ask the node daemon for what, and how much: the token, a rate, a number at once.

Standard library only, Python 3.9.
"""

from __future__ import annotations

import hmac
import threading
import time
from typing import Callable

BURST = 10.0
"""Seconds of the rate that may come at once: a fleet's questions arrive together."""


class Rate:
    """A bucket that fills at a steady rate; whoever finds it empty is refused.

    Args:
        per_second: how fast it fills.
        now: a clock that never goes back.
    """

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


class Room:
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
    """Who may start work.

    Args:
        token: the bearer token; "": nobody has one.
        compatible: everybody may, as with Autopilot.
    """

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
