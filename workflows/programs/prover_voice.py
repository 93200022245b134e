"""How the prover hears and speaks: lines of standard input without waiting for them, reports on standard output."""

from __future__ import annotations

import os
import select
import time
from typing import Callable, List

from workflows.programs.checkpoint_formats import UNKNOWN_STEP
from workflows.reports import CheckpointSeen, line


class Input:
    """Lines of standard input, without ever waiting longer than asked."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""
        self.ended = False

    def lines(self, wait_seconds: float) -> List[str]:
        """What arrived within `wait_seconds`; returns early when something does."""
        if self.ended:
            return []
        ready, _, _ = select.select([self._descriptor], [], [], wait_seconds)
        if not ready:
            return []
        data = os.read(self._descriptor, 65536)
        self.ended = not data
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [text.decode("utf-8", "replace") for text in whole]


class Voice:
    """Says what the prover finds on standard output; a storage that fails is told once, and tried again."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._complained = ""

    def say(self, ask: Callable[[], List[CheckpointSeen]]) -> None:
        """Print a line for each report of `ask`."""
        try:
            for report in ask():
                self.tell(report)
            self._complained = ""
        except OSError as error:
            why = f"{error.strerror or error} ({error.filename})"
            if why != self._complained:
                report = CheckpointSeen(UNKNOWN_STEP, self._directory, time.time(), "unknown", why)
                self.tell(report)
            self._complained = why

    def tell(self, report: CheckpointSeen) -> None:
        """Print one report's line."""
        print(line(report), flush=True)
