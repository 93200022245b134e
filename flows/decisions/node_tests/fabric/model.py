"""What is measured between nodes, and what is concluded from it: frozen values, no behaviour beyond asking.

A measurement is one collective (an all-reduce) over a group of nodes. It gives a bandwidth for each rail, a rail being
one network card's index on all nodes, or nothing within its deadline. Which nodes take part in which group is decided
by `plan.next_round`, who is to blame by `judge.answer`. Orders look random and are not: the same seed gives the same
one on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

Group = tuple[str, ...]
"""Names of the nodes that take part in one collective, at least two, in the order of the fabric."""

_MASK = (1 << 64) - 1


class FabricFault(StrEnum):
    """What is bad."""

    NODE = "node"
    """One node: slow or silent whoever its partner is."""
    LINK = "link"
    """The way between two nodes, each of which reaches its limit with others."""
    SWITCH = "switch"
    """A leaf switch: everything under it, or the way from under it to the outside."""
    RAIL = "rail"
    """One card index: nothing reaches the limit on it, anywhere."""
    FABRIC = "fabric"
    """Nothing reaches the limit on any rail, anywhere."""


@dataclass(frozen=True)
class Node:
    """A node and where it hangs."""

    name: str
    switches: tuple[str, ...] = ()
    """Leaf switch of each rail `[rails]`: eight times the same one, or one for each rail where the fabric is
    rail-optimised. Empty: not known; then a bad switch can only show as the nodes under it, or stays open."""


@dataclass(frozen=True)
class Floor:
    """What a group of at least so many nodes must reach."""

    nodes: int
    gigabytes_per_second: float
    """On each rail. Below it the measurement is a miss."""


@dataclass(frozen=True)
class Fabric:
    """What is to be tested."""

    nodes: tuple[Node, ...]
    floors: tuple[Floor, ...]
    """The one with the most nodes that the group still has counts; for a smaller group the smallest one."""
    rails: int = 8
    seed: int = 0
    """Given from outside: which partners meet. The same seed and the same measurements plan the same rounds."""
    proofs: int = 1
    """How often the whole, and at the end all who are not to blame, must be good. 1 takes the fabric at its word;
    with 3, what shows in half of the measurements only slips through one time in eight."""
    suspects: tuple[tuple[str, str], ...] = ()
    """Links that missed in earlier tests: looked at by themselves though the whole is good."""
    rounds: int = 64
    """At most so many rounds; what is open then is unknown. One bad node takes 6, one link among 4,096
    nodes about 24, and each further link about 15 more (`tests/benchmarks/fabric_rounds.py`)."""

    @cached_property
    def index(self) -> dict[str, int]:
        """Number of each node by its name."""
        return {node.name: number for number, node in enumerate(self.nodes)}

    @cached_property
    def beneath(self) -> dict[str, tuple[int, ...]]:
        """Numbers of the nodes under each leaf switch, ascending."""
        under: dict[str, list[int]] = {}
        for number, node in enumerate(self.nodes):
            for switch in dict.fromkeys(node.switches):
                under.setdefault(switch, []).append(number)
        return {switch: tuple(members) for switch, members in under.items()}

    @cached_property
    def suspected(self) -> frozenset[tuple[int, int]]:
        """The suspects that are in this fabric, as numbers, the lower one first."""
        pairs = ((self.index.get(left, -1), self.index.get(right, -1)) for left, right in self.suspects)
        return frozenset((min(pair), max(pair)) for pair in pairs if min(pair) >= 0 and pair[0] != pair[1])

    def floor(self, nodes: int) -> float:
        """GB/s on each rail that a group of so many nodes must reach."""
        if len(self.floors) == 1:
            return self.floors[0].gigabytes_per_second
        ordered = sorted(self.floors, key=lambda floor: floor.nodes)
        fitting = [floor for floor in ordered if floor.nodes <= nodes] or ordered[:1]
        return fitting[-1].gigabytes_per_second if fitting else 0.0


@dataclass(frozen=True)
class Measurement:
    """The result of one collective."""

    group: Group
    gigabytes_per_second: tuple[float, ...] | None
    """Of each rail `[rails]`; None: no answer within its deadline. NaN, or another number of rails, says nothing:
    neither for nor against anybody."""


@dataclass(frozen=True)
class FabricFinding:
    """One thing that is bad."""

    kind: FabricFault
    members: tuple[str, ...]
    """The node; both ends of the link; the nodes under the switch; all nodes for a rail and the fabric."""
    rails: tuple[int, ...]
    """On which it shows, ascending."""
    confidence: float
    """0 to 1, in steps by how much stands behind it: chosen, not fitted."""
    why: str
    evidence: tuple[Measurement, ...]
    """The measurements that say so, oldest first, at most `judge.EVIDENCE_SHOWN`."""
    switch: str = ""
    """Its name, for a switch."""


@dataclass(frozen=True)
class UnknownNode:
    """A node of which nothing can be said, and why."""

    node: str
    why: str


@dataclass(frozen=True)
class Answer:
    """What the measurements say; every node is proven, unknown, or member of a finding of its own fault."""

    findings: tuple[FabricFinding, ...]
    proven: tuple[str, ...]
    """Reached the limit on every rail that works at all. A node of a bad link is proven, a node that only failed behind
    a bad switch is not."""
    unknown: tuple[UnknownNode, ...]
    unexplained: tuple[Measurement, ...]
    """Misses that no finding explains and no repetition took back."""
    rounds: int
    spent: bool
    """The budget ended it, not the measurements."""


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
