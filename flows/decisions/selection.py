"""The telling lines of logs of any size, in bounded memory and with their true numbers.

Kept are: the first and the last lines whatever they say; lines for which a rule holds, launchers' reports, tracebacks
and stacks, with what stands around them, the first and the last of each kind; step lines, the first, the last, those
around telling lines and an even sample; the first line of every new shape; the last line of everybody who speaks. A log
that is not longer than half of its allowance is kept whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from flows.decisions.learning import Learning
from flows.decisions.skimming import Skimmer
from flows.decisions.telling import Teller, readable

LINES = 6000
"""Lines kept of one log: a third from its beginning, a third from its end, a third from between."""
TOTAL_LINES = 8000
"""Lines kept of all logs of a diagnosis."""
LEAST = 8
"""Lines kept of each log, however many there are."""


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
    """The telling lines of one log.

    Args:
        name: of the file.
        blocks: its bytes.
        learning: what lines of other logs told; None: nothing.
        most: number of lines to be kept at most.
    """
    skimmer, size = Skimmer(learning or Learning(Teller()), most), 0
    for block in blocks:
        size += len(block)
        skimmer.feed(block)
    numbered, lines = skimmer.finish()
    return Selection(name, tuple(_runs(numbered)), lines, size)


def select_all(logs: Sequence[Log], total: int = TOTAL_LINES) -> tuple[Selection, ...]:
    """The telling lines of several logs, in their order; what small ones leave of the allowance is for large ones."""
    learning, left, found = Learning(Teller()), total, dict[int, Selection]()
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
