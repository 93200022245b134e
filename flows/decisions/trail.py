"""The steps of a training in a log of any length: its first and last ones, an even sample, and where it fell back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise

from flows.decisions.keeping import FirstAndLast, Piece, Sample, outer
from flows.decisions.steps import step_of
from workflows.evidence import LogLine

AT_ENDS = 50
"""Step lines kept from the beginning of a log, and as many from its end."""
SAMPLED = 64
"""Step lines of one block (about a megabyte) that are looked at and sampled, at most; fewer where few can be kept."""
AROUND = 2
"""Step lines kept before and after a telling line."""
NEAR = 400
"""Step lines of that kind kept from the beginning, and as many from the end."""
FALLS = 40
"""Falls kept from the beginning, and as many from the end: some programs count anew in every epoch."""
SEARCHED = 2
"""Falls of one block that are looked for line by line."""
BETWEEN = 60
"""Lines before the first step after a fall: what the program said as it started."""
FALLEN = 2
"""A step below the one before it divided by this is a fall; ranks side by side differ by less."""
Cut = Callable[[int, int], Piece]
"""The lines of a window from one place to before another."""


class Trail:
    """Follows the step lines of one log.

    Args:
        most: number of lines that the sample may have.
    """

    def __init__(self, most: int) -> None:
        self._ends: FirstAndLast[Piece] = FirstAndLast(AT_ENDS, AT_ENDS)
        self._near: FirstAndLast[Piece] = FirstAndLast(NEAR, NEAR)
        self._falls: FirstAndLast[Piece] = FirstAndLast(FALLS, FALLS)
        self._sample: Sample[Piece] = Sample(most)
        self._looks = min(SAMPLED, 2 + most)
        self._last: list[Piece] = []
        self._reached: int | None = None
        self._wanted = 0

    def follow(self, lines: Sequence[bytes], places: Sequence[int], telling: Sequence[int], cut: Cut) -> None:
        """The next part of a log.

        Args:
            lines: a window of it.
            places: where the step lines stand in the window, ascending; each is given once.
            telling: where lines stand around which steps are worth keeping, ascending.
            cut: takes lines out of the window.
        """
        self._around(places, telling, cut)
        for place in outer(places, AT_ENDS):
            self._ends.offer(cut(place, place + 1))
        stride = len(places) // self._looks + 1
        for place in places[::stride]:
            self._sample.offer(cut(place, place + 1))
        self._fallen(lines, places, stride, cut)
        self._last = [*self._last, *(cut(place, place + 1) for place in places[-AROUND:])][-AROUND:]

    def pieces(self) -> Iterator[Piece]:
        """What is kept, the most important first."""
        return chain(
            self._falls.outer_first(), self._near.outer_first(), self._ends.outer_first(), iter(self._sample.items)
        )

    def _around(self, places: Sequence[int], telling: Sequence[int], cut: Cut) -> None:
        """The steps before and after each telling line; those that are still to come are waited for."""
        marks, before = iter(telling), list[int]()
        mark = next(marks, None)
        for place in (*places, None):
            while mark is not None and (place is None or mark <= place):
                for piece in [*self._last, *(cut(item, item + 1) for item in before)][-AROUND:]:
                    self._near.offer(piece)
                self._wanted, before = AROUND, []
                mark = next(marks, None)
            if place is not None:
                before = [*before[1 - AROUND :], place]
                if self._wanted:
                    self._near.offer(cut(place, place + 1))
                    self._wanted -= 1
            if mark is None and not self._wanted:
                return

    def _fallen(self, lines: Sequence[bytes], places: Sequence[int], stride: int, cut: Cut) -> None:
        looked = list(places[::stride]) + ([places[-1]] if places else [])
        numbers = [_number(lines[place]) for place in looked]
        searched = 0
        for (first, before), (last, after) in pairwise(zip([-1, *looked], [self._reached, *numbers], strict=True)):
            if before is None or after is None or after * FALLEN >= before or searched >= SEARCHED:
                continue
            searched += 1
            self._search(
                lines, [place for place in places if first <= place <= last], before if first < 0 else None, cut
            )
        known = [number for number in numbers if number is not None]
        self._reached = known[-1] if known else self._reached

    def _search(self, lines: Sequence[bytes], places: Sequence[int], reached: int | None, cut: Cut) -> None:
        previous: int | None = None
        for place in places:
            number = _number(lines[place])
            if number is not None and reached is not None and number * FALLEN < reached:
                for piece in self._last if previous is None else [cut(previous, previous + 1)]:
                    self._falls.offer(piece)
                self._falls.offer(cut(place - BETWEEN, place + 1))
                self._wanted = AROUND
                return
            reached, previous = (reached if number is None else number), place


def _number(line: bytes) -> int | None:
    found = step_of(LogLine(line.decode("utf-8", "replace"), ""))
    return found.step if found is not None else None
