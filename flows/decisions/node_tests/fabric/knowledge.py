"""What the measurements of all rounds say, by node and by pair; read anew each time, so nothing can drift. Pure.

Sets of nodes are bits of one integer, bit i for the fabric's node i; sets of rails likewise. A collective that reached
its floor on a rail clears all its nodes, and each pair of them, on that rail: nothing bad runs at full speed. A miss
says only that something in the group was bad at that moment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from flows.decisions.node_tests.fabric.model import Fabric, Measurement


@dataclass(frozen=True)
class Observation:
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
    def observations(self) -> tuple[Observation, ...]:
        """All measurements that say something, in bits, oldest first."""
        before = self.earlier.observations if self.earlier is not None else ()
        first = len(self.earlier.rounds) if self.earlier is not None else 0
        new = (
            _observation(measurement, at, self.fabric)
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


def _observation(measurement: Measurement, at: int, fabric: Fabric) -> Observation | None:
    """None where it is about unknown or too few nodes, or has another number of rails: it says nothing."""
    index = fabric.index
    members = tuple(sorted({index.get(name, -1) for name in measurement.group}))
    bandwidths = measurement.gigabytes_per_second
    if len(members) < 2 or members[0] < 0 or (bandwidths is not None and len(bandwidths) != fabric.rails):
        return None
    good, bad = 0, (1 << fabric.rails) - 1
    if bandwidths is not None:
        floor = fabric.floor(len(members))
        good = sum(1 << rail for rail, speed in enumerate(bandwidths) if speed >= floor)
        bad = sum(1 << rail for rail, speed in enumerate(bandwidths) if speed < floor and not math.isnan(speed))
    return Observation(at, mask_of(members), members, good, bad, measurement)


def mask_of(members: Sequence[int]) -> int:
    """The bits of these positions, given ascending; one pass, also for thousands of them."""
    if len(members) < 9:
        return sum(1 << member for member in members)
    row = bytearray(members[-1] // 8 + 1)
    for member in members:
        row[member >> 3] |= 1 << (member & 7)
    return int.from_bytes(row, "little")


WRITTEN_OFF_PAIR_ROUNDS = 4
"""Rounds of disjoint pairs without one good pair, after which a rail counts as bad as a whole. With 8 nodes of which
30 % are bad by chance that happens in 2 of 100,000 fabrics."""
FEW = 8
"""With fewer nodes, all pairs are tried instead."""


@dataclass(frozen=True)
class Knowledge:
    """All measurements of a fabric and what they say by themselves."""

    fabric: Fabric
    rounds: int
    observations: tuple[Observation, ...]
    cleared: tuple[int, ...]
    """Rails `[nodes]` on which the node was in a good group."""
    meetings: Mapping[int, Mapping[int, list[Observation]]]
    """Measurements of two nodes alone, by either of them and the other."""
    beneath: Mapping[str, int]
    """Nodes under each leaf switch."""

    @cached_property
    def everyone(self) -> int:
        """All nodes."""
        return (1 << len(self.fabric.nodes)) - 1

    @cached_property
    def cleared_on(self) -> tuple[int, ...]:
        """Nodes `[rails]` that were in a good group on that rail."""
        found = [0] * self.fabric.rails
        every = (1 << self.fabric.rails) - 1
        whole = sum(1 << node for node, rails in enumerate(self.cleared) if rails == every)
        for node, rails in enumerate(self.cleared):
            if rails and rails != every:
                for rail in bits(rails):
                    found[rail] |= 1 << node
        return tuple(mask | whole for mask in found)

    @cached_property
    def live(self) -> int:
        """Rails that are not written off."""
        good = 0
        for seen in self.observations:
            good |= seen.good
        every = (1 << self.fabric.rails) - 1
        return every & ~sum(1 << rail for rail in bits(every & ~good) if self._enough_misses(rail))

    def _enough_misses(self, rail: int) -> bool:
        """Of a rail that never was good: enough pairs have missed on it."""
        nodes = len(self.fabric.nodes)
        pairs = [seen for seen in self.observations if len(seen.members) == 2 and seen.bad >> rail & 1]
        if nodes < FEW:
            return nodes > 2 and len({seen.mask for seen in pairs}) == nodes * (nodes - 1) // 2
        return len({seen.at for seen in pairs}) >= WRITTEN_OFF_PAIR_ROUNDS

    @cached_property
    def proven(self) -> int:
        """Nodes that were in a good group on every live rail; none while no rail lives."""
        found = self.everyone if self.live else 0
        for rail in bits(self.live):
            found &= self.cleared_on[rail]
        return found

    def under(self, node: int, rail: int) -> int:
        """Nodes that share the node's switch on that rail, itself too; 0 where it is not known."""
        switches = self.fabric.nodes[node].switches
        return self.beneath[switches[rail]] if rail < len(switches) else 0

    def outside(self, node: int, rail: int) -> int:
        """Nodes under other switches; all others where switches are not known."""
        return self.everyone & ~(self.under(node, rail) or 1 << node)

    def misses(self, mask: int, rail: int) -> list[Observation]:
        """Misses of exactly this group."""
        return [seen for seen in self.observations if seen.mask == mask and seen.bad >> rail & 1]

    def partners(self, node: int, rail: int) -> tuple[int, int]:
        """Those with whom it alone reached the floor at least once, and those with whom it missed it, as bits."""
        good = bad = 0
        for other, meetings in self.meetings.get(node, {}).items():
            for seen in meetings:
                good |= (seen.good >> rail & 1) << other
                bad |= (seen.bad >> rail & 1) << other
        return good, bad

    def reaches_outside(self, node: int, rail: int) -> bool:
        """It was in a good group with a node of another switch."""
        far = self.outside(node, rail)
        return any(seen.good >> rail & 1 and seen.mask >> node & 1 and seen.mask & far for seen in self.observations)


def knowledge_of(state: State) -> Knowledge:
    """Everything that the measurements of this state say by themselves."""
    fabric = state.fabric
    cleared = [0] * len(fabric.nodes)
    meetings: dict[int, dict[int, list[Observation]]] = {}
    for one in state.observations:
        if one.good:
            for node in one.members:
                cleared[node] |= one.good
        if len(one.members) == 2:
            left, right = one.members
            meetings.setdefault(left, {}).setdefault(right, []).append(one)
            meetings.setdefault(right, {}).setdefault(left, []).append(one)
    beneath = {switch: mask_of(members) for switch, members in fabric.beneath.items()}
    return Knowledge(fabric, len(state.rounds), state.observations, tuple(cleared), meetings, beneath)
