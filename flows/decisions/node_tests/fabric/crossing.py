"""Misses among nodes that are good one by one: the search for what is bad between them.

A missing group is cut along what was already good: its parts of which each pair was good together. Parts are merged, a
quarter or a half of the group at a time, until two parts are left that miss only together; these are cut and tried
crosswise until two nodes are left. Each step is a test of disjoint groups, so several such searches run side by side.
Two nodes that miss are then tried with others: a link where each is good with others, a switch where one is not.
"""

from __future__ import annotations

from collections.abc import Iterable

from flows.decisions.node_tests.fabric.causes import (
    GIVEN_UP,
    PARTNERS,
    Causes,
    is_bad,
    shut_in,
    taken_back,
    witnesses_wanted,
)
from flows.decisions.node_tests.fabric.flapping import wants_looks
from flows.decisions.node_tests.fabric.knowledge import Knowledge, Observation, bits, mask_of
from flows.decisions.node_tests.fabric.model import dealt, shuffled

MANY_PARTS = 8
"""From so many parts on a quarter of them is tried at a time: two rounds of halves become one."""
CUT = 4
"""Pieces into which each of two parts is cut: at most 4 rounds to a sixteenth of the pairs, 2.5 on average."""
AT_ONCE = 8
"""Searches side by side: a bad switch makes all pairs across it miss, and one of them tells as much as a thousand."""
DOUBTED = 3
"""A group that missed so often although all its pairs were good: what was good before its last miss counts no more."""


class Desk:
    """Takes groups as long as their nodes are free. Lives for one round."""

    def __init__(self, known: Knowledge) -> None:
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
            former = self.known.meetings.get(node, {})
            near = by_place.get(self.known.fabric.nodes[node].switches, [])
            if not self._first(node, near, former) and not self._first(node, self._mates(node), former):
                self._first(node, partners, former)

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

    def _first(self, node: int, partners: list[int], former: Iterable[int]) -> bool:
        """Seat it with the first partner that fits; nodes that are taken meanwhile leave the list."""
        known = set(former)
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


def across(found: Causes, desk: Desk) -> None:
    """Plan the next test of each unexplained miss, the smallest groups first."""
    suspects = found.suspects
    waiting = [(seen, rail) for seen, rail in found.unexplained if not seen.mask & suspects]
    waiting = [(seen, rail) for seen, rail in waiting if len(found.known.misses(seen.mask, rail)) < GIVEN_UP]
    waiting.sort(key=lambda item: (len(item[0].members), item[0].mask))
    searches = 0
    for number, (seen, rail) in enumerate(waiting):
        if any(not smaller.mask & ~seen.mask and smaller.mask != seen.mask for smaller, _ in waiting[:number]):
            continue
        if searches == AT_ONCE:
            break
        searches += 1
        if len(seen.members) == 2:
            _pair(found, seen, rail, desk)
        elif not seen.mask & ~desk.free:
            _group(found.known, seen, rail, desk, _real(found.known, seen, waiting[number + 1 :]))


def offer_suspected_links(found: Causes, desk: Desk) -> None:
    """Look at links that missed in earlier tests; and where one does so again, at its ends with others."""
    known = found.known
    for ends in sorted(known.fabric.suspected):
        if (1 << ends[0] | 1 << ends[1]) & found.blamed or ends in found.links:
            continue
        if wants_looks(known, ends):
            desk.offer(1 << ends[0] | 1 << ends[1])
            continue
        for seen in known.meetings[ends[0]][ends[1]][-1:]:
            rail = next((rail for rail in bits(known.live) if is_bad(known, ends, rail)), None)
            if rail is not None:
                _witnesses(known, seen, rail, desk)


def _real(known: Knowledge, seen: Observation, larger: Iterable[tuple[Observation, int]]) -> bool:
    """The miss is no single event: the group, or one that holds it and is open too, missed twice."""
    groups = (seen.mask, *(other.mask for other, _ in larger if not seen.mask & ~other.mask))
    return any(sum(other.mask == group and other.bad != 0 for other in known.observations) > 1 for group in groups)


