"""Everything that was measured, round by round, and the same in bits.

Sets of nodes are bits of one integer, bit i for the fabric's node i; sets of rails likewise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from flows.decisions.fabric.model import Fabric, Measurement


@dataclass(frozen=True)
class Seen:
    """One measurement in bits."""

    at: int
    """Number of its round, from 0."""
    mask: int
    members: tuple[int, ...]
    good: int
    """Rails that reached the floor."""
    bad: int
    """Rails that did not; all of them where nothing was answered."""
    source: Measurement


@dataclass(frozen=True)
class State:
    """A fabric and everything that was measured on it, round by round. Nothing else is remembered.

    `State(fabric, rounds)` and `State(fabric).after(...)` for each round are equal and go on alike.
    """

    fabric: Fabric
    rounds: tuple[tuple[Measurement, ...], ...] = ()
    earlier: State | None = field(default=None, repr=False, compare=False)
    """The state one round before, where it is at hand: its rounds need no second reading."""

    def after(self, measurements: tuple[Measurement, ...]) -> State:
        """The state one round later. A planned group that was never run is simply not among them."""
        return State(self.fabric, (*self.rounds, measurements), self)

    @cached_property
    def seen(self) -> tuple[Seen, ...]:
        """All measurements that say something, in bits, oldest first."""
        before = self.earlier.seen if self.earlier is not None else ()
        first = len(self.earlier.rounds) if self.earlier is not None else 0
        new = (
            _read(measurement, at, self.fabric)
            for at, measurements in enumerate(self.rounds[first:], first)
            for measurement in measurements
        )
        return (*before, *(seen for seen in new if seen is not None))


def bits(mask: int) -> Iterator[int]:
    """Positions of the bits that are set, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _read(measurement: Measurement, at: int, fabric: Fabric) -> Seen | None:
    """None where it is about unknown or too few nodes, or has another number of rails: it says nothing."""
    index = fabric.index
    members = tuple(sorted({index.get(name, -1) for name in measurement.group}))
    told = measurement.gigabytes_per_second
    if len(members) < 2 or members[0] < 0 or (told is not None and len(told) != fabric.rails):
        return None
    good, bad = 0, (1 << fabric.rails) - 1
    if told is not None:
        floor = fabric.floor(len(members))
        good = sum(1 << rail for rail, speed in enumerate(told) if speed >= floor)
        bad = sum(1 << rail for rail, speed in enumerate(told) if speed < floor and not math.isnan(speed))
    return Seen(at, mask_of(members), members, good, bad, measurement)


def mask_of(members: Sequence[int]) -> int:
    """The bits of these positions, given ascending; one pass, also for thousands of them."""
    if len(members) < 9:
        return sum(1 << member for member in members)
    row = bytearray(members[-1] // 8 + 1)
    for member in members:
        row[member >> 3] |= 1 << (member & 7)
    return int.from_bytes(row, "little")
