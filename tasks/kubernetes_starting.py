"""An API server that has just started refuses everything until it has read its rules: that no is no answer."""

from __future__ import annotations

import threading
from collections.abc import Callable

from profiles.errors import Unavailable
from tasks.kubernetes_errors import parse_status

READY_PATH = "/readyz"
SETTLE_SECONDS = 20.0
"""Where not even its readiness may be asked about, a no is believed after so long; a start takes a few seconds."""
FORGET_SECONDS = 300.0
"""A no that comes so long after the first one may be of another start."""


def refuses_rights(code: int, body: bytes) -> bool:
    """Whether the server itself says that we may not, by its rules of access."""
    message = str(parse_status(body).get("message", "")) if code == 403 else ""
    return 'User "' in message and " cannot " in message


class Starting:
    """Tells a no of a server that starts from one that stands. Thread-safe.

    Args:
        readiness: status of the answer at `READY_PATH`; None where none comes.
        clock: monotonic seconds.
    """

    def __init__(self, readiness: Callable[[], int | None], clock: Callable[[], float]) -> None:
        self._readiness, self._clock = readiness, clock
        self._lock = threading.Lock()
        self._mute_since: float | None = None

    def excuse(self, code: int, body: bytes, what: str) -> Unavailable | None:
        """The error that says to ask later; None where the answer stands, whatever it is.

        Args:
            code: HTTP status.
            body: the answer's body.
            what: what was asked, for the message.
        """
        if not refuses_rights(code, body) or not self._starts():
            return None
        return Unavailable(f"{what}: the API server has just started and refuses everything until it knows its rules")

    def _starts(self) -> bool:
        ready = self._readiness()
        if ready != 403:
            return ready is None or ready >= 500
        # It may be our rights that are so narrow: then it never says more.
        with self._lock:
            now = self._clock()
            if self._mute_since is None or now - self._mute_since > FORGET_SECONDS:
                self._mute_since = now
            return now - self._mute_since < SETTLE_SECONDS
