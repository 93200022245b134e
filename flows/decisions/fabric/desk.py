"""One round being put together: who is still free, and who meets whom."""

from __future__ import annotations

from collections.abc import Iterable

from flows.decisions.fabric.causes import PARTNERS
from flows.decisions.fabric.known import Known
from flows.decisions.fabric.order import shuffled
from flows.decisions.fabric.state import bits


class Desk:
    """Takes groups as long as their nodes are free. Lives for one round."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.free = known.everyone
        self.groups: list[int] = []

    def offer(self, group: int) -> bool:
        """Take this group into the round; False where one of its nodes is taken, or it has not two."""
        if group & ~self.free or group.bit_count() < 2:
            return False
        self.free &= ~group
        self.groups.append(group)
        return True

    def offer_pairs(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Take those pairs whose nodes are free."""
        for left, right in pairs:
            self.offer(1 << left | 1 << right)

    def seat(self, nodes: list[int]) -> None:
        """Give each of these a free good partner whom it did not meet yet, under its own switch first."""
        partners = shuffled(bits(self.known.proven & self.free), self.known.fabric.seed, self.known.rounds)
        by_place: dict[tuple[str, ...], list[int]] = {}
        for partner in partners:
            by_place.setdefault(self.known.fabric.nodes[partner].switches, []).append(partner)
        for node in nodes:
            met = self.known.meetings.get(node, {})
            near = by_place.get(self.known.fabric.nodes[node].switches, [])
            if not self._first(node, near, met) and not self._first(node, self._mates(node), met):
                self._first(node, partners, met)

    def _mates(self, node: int) -> list[int]:
        """Nodes under its switch that are good on a rail, where it missed with enough others and none is proven there.

        The way out of the switch may be bad, and be all that is wrong with it.
        """
        known, found = self.known, 0
        for rail in bits(known.live & ~known.cleared[node]):
            under = known.under(node, rail) & ~(1 << node)
            missed = known.partners(node, rail)[1] & known.cleared_on[rail]
            if missed.bit_count() >= PARTNERS and not under & known.proven:
                found |= under & known.cleared_on[rail]
        return list(bits(found))

    def _first(self, node: int, partners: list[int], met: Iterable[int]) -> bool:
        """Seat it with the first who fits; those who are taken meanwhile leave the list."""
        known = set(met)
        for partner in list(partners):
            if not self.free >> partner & 1:
                partners.remove(partner)
            elif partner not in known and self.offer(1 << node | 1 << partner):
                return True
        return False

    def seat_with(self, node: int, candidates: int, preferred: int) -> bool:
        """Give it one of these free nodes, a preferred one first."""
        free = candidates & self.free & ~(1 << node)
        free = free & preferred or free
        if not free or not self.free >> node & 1:
            return False
        seed, turn = self.known.fabric.seed, self.known.rounds
        return self.offer(1 << node | 1 << shuffled(bits(free), seed, turn)[0])
