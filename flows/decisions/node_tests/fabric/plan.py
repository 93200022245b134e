"""Which groups to measure next: the whole, then only what the misses ask for.

A round costs the same time however many disjoint groups it has, so a miss of the whole is not halved eleven times:

1. the whole group; where it is good everywhere, that is all;
2. one block under each leaf switch (16 by chance where switches are not known); good blocks prove their nodes;
3. missing blocks in pairs;
4. each node that is still not proven with a proven one, under its own switch first, a different one each round;
5. nodes of which misses were contradicted, in pairs again and again: those that flap stand out (`flapping`);
6. misses among nodes that are good one by one: `crossing` closes in on the link or the switch in O(log n) rounds;
7. all who are not to blame, together: the proof that nothing was overlooked. A new miss leads back to 5;
8. links that missed in earlier tests, alone.
"""

from __future__ import annotations

from flows.decisions.node_tests.fabric.causes import Causes, causes
from flows.decisions.node_tests.fabric.crossing import Desk, across, offer_suspected_links
from flows.decisions.node_tests.fabric.judge import answer
from flows.decisions.node_tests.fabric.knowledge import Knowledge, State, bits, knowledge_of, mask_of
from flows.decisions.node_tests.fabric.model import Answer, Group, circle, shuffled

BLOCK = 16
"""Nodes of a block by chance, where no switch is known."""
TURNS = 8
"""Turns of the circle that are looked at: all of them where nodes are so few that each pair counts."""
SMALL = 3
"""So few nodes go to pairs at once."""


def next_round(state: State) -> tuple[Group, ...] | Answer:
    """Disjoint groups to measure side by side, or what is to be said.

    Groups hold at least two nodes, each node is in one at most. Measure them, in any order and as far as possible, and
    give what came back to `State.after`. Ends after at most `Fabric.rounds` rounds, whatever comes back.
    """
    known = knowledge_of(state)
    found = causes(known)
    groups = () if known.rounds >= state.fabric.rounds else _groups(known, found)
    if not groups:
        return answer(known, found)
    nodes = state.fabric.nodes
    return tuple(tuple(nodes[member].name for member in bits(group)) for group in groups)


def _groups(known: Knowledge, found: Causes) -> tuple[int, ...]:
    desk = Desk(known)
    everyone = known.everyone
    if not known.observations and known.rounds == 0:
        desk.offer(everyone)
    elif not _good(known, everyone):
        if known.rounds == 1 and known.proven != everyone and len(known.fabric.nodes) > SMALL:
            _blocks(known, desk)
        else:
            _prove(known, found, desk)
            _look_again(known, found, desk)
            if not found.flaps.waiting:
                # Before it is known who flaps, a search would find a link wherever a flapping node was.
                across(found, desk)
            if not desk.groups:
                _rest(found, desk)
    if not desk.groups:
        offer_suspected_links(found, desk)
    return tuple(desk.groups)


def _blocks(known: Knowledge, desk: Desk) -> None:
    nodes = known.fabric.nodes
    by_place: dict[tuple[str, ...], list[int]] = {}
    for node in shuffled(range(len(nodes)), known.fabric.seed):
        by_place.setdefault(nodes[node].switches, []).append(node)
    blocks = [block for place, block in by_place.items() if place and len(block) > 1]
    alone = [node for place, block in by_place.items() for node in block if not place or len(block) == 1]
    blocks += [alone[begin : begin + BLOCK] for begin in range(0, len(alone), BLOCK)]
    if len(blocks) > 1 and len(blocks[-1]) == 1:
        last = blocks.pop()
        blocks[-1] += last
    if len(blocks) == 1 and len(blocks[0]) > SMALL:
        half = len(blocks[0]) // 2
        blocks = [blocks[0][:half], blocks[0][half:]]
    for block in blocks:
        desk.offer(mask_of(sorted(block)))


def _prove(known: Knowledge, found: Causes, desk: Desk) -> None:
    """Pairs for the nodes of which nothing is known yet."""
    if not found.suspects:
        return
    suspects = shuffled(bits(found.suspects), known.fabric.seed)
    if known.rounds == 2:
        by_place: dict[tuple[str, ...], list[int]] = {}
        for node in suspects:
            by_place.setdefault(known.fabric.nodes[node].switches, []).append(node)
        for mates in by_place.values():
            desk.offer_pairs(circle(mates, 0))
    if known.proven:
        desk.seat(shuffled(bits(found.suspects), known.fabric.seed, known.rounds))
    elif known.rounds != 2:
        desk.offer_pairs(_strangers(known, shuffled(bits(known.everyone), known.fabric.seed)))


def _look_again(known: Knowledge, found: Causes, desk: Desk) -> None:
    """Seat each suspect that wants more looks with a new partner; with a proven one that is no suspect, if possible."""
    seed, turn = known.fabric.seed, known.rounds
    waiting = [node for node in shuffled(found.flaps.waiting, seed, turn) if desk.free >> node & 1]
    mask = sum(1 << node for node in waiting)
    others = shuffled(bits(known.proven & desk.free & ~mask & ~found.blamed), seed, turn)
    left: list[int] = []
    for node in waiting:
        partners = known.meetings.get(node, {})
        partner = next((other for other in others if other not in partners), None)
        if partner is None or not desk.offer(1 << node | 1 << partner):
            left.append(node)
        else:
            others.remove(partner)
    desk.offer_pairs(circle(left, turn))


def _strangers(known: Knowledge, nodes: list[int]) -> list[tuple[int, int]]:
    """A turn of the circle in which most have not met yet."""
    turns = (circle(nodes, known.rounds + turn) for turn in range(min(len(nodes), TURNS)))
    return max(turns, key=lambda pairs: sum(right not in known.meetings.get(left, {}) for left, right in pairs))


def _rest(found: Causes, desk: Desk) -> None:
    """All nodes that are not to blame; of each bad link first the one end, then the other."""
    known = found.known
    rest = known.everyone & ~found.suspects
    for node in found.nodes:
        rest &= ~(1 << node)
    for name in found.switches:
        rest &= ~known.beneath[name]
    counts: dict[int, int] = {}
    for end in (end for link in found.links for end in link):
        counts[end] = counts.get(end, 0) + 1
    dropped = kept = 0
    for link in found.links:
        if not any(dropped >> end & 1 for end in link):
            drop = max(link, key=lambda end: counts[end])
            dropped |= 1 << drop
            kept |= sum(1 << end for end in link if end != drop)
    for group in (rest & ~dropped, rest & ~(kept & ~dropped)):
        if group.bit_count() > 1 and not desk.groups and not _good(known, group):
            desk.offer(group)


def _good(known: Knowledge, group: int) -> bool:
    """It, or one that holds it, was good on every rail that lives, as often as the fabric asks for.

    Where none lives there is nothing to be proven.
    """
    good = sum(not group & ~seen.mask and not known.live & ~seen.good for seen in known.observations)
    return not known.live or good >= max(1, known.fabric.proofs)
