"""Orders that look random and are not: the same seed gives the same one, on every machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_MASK = (1 << 64) - 1


def shuffled(items: Iterable[int], seed: int, turn: int = 0) -> list[int]:
    """The items in an order of this seed and turn."""
    return sorted(items, key=lambda item: _mixed(_mixed(seed * 0x9E3779B97F4A7C15 + turn) + item))


def _mixed(value: int) -> int:
    """The finishing step of the published SplitMix64 generator."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def circle(items: Sequence[int], turn: int) -> list[tuple[int, int]]:
    """Round `turn` of a tournament in which each meets each other once; with an odd number one rests in each.

    The first stays, all others move on by one seat a round: after n - 1 rounds (n, where n is odd) all have met.
    """
    seats: list[int | None] = [*items, *([None] if len(items) % 2 else [])]
    if len(seats) < 2:
        return []
    turn %= len(seats) - 1
    moved = [seats[0], *seats[1 + turn :], *seats[1 : 1 + turn]]
    pairs = [(moved[seat], moved[-1 - seat]) for seat in range(len(moved) // 2)]
    return [(left, right) for left, right in pairs if left is not None and right is not None]


def dealt(items: Sequence[int], parts: int) -> list[list[int]]:
    """The items in so many parts of nearly the same size, none empty."""
    return [part for number in range(parts) if (part := list(items[number::parts]))]
