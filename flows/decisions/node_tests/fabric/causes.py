"""Which nodes, links and switches are to blame for the misses, each by a rule that names its measurements.

A node is blamed for what it did with proven partners, never for a group that it happened to be in. A link is blamed
only where both its ends are good with others, and a switch only where several nodes under it are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from flows.decisions.node_tests.fabric.flapping import NONE, Flaps, flaps, link_flaps
from flows.decisions.node_tests.fabric.knowledge import Knowledge, Observation, bits

PARTNERS = 3
"""Different proven partners with whom a node must have missed before it is blamed; fewer only where there are no more,
never fewer than two. A good node would need as many bad links to be mistaken."""
MATES = 2
"""Of these, under its own switch, where so many are proven, or good on that rail at least: else a bad way out of the
switch would look like it."""
LINK_MISSES = 3
"""Misses of the two ends alone, where they never were good: one or two may be somebody else's traffic."""
LINK_WITNESSES = 2
"""Good groups with others in which each end of a link must have been since the two missed first, and as many more for
each other proven node with whom it missed: a node that fails now and then looks like a link to whom it just met."""
WAVERING_WITNESSES = 6
"""The same where the two were good together, too: a node that is bad in half of its looks is good in two others in one
case of four."""
GIVEN_UP = 6
"""Misses of one group, or of one node with partners under the only other switch: more would tell no more."""
TAKEN_BACK = 2
"""Good repetitions, after the last miss, of a group or of one that holds it, that take the miss back. A link that
fails half the time is then overlooked in a quarter of the cases, not in half."""


@dataclass(frozen=True)
class Causes:
    """What is to blame: rails by node, pair and switch."""

    known: Knowledge
    nodes: Mapping[int, int]
    """Behind a switch that is to blame, too: then the switch is named, not the node."""
    switches: Mapping[str, int]
    links: Mapping[tuple[int, int], int]
    flaps: Flaps = NONE

    @cached_property
    def blamed(self) -> int:
        """Nodes that are to blame on any rail."""
        return sum(1 << node for node in self.nodes)

    @cached_property
    def suspects(self) -> int:
        """Nodes neither proven nor blamed."""
        return self.known.everyone & ~self.known.proven & ~self.blamed

    @cached_property
    def unexplained(self) -> tuple[tuple[Observation, int], ...]:
        """Misses that no cause explains and no repetition took back, each with its lowest such rail; one a group."""
        found: dict[int, tuple[Observation, int]] = {}
        for seen in self.known.observations:
            rail = next((rail for rail in bits(seen.bad & self.known.live) if self._open(seen, rail)), None)
            if rail is not None:
                found[seen.mask] = (seen, rail)
        return tuple(found.values())

    def _open(self, seen: Observation, rail: int) -> bool:
        """Whether a miss is unexplained. A culprit on one rail explains a miss on any: the last round leaves it out."""
        return not (
            seen.mask & self.blamed
            or any(seen.mask >> left & seen.mask >> right & 1 for left, right in self.links)
            or any(
                rails >> rail & 1 and seen.mask & self.known.beneath[name] and seen.mask & ~self.known.beneath[name]
                for name, rails in self._switches
            )
            or taken_back(self.known, seen.mask, rail)
        )

    @cached_property
    def _switches(self) -> tuple[tuple[str, int], ...]:
        return tuple(self.switches.items())


def causes(known: Knowledge) -> Causes:
    """Everything that is to blame by what is known now."""
    nodes = {node: rails for node in known.meetings if (rails := _node_rails(known, node))}
    flapping = flaps(known, sum(1 << node for node in nodes))
    nodes |= flapping.blamed
    switches: dict[str, int] = {}
    links: dict[tuple[int, int], int] = {}
    if nodes:
        _whole_switches(known, nodes, switches)
    for left, others in known.meetings.items():
        for right, meetings in others.items():
            if left < right and left not in nodes and right not in nodes:
                _pair(known, (left, right), meetings, (switches, links), flapping)
    return Causes(known, nodes, switches, links, flapping)


