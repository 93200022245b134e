"""SIGTERM as the demo trainer takes it: a flag that travels with the next gradient, with a deadline behind it."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Optional


class GraceOverError(Exception):
    """The other ranks stayed silent for the whole grace after SIGTERM."""


class StoppedEarlyError(Exception):
    """SIGTERM before the first step: there is nothing to save."""


class StopRequest:
    """SIGTERM as a flag; from then on a blocked exchange ends after the grace instead of never."""

    def __init__(self, grace_seconds: float) -> None:
        self.asked = False
        self.training = False
        """Set with the first step: until then SIGTERM ends the process at once."""
        self._grace_seconds = grace_seconds

    def install(self) -> None:
        """Handle SIGTERM from now on."""
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGALRM, self._on_alarm)

    def _on_term(self, _number: int, _frame: Optional[FrameType]) -> None:
        if not self.training:
            raise StoppedEarlyError
        if not self.asked:
            self.asked = True
            signal.setitimer(signal.ITIMER_REAL, self._grace_seconds)

    def _on_alarm(self, _number: int, _frame: Optional[FrameType]) -> None:
        raise GraceOverError
