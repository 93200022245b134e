"""The telling lines of log files of any size, in bounded memory and with their true numbers, as evidence.

Kept are: the first and the last lines whatever they say; lines for which a rule holds, launchers' reports, tracebacks
and stacks, with what stands around them, the first and the last of each kind; step lines, the first, the last, those
around telling lines and an even sample; the first line of every new shape; the last line of everybody who speaks. A log
that is not longer than half of its allowance is kept whole. Of the files nothing is known but their lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from flows.decisions.diagnosis.files import read_numbered, without_hosts
from flows.decisions.diagnosis.lines import Clock, uncoloured
from flows.decisions.diagnosis.pasted import relined
from flows.decisions.diagnosis.significance import SignificanceIndex, readable
from flows.decisions.diagnosis.skim import Learning, Skimmer
from workflows.model.attempt import Evidence, LogLine, Signal

LINES = 6000
"""Lines kept of one log: a third from its beginning, a third from its end, a third from between."""
TOTAL_LINES = 8000
"""Lines kept of all logs of a diagnosis."""
LEAST = 8
"""Lines kept of each log, however many there are."""

MOST_QUOTED = 40
"""So many characters before every line are no quotation."""
_MARKS = ("> ", "# ")
_FIELD = re.compile(r"\S.{0,60}?(?: {2,40}: |: {2,40})\S")
"""Reports of names and values say by their columns what belongs to what."""


class Log(Protocol):
    """A log that can be read once more."""

    @property
    def name(self) -> str:
        """Its file."""
        ...

    @property
    def size_bytes(self) -> int | None:
        """None: not known before the end."""
        ...

    def blocks(self) -> Iterable[bytes]:
        """Its bytes in blocks of any size; about a megabyte each is fastest."""
        ...


@dataclass(frozen=True)
class Selection:
    """What was kept of one log."""

    name: str
    runs: tuple[tuple[int, tuple[str, ...]], ...]
    """(number of the first line, lines that follow each other), in order."""
    lines: int
    """Lines of the whole log."""
    size_bytes: int
    """Bytes of the whole log, as read."""

    @property
    def kept(self) -> int:
        """Number of lines that were kept."""
        return sum(len(texts) for _, texts in self.runs)


def select(name: str, blocks: Iterable[bytes], learning: Learning | None = None, most: int = LINES) -> Selection:
    """The telling lines of one log. At most `most` lines; `learning`: what other logs have shown."""
    skimmer, size = Skimmer(learning or Learning(SignificanceIndex()), most), 0
    for block in blocks:
        size += len(block)
        skimmer.feed(block)
    numbered, lines = skimmer.finish()
    return Selection(name, tuple(_runs(numbered)), lines, size)


def select_all(logs: Sequence[Log], total: int = TOTAL_LINES) -> tuple[Selection, ...]:
    """The telling lines of several logs, in their order; what small ones leave of the allowance is for large ones."""
    learning, left, found = Learning(SignificanceIndex()), total, dict[int, Selection]()
    sizes = [float("inf") if log.size_bytes is None else log.size_bytes for log in logs]
    for place, index in enumerate(sorted(range(len(logs)), key=lambda index: sizes[index])):
        most = max(LEAST, min(LINES, left // (len(logs) - place)))
        found[index] = select(logs[index].name, logs[index].blocks(), learning, most)
        left -= found[index].kept
    return tuple(found[index] for index in range(len(logs)))


def _runs(numbered: dict[int, bytes]) -> Iterator[tuple[int, tuple[str, ...]]]:
    texts: list[str] = []
    first = 0
    for number in sorted(numbered):
        if texts and number != first + len(texts):
            yield first, tuple(texts)
            texts = []
        first = first if texts else number
        texts.append(readable(numbered[number]))
    if texts:
        yield first, tuple(texts)


def evidence_of(files: Iterable[tuple[str, Sequence[str]]]) -> Evidence:
    """Evidence from whole files: (name, lines without line ends) each."""
    return evidence_from(Selection(name, ((1, tuple(texts)),), len(texts), 0) for name, texts in files)


def evidence_from(selections: Iterable[Selection]) -> Evidence:
    """Evidence from what was kept of files; every line has its true number. After a gap no time is carried over."""
    clock = Clock()
    files: list[list[LogLine]] = []
    for kept in selections:
        runs = [(first, [uncoloured(text) for text in texts]) for first, texts in kept.runs]
        quoted = _quoted(runs)
        read = (
            read_numbered(kept.name, relined([text[quoted:] for text in texts] if quoted else texts, first), clock)
            for first, texts in runs
        )
        files.append(list(without_hosts(chain.from_iterable(read))))
    return Evidence(Signal.LOGS, "", 0, 0.0, lines=tuple(chain.from_iterable(_in_order(files))))


def _quoted(runs: Iterable[tuple[int, Sequence[str]]]) -> int:
    """Characters before every line of a file that was pasted into a text: columns of spaces, `> ` or `# `; mostly 0."""
    least, marks = MOST_QUOTED, set[str]()
    for _, texts in runs:
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


def _in_order(files: Sequence[list[LogLine]]) -> list[list[LogLine]]:
    """Files that say when they begin, in that order: attempts follow each other. The others stay where they are."""
    begins = [next((line.at for line in lines if line.at is not None), None) for lines in files]
    order = iter(sorted((at, number) for number, at in enumerate(begins) if at is not None))
    return [lines if at is None else files[next(order)[1]] for lines, at in zip(files, begins, strict=True)]