def taken_back(known: Knowledge, mask: int, rail: int) -> bool:
    """The group, or one that holds it, was good often enough since it last missed."""
    last = max((seen.at for seen in known.misses(mask, rail)), default=-1)
    good = sum(seen.at > last and seen.good >> rail & 1 and not mask & ~seen.mask for seen in known.observations)
    return good >= max(TAKEN_BACK, known.fabric.proofs)


def shut_in(known: Knowledge, node: int, rail: int) -> bool:
    """It is good under its own switch, never was outside, and missed with good nodes of two other switches."""
    if not known.under(node, rail) or not known.cleared[node] >> rail & 1:
        return False
    far = known.outside(node, rail) & known.cleared_on[rail]
    missed = known.partners(node, rail)[1] & far
    if missed.bit_count() < max(2, min(PARTNERS, far.bit_count())) or known.reaches_outside(node, rail):
        return False
    return bool(missed & ~known.under(next(bits(missed)), rail))


def witnesses_wanted(known: Knowledge, ends: tuple[int, int], rail: int) -> tuple[bool, int]:
    """Whether the first end of a suspected link is good often enough without the other; and whom to try it with else.

    Where the link leaves the switch, others outside the switch are meant, else others under it.
    """
    end, other = ends
    both = 1 << other | 1 << end
    wavers = any(seen.good >> rail & 1 and not both & ~seen.mask for seen in known.observations)
    witnesses = WAVERING_WITNESSES if wavers else LINK_WITNESSES
    far = known.outside(end, rail)
    near = far if far >> other & 1 else known.everyone & ~far
    candidates = near & ~both or known.everyone & ~both
    good, bad = (partners & candidates & known.proven for partners in known.partners(end, rail))
    bad = sum(1 << one for one in bits(bad) if not far >> one & 1 or known.reaches_outside(one, rail))
    since = min(seen.at for seen in known.meetings[end][other] if seen.bad >> rail & 1)
    often = sum(
        seen.at > since
        and seen.good >> rail & seen.mask >> end & 1 == 1
        and not seen.mask >> other & 1
        and seen.mask & candidates != 0
        for seen in known.observations
    )
    left = candidates & known.proven & ~bad
    if not often and bad.bit_count() >= GIVEN_UP:
        left = 0
    return often >= (witnesses * (1 + (bad & ~good).bit_count()) if left else 1), left & ~good or left


def _node_rails(known: Knowledge, node: int) -> int:
    """Rails on which the node is to blame."""
    missed = partners = 0
    for meetings in known.meetings[node].values():
        rails = 0
        for seen in meetings:
            rails |= seen.bad
        missed |= rails
        partners += rails != 0
    if partners < 2:
        return 0
    blamed = sum(1 << rail for rail in bits(missed & known.live) if _node_blamed(known, node, rail))
    if not blamed:
        return 0
    # It is to blame anyway. On its other rails one partner will do: the others may be bad there themselves.
    never = missed & known.live & ~known.cleared[node] & ~blamed
    return blamed | sum(
        1 << rail for rail in bits(never) if known.partners(node, rail)[1] & known.cleared_on[rail] & ~(1 << node)
    )


def _node_blamed(known: Knowledge, node: int, rail: int) -> bool:
    proven = (known.proven or known.cleared_on[rail]) & ~(1 << node)
    good, bad = known.partners(node, rail)
    bad &= known.cleared_on[rail]
    if known.cleared[node] >> rail & 1:
        return _unreliable(known, node, rail, (good, bad))
    under = known.under(node, rail) & ~(1 << node)
    if bad.bit_count() > 1:
        # Whoever is shut in under another switch misses with everybody else.
        bad &= ~sum(1 << other for other in bits(bad & ~under) if shut_in(known, other, rail))
    if not bad:
        return False
    mates = under & proven or under & known.cleared_on[rail]
    wanted = max(2, min(PARTNERS, proven.bit_count()))
    return (
        bad.bit_count() >= wanted
        and (bad & mates).bit_count() >= min(MATES, mates.bit_count())
        and (bad & mates != 0 or _two_places(known, bad, proven & ~mates, rail))
    )


