"""Evidence from anybody's log files: nothing is known but their lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from flows.decisions.reading import read_lines, without_hosts
from flows.decisions.selection import Selection
from flows.decisions.stamps import Clock
from workflows.evidence import Evidence, LogLine, Signal


def evidence_of(files: Iterable[tuple[str, Sequence[str]]]) -> Evidence:
    """Evidence from whole files: (name, lines without line ends) each."""
    return evidence_from(Selection(name, ((1, tuple(texts)),), len(texts), 0) for name, texts in files)


def evidence_from(selections: Iterable[Selection]) -> Evidence:
    """Evidence from what was kept of files; every line has its true number. After a gap no time is carried over."""
    clock = Clock()
    files: list[list[LogLine]] = []
    for kept in selections:
        read = (read_lines(kept.name, texts, clock, first) for first, texts in kept.runs)
        files.append(list(without_hosts(chain.from_iterable(read))))
    return Evidence(Signal.LOGS, "", 0, 0.0, lines=tuple(chain.from_iterable(_in_order(files))))


def _in_order(files: Sequence[list[LogLine]]) -> list[list[LogLine]]:
    """Files that say when they begin, in that order: attempts follow each other. The others stay where they are."""
    begins = [next((line.at for line in lines if line.at is not None), None) for lines in files]
    order = iter(sorted((at, number) for number, at in enumerate(begins) if at is not None))
    return [lines if at is None else files[next(order)[1]] for lines, at in zip(files, begins, strict=True)]
