"""Nodes that are bad in only some of their looks: which are suspected, looked at again, and to blame. Pure.

What is always bad never contradicts itself. A group that misses though it was good, alone or within a larger one, was
disturbed by chance, or holds something that flaps. A node that was in two such groups is looked at in pairs, with
partners that change, until chance can be told from fault: in pairs a flapping node stands out by its own share of
misses.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flows.decisions.node_tests.fabric.knowledge import Knowledge, Observation, bits

Look = tuple[int, int]
"""A partner, and the rails on which the two missed."""
TWICE = 2
"""Rounds in which a node must have been in a contradicted miss: one is somebody else's traffic."""
LOOKS = 16
"""Looks at each suspect, in pairs. A node that is bad in 30 % of them shows four times or more in 75 of 100 cases, one
that is bad in half of them in 99."""
CLEAN = 8
"""After so many looks without a miss a suspect is none any more: one that is bad in half of them gets through in 1 of
256 cases."""
SAME = 2
"""Looks with one partner that count: more would take a bad link for a bad node, and searches look at what missed."""
LINK_BLAMED = 2e-3
"""Probability that chance misses so often, below which a link that missed in earlier tests is bad: 5 of 16 looks."""
CHANCE = 0.01
"""Share of looks that miss by chance, at least."""
MARGIN = 1.5
"""The share of misses that is seen in the better three quarters of nodes lies below that of all of them."""
FEW_CHANCE = 0.06
"""What is taken for it where too few nodes were looked at: a fabric with heavy traffic beside."""
FEW = 4
STRANGE = 0.02
"""Probability that chance alone contradicts so many of a node's rounds, below which it is a suspect."""
BLAMED = 1e-5
"""Probability that a good node misses so often by chance, below which it is to blame."""
DOUBTED = 1e-3
"""The same, below which nobody calls it proven."""


@dataclass(frozen=True)
class Flaps:
    """What looks in pairs say of the suspects."""

    blamed: Mapping[int, int]
    """Node -> rails on which it misses too often for chance."""
    doubted: Mapping[int, tuple[int, int]]
    """Node -> misses and looks of those that miss often, but not often enough."""
    waiting: tuple[int, ...] = ()
    """Suspects that want more looks."""


NONE = Flaps({}, {})


def flaps(known: Knowledge, blamed: int) -> Flaps:
    """The nodes that flap, besides those to blame anyway, whose misses count for no other node."""
    suspects = _suspects(known, blamed)
    if not suspects:
        return NONE
    reach = _Reach(known)
    looks = {node: _looks(reach, node, blamed) for node in known.meetings if not blamed >> node & 1}
    found: dict[int, int] = {}
    while (worst := _worst(looks, suspects)) is not None:
        found[worst] = _rails([bad for _, bad in looks.pop(worst)])
        looks = {node: [one for one in own if one[0] != worst] for node, own in looks.items()}
    chance = _chance(looks)
    doubted: dict[int, tuple[int, int]] = {}
    waiting: list[int] = []
    for node in bits(suspects):
        misses, count = _counted(looks.get(node, ()))
        if node not in found:
            if chance_of(count, misses, chance) < DOUBTED:
                doubted[node] = (misses, count)
            if count < (LOOKS if misses else CLEAN):
                waiting.append(node)
    return Flaps(found, doubted, tuple(waiting))


def link_flaps(meetings: Sequence[Observation], rail: int) -> bool:
    """A link that missed in earlier tests does so again, more often than by chance."""
    judged_meetings = [seen for seen in meetings if (seen.good | seen.bad) >> rail & 1]
    return (
        chance_of(len(judged_meetings), sum(seen.bad >> rail & 1 for seen in judged_meetings), FEW_CHANCE) < LINK_BLAMED
    )


def wants_looks(known: Knowledge, ends: tuple[int, int]) -> bool:
    """A link that missed in earlier tests was not looked at often enough."""
    meetings = known.meetings.get(ends[0], {}).get(ends[1], [])
    missed = any(seen.bad & known.live for seen in meetings)
    return len(meetings) < (LOOKS if missed else CLEAN)