def _group(known: Knowledge, seen: Observation, rail: int, desk: Desk, real: bool) -> None:
    mask = seen.mask
    misses = known.misses(mask, rail)
    since = misses[-1].at + 1 if len(misses) >= DOUBTED else 0
    good = [
        other.mask for other in known.observations if other.at >= since and other.good >> rail & 1 and other.mask & mask
    ]
    parts = _parts(mask, good) if real else []
    if len(parts) > 2:
        for merged in dealt(range(len(parts)), 4 if len(parts) >= MANY_PARTS else 2):
            if len(merged) > 1:
                desk.offer(sum(parts[number] for number in merged))
    elif len(parts) == 2:
        _crosswise(known, (parts[0], parts[1]), good, desk)
    if not mask & ~desk.free:
        desk.offer(mask)


def _parts(mask: int, good: list[int]) -> list[int]:
    """The group in parts of which each was good together, large ones first; single nodes last."""
    parts: list[int] = []
    left = mask
    for group in sorted(good, key=lambda group: -(group & mask).bit_count()):
        part = group & left
        if part.bit_count() > 1:
            parts.append(part)
            left &= ~part
    return parts + [1 << node for node in bits(left)]


def _crosswise(known: Knowledge, parts: tuple[int, int], good: list[int], desk: Desk) -> None:
    """Cut both parts and try the first crossing that was not good yet."""
    left, right = (shuffled(bits(part), known.fabric.seed) for part in parts)
    least = min(len(left), len(right))
    pieces = CUT if least > 1 else 2
    lefts = dealt(left, min(pieces, len(left)))
    rights = dealt(right, min(pieces, len(right)))
    short, long = sorted((lefts, rights), key=len)
    for turn in range(len(long)):
        crossing = [mask_of(sorted([*piece, *long[(number + turn) % len(long)]])) for number, piece in enumerate(short)]
        untried = [group for group in crossing if not any(not group & ~other for other in good)]
        if untried:
            for group in untried:
                desk.offer(group)
            return


def _pair(found: Causes, seen: Observation, rail: int, desk: Desk) -> None:
    """Once more; then each end with others; for an end that reaches no other switch, a second node of its switch."""
    known, (left, right) = found.known, seen.members
    if not is_bad(known, (left, right), rail):
        desk.offer(seen.mask)
        return
    if not _witnesses(known, seen, rail, desk) and not taken_back(known, seen.mask, rail):
        desk.offer(seen.mask)


def _witnesses(known: Knowledge, seen: Observation, rail: int, desk: Desk) -> bool:
    """Seat both ends with others, as far as that is wanted; False where neither was seated."""
    left, right = seen.members
    planned = False
    for end, other in ((left, right), (right, left)):
        enough, candidates = witnesses_wanted(known, (end, other), rail)
        if shut_in(known, end, rail):
            planned |= _try_mate(known, end, rail, desk)
        elif not enough:
            planned |= desk.seat_with(end, candidates & ~seen.mask, _fresh(known, end, rail))
    return planned


def _try_mate(known: Knowledge, node: int, rail: int, desk: Desk) -> bool:
    """A second proven node of the switch, with the outside."""
    mates = known.under(node, rail) & known.proven & ~(1 << node)
    for mate in shuffled(bits(mates), known.fabric.seed):
        if known.reaches_outside(mate, rail):
            return False
        partners = sum(1 << other for other in known.meetings.get(mate, {}))
        if desk.seat_with(mate, known.outside(mate, rail) & known.proven & ~partners, _fresh(known, mate, rail)):
            return True
    return False


def _fresh(known: Knowledge, node: int, rail: int) -> int:
    """Nodes under switches with which it did not miss yet."""
    tried = 0
    for other in bits(known.partners(node, rail)[1]):
        tried |= known.under(other, rail)
    return known.everyone & ~tried
