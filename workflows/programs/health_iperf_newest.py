"""What iperf found last, for the page of metrics.

Standard library only, Python 3.9.
"""

from __future__ import annotations

import time

from workflows.programs.health_iperf_words import METRIC, Measured, metric_lines

NEWEST_SECONDS = 86400.0
"""A ring that was measured longer ago says nothing of today's network."""


class Newest:
    """The newest ring. Safe to use from several threads."""

    def __init__(self) -> None:
        self._kept = (0.0, "")

    def keep(self, found: Measured) -> None:
        """It takes the place of the one before."""
        lines = metric_lines(found)
        head = [f"# HELP {METRIC} Gb/s between two nodes in the newest iperf", f"# TYPE {METRIC} gauge"]
        self._kept = (time.monotonic() + NEWEST_SECONDS, "\n".join([*head, *lines]) + "\n" if lines else "")

    def text(self) -> str:
        """Its samples."""
        until, text = self._kept
        return text if time.monotonic() < until else ""
