"""Which pairs of nodes meet next, and what their meetings say about each node. Pure.

In the first round everybody meets one other by chance. Whoever was good with somebody is proven. Who was not meets
proven ones, a new one each round: a node that misses with two of them is to blame, and they are not. A pair that missed
although both are good with others has a bad way between them, or had a bad moment: it blames nobody.

A gang's rounds (`plan`) look for the node, link or switch behind the misses of groups of any size; here a meeting
tells several checks of which each may be answered or not, and two nodes are all that a tool can take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from flows.decisions.fabric.order import circle, shuffled
from profiles.vocabulary import VerdictWord

Pair = tuple[str, str]
PARTNERS = 2
"""With so many proven ones a node must miss before it is blamed; one alone may be on a bad link to it."""
ROUNDS = 6
"""At most: the first, and five in which whoever is not proven meets another one. What is open then is unknown."""
STRANGERS = 3
"""So many rounds may pass without anybody proven: three nodes need them all to have met each other."""
MANY = 3
"""Where so many pairs have told nothing at all of a check, e.g. since no image has the tool, nobody asks again."""


@dataclass(frozen=True)
class Meeting:
    """Two nodes that were measured with each other."""

    pair: Pair
    said: Mapping[str, VerdictWord]
    """By check, the worse of both directions; a check that is missing was not made."""


@dataclass(frozen=True)
class View:
    """What all meetings say of one check."""

    proven: frozenset[str]
    """Good with somebody."""
    missed: Mapping[str, tuple[str, ...]]
    """Node -> with whom it missed."""
    untold: Mapping[str, tuple[str, ...]]
    """Node -> with whom nothing was known."""

    def blamed(self, node: str) -> tuple[str, ...]:
        """Proven ones with whom it missed."""
        return tuple(one for one in self.missed.get(node, ()) if one in self.proven)

    def word(self, node: str) -> VerdictWord:
        """Of a node: proven, to blame, or neither."""
        if node in self.proven:
            return VerdictWord.PASS
        return VerdictWord.FAIL if len(self.blamed(node)) >= PARTNERS else VerdictWord.UNKNOWN

    def is_settled(self, node: str) -> bool:
        """Whether another meeting would say nothing new."""
        silent = sum(one in self.proven for one in self.untold.get(node, ()))
        return self.word(node) is not VerdictWord.UNKNOWN or silent >= PARTNERS


@dataclass(frozen=True)
class Pairs:
    """All meetings, round by round. Nothing else is remembered."""

    nodes: tuple[str, ...]
    checks: tuple[str, ...]
    """Those that count: what misses in others is told, and never asked again."""
    seed: int = 0
    """Which partners meet: with the same seed and the same meetings the same ones."""
    rounds: tuple[tuple[Meeting, ...], ...] = field(default=())

    def after(self, meetings: Sequence[Meeting]) -> Pairs:
        """The state one round later."""
        return Pairs(self.nodes, self.checks, self.seed, (*self.rounds, tuple(meetings)))

    @cached_property
    def views(self) -> dict[str, View]:
        """Of each check that counts."""
        return {check: view_of(check, self.rounds) for check in self.checks}

    @cached_property
    def met(self) -> dict[str, frozenset[str]]:
        """Whom each node has met."""
        found: dict[str, set[str]] = {node: set() for node in self.nodes}
        for meeting in (one for meetings in self.rounds for one in meetings):
            left, right = meeting.pair
            found[left].add(right)
            found[right].add(left)
        return {node: frozenset(others) for node, others in found.items()}


def view_of(check: str, rounds: Sequence[Sequence[Meeting]]) -> View:
    """What the meetings say of a check."""
    proven: set[str] = set()
    missed: dict[str, tuple[str, ...]] = {}
    untold: dict[str, tuple[str, ...]] = {}
    for meeting in (one for meetings in rounds for one in meetings if check in one.said):
        word = meeting.said[check]
        if word is VerdictWord.PASS:
            proven.update(meeting.pair)
            continue
        kept = missed if word is VerdictWord.FAIL else untold
        for node, other in (meeting.pair, meeting.pair[::-1]):
            kept[node] = (*kept.get(node, ()), other)
    return View(frozenset(proven), missed, untold)


def next_pairs(state: Pairs) -> tuple[Pair, ...]:
    """Disjoint pairs that have not met yet, to be measured side by side; empty: everything is said that can be."""
    if not state.rounds:
        order = shuffled(range(len(state.nodes)), state.seed)
        return tuple((state.nodes[left], state.nodes[right]) for left, right in circle(order, 0))
    if len(state.rounds) >= ROUNDS:
        return ()
    open_of = _open(state)
    waiting = _shuffled(state, [node for node in state.nodes if node in open_of])
    waiting.sort(key=lambda node: len(state.met[node]))
    free = _shuffled(state, [node for node in state.nodes if node not in open_of])
    pairs: list[Pair] = []
    left_over: list[str] = []
    for node in waiting:
        wanted = [state.views[check].proven for check in open_of[node] if state.views[check].proven]
        partner = next((o for o in free if o not in state.met[node] and all(o in proven for proven in wanted)), None)
        if partner is None:
            left_over.append(node)
        else:
            free.remove(partner)
            pairs.append((node, partner))
    return (*pairs, *_strangers(state, left_over))


def checks_for(state: Pairs) -> tuple[str, ...]:
    """Checks that count and that the next round is about."""
    if not state.rounds:
        return state.checks
    asked = {check for checks in _open(state).values() for check in checks}
    return tuple(check for check in state.checks if check in asked)


def _open(state: Pairs) -> dict[str, tuple[str, ...]]:
    """Node -> checks of which another meeting may say something; whoever met nobody yet, too."""
    live = [check for check in state.checks if not _is_over(state, state.views[check])]
    found: dict[str, tuple[str, ...]] = {}
    for node in state.nodes:
        own = tuple(check for check in live if not state.views[check].is_settled(node))
        if own or not state.met[node]:
            found[node] = own
    return found


def _is_over(state: Pairs, view: View) -> bool:
    """Nobody was good, and nobody will be."""
    if view.proven:
        return False
    return len(state.rounds) >= STRANGERS or (not view.missed and len(state.rounds[0]) >= MANY)


def _strangers(state: Pairs, nodes: Sequence[str]) -> list[Pair]:
    """Nodes for which nobody proven is left, with each other."""
    pairs: list[Pair] = []
    taken: set[str] = set()
    for index, node in enumerate(nodes):
        if node not in taken:
            others = (one for one in nodes[index + 1 :] if one not in taken and one not in state.met[node])
            if (other := next(others, None)) is not None:
                taken |= {node, other}
                pairs.append((node, other))
    return pairs


def _shuffled(state: Pairs, nodes: Sequence[str]) -> list[str]:
    return [nodes[index] for index in shuffled(range(len(nodes)), state.seed, len(state.rounds))]