def _suspects(known: Knowledge, blamed: int) -> int:
    """Nodes that were in contradicted misses of two rounds."""
    misses = [seen for seen in known.observations if seen.bad & known.live and not seen.mask & blamed]
    if len(misses) < TWICE:
        return 0
    alone: dict[int, int] = {}
    large: list[Observation] = []
    for seen in known.observations:
        if seen.good:
            alone[seen.mask] = alone.get(seen.mask, 0) | seen.good
            if len(seen.members) > TWICE:
                large.append(seen)
    rounds: dict[int, int] = {}
    for seen in misses:
        bad = seen.bad & known.live
        if alone.get(seen.mask, 0) & bad or any(
            other.good & bad and not seen.mask & ~other.mask
            for other in large
            if len(other.members) > len(seen.members)
        ):
            rounds[seen.at] = rounds.get(seen.at, 0) | seen.mask
    often: Counter[int] = Counter()
    for mask in rounds.values() if len(rounds) >= TWICE else ():
        often.update(bits(mask))
    least = next(n for n in range(TWICE, known.rounds + 2) if chance_of(known.rounds, n, FEW_CHANCE) < STRANGE)
    return sum(1 << node for node, times in often.items() if times >= least)


class _Reach:
    """Which nodes reach nodes of other switches, on each rail; cached, since it is asked often."""

    def __init__(self, known: Knowledge) -> None:
        self.known = known
        self._outside: dict[tuple[int, int], bool] = {}

    def fair(self, node: int, other: int, rail: int) -> bool:
        """Whether a miss of the two says something about them, and not about the uplinks of their switches."""
        if not self.known.outside(node, rail) >> other & 1:
            return True
        return self._reaches(node, rail) and self._reaches(other, rail)

    def _reaches(self, node: int, rail: int) -> bool:
        if (node, rail) not in self._outside:
            self._outside[node, rail] = self.known.reaches_outside(node, rail)
        return self._outside[node, rail]


def _looks(reach: _Reach, node: int, blamed: int) -> list[Look]:
    """The first looks at it with each partner that is not to blame."""
    known, found = reach.known, list[Look]()
    for other, meetings in known.meetings[node].items():
        for seen in meetings[:SAME] if not blamed >> other & 1 else ():
            bad = sum(1 << rail for rail in bits(seen.bad & known.live) if reach.fair(node, other, rail))
            if bad or not seen.bad & known.live:
                found.append((other, bad))
    return found


def _counted(looks: Sequence[Look]) -> tuple[int, int]:
    """Misses, and looks."""
    return sum(bad != 0 for _, bad in looks), len(looks)


def _chance(looks: Mapping[int, Sequence[Look]]) -> float:
    """Share of a good node's looks that miss without its fault."""
    often = [_counted(own) for own in looks.values() if len(own) >= CLEAN]
    if len(often) < FEW:
        return FEW_CHANCE
    often.sort(key=lambda one: one[0] / one[1])
    better = often[: math.ceil(0.75 * len(often))]
    return min(0.9, CHANCE + MARGIN * sum(one[0] for one in better) / sum(one[1] for one in better))


def _worst(looks: Mapping[int, Sequence[Look]], suspects: int) -> int | None:
    """The suspect that least looks like chance, where it surely is none."""
    chance = _chance(looks)
    tails: dict[int, float] = {}
    for node, own in looks.items():
        if suspects >> node & 1:
            misses, count = _counted(own)
            tails[node] = chance_of(count, misses, chance)
    worst = min(tails, key=lambda node: tails[node], default=None)
    return worst if worst is not None and tails[worst] < BLAMED else None


def _rails(bad: Sequence[int]) -> int:
    """Rails on which half or more of the misses were."""
    misses, every = sum(one != 0 for one in bad), 0
    for one in bad:
        every |= one
    return sum(1 << rail for rail in bits(every) if 2 * sum(one >> rail & 1 for one in bad) >= misses)


def chance_of(count: int, misses: int, chance: float) -> float:
    """Probability of so many misses or more among so many looks by chance."""
    return sum(
        math.comb(count, number) * chance**number * (1 - chance) ** (count - number)
        for number in range(misses, count + 1)
    )