def _two_places(known: Knowledge, bad: int, others: int, rail: int) -> bool:
    """Not all witnesses are under one other switch of which only the way out may be bad, as far as there are others."""
    first = known.under(next(bits(bad)), rail)
    return not first or bool(bad & ~first) or not others & ~first


def _unreliable(known: Knowledge, node: int, rail: int, partners: tuple[int, int]) -> bool:
    """Of a node that was good once: whether it misses with most partners that are good across switches too."""
    good, bad = partners
    far = known.outside(node, rail)
    if bad & far and not known.reaches_outside(node, rail):
        bad &= ~far
    if bad.bit_count() < PARTNERS or bad.bit_count() < 2 * (good & ~bad).bit_count():
        return False
    fair = [other for other in bits(bad) if not far >> other & 1 or known.reaches_outside(other, rail)]
    return len(fair) >= max(PARTNERS, 2 * (good & ~bad).bit_count())


def _whole_switches(known: Knowledge, nodes: Mapping[int, int], switches: dict[str, int]) -> None:
    """A switch whose nodes, at least two, are all to blame or shut in on one rail: one cause instead of many."""
    for node, rails in nodes.items():
        for rail in bits(rails):
            under = known.under(node, rail)
            others = bits(under & ~(1 << node))
            if under.bit_count() > 1 and all(
                nodes.get(other, 0) >> rail & 1 or shut_in(known, other, rail) for other in others
            ):
                name = known.fabric.nodes[node].switches[rail]
                switches[name] = switches.get(name, 0) | 1 << rail


def _pair(
    known: Knowledge,
    ends: tuple[int, int],
    meetings: list[Observation],
    found: tuple[dict[str, int], dict[tuple[int, int], int]],
    flapping: Flaps,
) -> None:
    """The link between these two, or the switch that one of them is shut in under."""
    switches, links = found
    left, right = ends
    both = known.cleared[left] & known.cleared[right] & known.live
    for rail in bits(both):
        if not any(seen.bad >> rail & 1 for seen in meetings):
            continue
        for end in ends:
            if shut_in(known, end, rail) and _shut_mate(known, end, rail):
                name = known.fabric.nodes[end].switches[rail]
                switches[name] = switches.get(name, 0) | 1 << rail
        if (
            is_bad(known, ends, rail)
            and not any(end in flapping.doubted for end in ends)
            and witnesses_wanted(known, ends, rail)[0]
            and witnesses_wanted(known, (ends[1], ends[0]), rail)[0]
        ):
            links[ends] = links.get(ends, 0) | 1 << rail


def is_bad(known: Knowledge, ends: tuple[int, int], rail: int) -> bool:
    """The two alone missed often enough; for a link that did so before, more often than by chance is enough."""
    meetings = known.meetings[ends[0]][ends[1]]
    return missed_often(meetings, rail) or (ends in known.fabric.suspected and link_flaps(meetings, rail))


def missed_often(meetings: Iterable[Observation], rail: int) -> bool:
    """The two alone missed three times and never were good; or once more, and twice as often as they were good."""
    misses = good = 0
    for seen in meetings:
        misses += seen.bad >> rail & 1
        good += seen.good >> rail & 1
    return misses >= (LINK_MISSES if not good else max(LINK_MISSES + 1, 2 * good))


def _shut_mate(known: Knowledge, node: int, rail: int) -> bool:
    """A second node under the switch is shut in, and none reaches the outside."""
    mates = tuple(bits(known.under(node, rail) & ~(1 << node)))
    return any(shut_in(known, mate, rail) for mate in mates) and not any(
        known.reaches_outside(mate, rail) for mate in mates
    )
