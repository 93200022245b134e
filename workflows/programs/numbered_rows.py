"""Rows that are only ever added, each under a number of its own, so that readers ask for what they do not have yet."""

from __future__ import annotations

from typing import Generic, List, Tuple, TypeVar

T = TypeVar("T")


class NumberedRows(Generic[T]):
    """At most `limit` rows; the oldest quarter goes when there are more, and numbers stay as they are."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: List[T] = []
        self._first = 0

    def append(self, row: T) -> None:
        """A further row."""
        self._rows.append(row)
        if len(self._rows) > self._limit:
            surplus = max(1, self._limit // 4)
            del self._rows[:surplus]
            self._first += surplus

    def replace_last(self, row: T) -> None:
        """The newest row again; nothing where there is none."""
        if self._rows:
            self._rows[-1] = row

    def since(self, number: int, count: int) -> Tuple[int, List[T]]:
        """The number to ask for next, and at most `count` rows from `number` on.

        Whoever asks for more than there ever was (of one who has lost his memory) begins where the rows end now.
        """
        start = max(0, number - self._first)
        rows = self._rows[start : start + count]
        return self._first + (start + len(rows) if rows else len(self._rows)), rows
