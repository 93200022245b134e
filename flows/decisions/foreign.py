"""Evidence from anybody's log files: nothing is known but their lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain

from flows.decisions.reading import read_lines, without_hosts
from flows.decisions.selection import Selection
from flows.decisions.stamps import Clock
from workflows.evidence import Evidence, LogLine, Signal

MOST_QUOTED = 40
"""So many characters before every line are no quotation."""
_MARKS = ("> ", "# ")
_FIELD = re.compile(r"\S.{0,60}?(?: {2,40}: |: {2,40})\S")
"""Reports of names and values say by their columns what belongs to what."""


def evidence_of(files: Iterable[tuple[str, Sequence[str]]]) -> Evidence:
    """Evidence from whole files: (name, lines without line ends) each."""
    return evidence_from(Selection(name, ((1, tuple(texts)),), len(texts), 0) for name, texts in files)


def evidence_from(selections: Iterable[Selection]) -> Evidence:
    """Evidence from what was kept of files; every line has its true number. After a gap no time is carried over."""
    clock = Clock()
    files: list[list[LogLine]] = []
    for kept in selections:
        quoted = _quoted(kept)
        read = (read_lines(kept.name, _without(quoted, texts), clock, first) for first, texts in kept.runs)
        files.append(list(without_hosts(chain.from_iterable(read))))
    return Evidence(Signal.LOGS, "", 0, 0.0, lines=tuple(chain.from_iterable(_in_order(files))))


def _quoted(kept: Selection) -> int:
    """Characters before every line of a file that was pasted into a text: columns of spaces, `> ` or `# `; mostly 0."""
    least, marks = MOST_QUOTED, set[str]()
    for _, texts in kept.runs:
        for text in texts:
            if not text.strip():
                continue
            inner = text.lstrip(" ")
            if inner[:2] in _MARKS:
                marks.add(inner[:2])
                inner = inner[2:]
            elif len(inner) == len(text) or marks or _FIELD.match(inner):
                return 0
            least = min(least, len(text) - len(inner))
            if len(marks) > 1:
                return 0
    return least if least < MOST_QUOTED else 0


def _without(quoted: int, texts: Sequence[str]) -> Sequence[str]:
    return [text[quoted:] for text in texts] if quoted else texts


def _in_order(files: Sequence[list[LogLine]]) -> list[list[LogLine]]:
    """Files that say when they begin, in that order: attempts follow each other. The others stay where they are."""
    begins = [next((line.at for line in lines if line.at is not None), None) for lines in files]
    order = iter(sorted((at, number) for number, at in enumerate(begins) if at is not None))
    return [lines if at is None else files[next(order)[1]] for lines, at in zip(files, begins, strict=True)]
