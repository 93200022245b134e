"""Bounded stores for what is kept of a stream: its first and last items, and a sample spread evenly over it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar

Item = TypeVar("Item")
Piece = tuple[int, tuple[bytes, ...]]
"""Number of a line, and it with those that follow it."""


class FirstAndLast(Generic[Item]):
    """The first and the last items that were offered; what lies between is dropped.

    Args:
        first: number of items kept from the beginning.
        last: number of items kept from the end.
    """

    def __init__(self, first: int, last: int) -> None:
        self._most = first
        self._first: list[Item] = []
        self._last: deque[Item] = deque(maxlen=last)

    def offer(self, item: Item) -> Item | None:
        """Take an item; the one that had to go for it, or None."""
        if len(self._first) < self._most:
            self._first.append(item)
            return None
        gone = self._last[0] if len(self._last) == self._last.maxlen else None
        self._last.append(item)
        return gone

    def outer_first(self) -> Iterator[Item]:
        """The items, in turn from both ends: those in the middle come last."""
        return in_turn((reversed(self._last), iter(self._first)))


class Sample(Generic[Item]):
    """At most `most` items, spread evenly over all that were offered: every second one goes when it is full."""

    def __init__(self, most: int) -> None:
        self._most, self._stride, self._offered = most, 1, 0
        self.items: list[Item] = []

    def offer(self, item: Item) -> None:
        """Take an item, or pass it over."""
        if self._offered % self._stride == 0 and len(self.items) == self._most:
            del self.items[1::2]
            self._stride *= 2
        if self._offered % self._stride == 0:
            self.items.append(item)
        self._offered += 1


def outer(items: Sequence[Item], most: int) -> Sequence[Item]:
    """The items without those in the middle: at most `most` from each end."""
    return items if len(items) <= 2 * most else [*items[:most], *items[-most:]]


def in_turn(sources: Iterable[Iterator[Item]]) -> Iterator[Item]:
    """One item of each source, then the next of each, until all are at their end."""
    left = list(sources)
    while left:
        for source in tuple(left):
            items = list(islice(source, 1))
            yield from items
            if not items:
                left.remove(source)
