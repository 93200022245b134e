"""Evidence from anybody's log files: nothing is known but their lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flows.decisions.reading import read_lines, without_hosts
from flows.decisions.stamps import Clock
from workflows.evidence import Evidence, LogLine, Signal


def evidence_of(files: Iterable[tuple[str, Sequence[str]]]) -> Evidence:
    """Evidence from whole files: (name, lines without line ends) each."""
    clock = Clock()
    lines: list[LogLine] = []
    for name, texts in files:
        lines += without_hosts(read_lines(name, texts, clock))
    return Evidence(Signal.LOGS, "", 0, 0.0, lines=tuple(lines))
