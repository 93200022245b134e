"""Lines that announce nothing: what is kept of them all the same, since observers may see what no rule knows.

Rare lines, the last line of each shape, the last line of everybody who speaks, and an even sample of all, so that
nobody takes for a silence what was only dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice

from flows.decisions.keeping import FirstAndLast, Piece, Sample, in_turn, outer
from flows.decisions.learning import is_few

RARE, RARE_LINES = 32, 500
"""A shape of at most so many lines is rare; and so many lines of rare shapes are kept from each end of a log."""
SHAPES = 1000
"""Shapes whose last line is remembered; those that were not seen for the longest time are forgotten first."""
SPEAKER_BYTES, SPEAKERS = 12, 512
"""A speaker is known by the first bytes of a line (rank, host); more of them than this are no speakers."""
SAMPLED = 16
"""Lines of one block (about a megabyte) that the even sample is drawn from."""
KNOWN_BYTES = 4 << 20
"""Shapes remembered; when there are more, all are forgotten."""
CUT_BYTES = 2000
"""What is kept of a line: as much as rules look at."""


class Ordinary:
    """Follows all lines of one log.

    Args:
        most: number of lines that the even sample may have.
    """

    def __init__(self, most: int) -> None:
        self._known: set[bytes] = set()
        self._known_bytes = 0
        self._rare: dict[bytes, int] = {}
        self._rare_lines: FirstAndLast[Piece] = FirstAndLast(RARE_LINES, RARE_LINES)
        self._last: dict[bytes, Piece] = {}
        self._speakers: dict[bytes, Piece] = {}
        self._sample: Sample[Piece] = Sample(most)

    def follow(self, lines: Sequence[bytes], shapes: Sequence[bytes], first: int) -> None:
        """The next lines of a log, their shapes (`flows.decisions.learning.shape_of`), and the number of the first."""
        different = set(shapes)
        if is_few(different, lines):
            self._learn(different)
            last = {shape: place for place, shape in enumerate(shapes)}
            for shape, place in last.items():
                self._last.pop(shape, None)  # the newest stand last
                self._last[shape] = _piece(lines, place, first)
            for shape in tuple(islice(self._last, max(0, len(self._last) - SHAPES))):
                del self._last[shape]
        rare = [place for place, shape in enumerate(shapes) if shape in self._rare] if self._rare else []
        for place in outer(rare, RARE_LINES):
            self._count(shapes[place], _piece(lines, place, first))
        for place in range(0, len(lines), max(1, len(lines) // SAMPLED)):
            self._sample.offer(_piece(lines, place, first))
        if len(self._speakers) <= SPEAKERS:
            spoke = {line[:SPEAKER_BYTES]: place for place, line in enumerate(lines)}
            self._speakers |= {word: _piece(lines, place, first) for word, place in spoke.items()}

    def pieces(self) -> Iterator[Piece]:
        """What is kept, the most important first."""
        heard = self._speakers.values() if len(self._speakers) <= SPEAKERS else ()
        shapes = reversed(tuple(self._last.values()))
        return chain(heard, self._sample.items, in_turn((shapes, self._rare_lines.outer_first())))

    def _learn(self, shapes: set[bytes]) -> None:
        if self._known_bytes > KNOWN_BYTES:
            self._known.clear()
            self._rare.clear()
            self._known_bytes = 0
        fresh = shapes - self._known
        self._known |= fresh
        self._known_bytes += sum(map(len, fresh))
        self._rare |= dict.fromkeys(fresh, 0)

    def _count(self, shape: bytes, piece: Piece) -> None:
        times = self._rare.get(shape, RARE)
        if times < RARE:
            self._rare[shape] = times + 1
            self._rare_lines.offer(piece)
        else:
            self._rare.pop(shape, None)


def _piece(lines: Sequence[bytes], place: int, first: int) -> Piece:
    return first + place, (lines[place][:CUT_BYTES],)
