"""The plan of a fault campaign: runs, what is broken in each, when, and how the run must end. Pure; a seed decides all.

Faults come in strikes: what is broken at one moment or while the run still recovers from it. Strikes are cards of two
decks, so that each kind is drawn before one comes again: single faults, and those that meet another, a save or a start.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.campaign.cards import ALONE, ENDINGS, TOGETHER, Ending, Fault, faults_of

STEPS = 90
SAVE_EVERY = 5
STEP_SECONDS, OUTLASTING_SECONDS = 0.05, 0.3
"""Of a step; the second where more is broken after a killed flow: training must not be over before another drives."""
FIRST_STEP, LAST_STEP, GAP = 12, 58, 15
"""The first strike has two checkpoints behind it, the last one leaves time for what follows; between two lie more steps
than a failure throws away."""
AMOUNTS = {"stop-rank": 1.0, "slow-rank": 3.0, "preempt-node": 5.0, "api-away": 2.0, "ledger-away": 1.5}
"""Seconds; of `slow-rank` the factor."""
MAX_STRIKES = 3
AT_MOST = {"oom-rank": 1, "disk-full": 1, "nan-rank": 2, "node": 3}
"""Of one run: more lack of memory or room ends it, more nodes do not stand on the cluster. `node`: nodes that go."""
NODES = 8
"""Two are trained on, three may go, and the rest is room."""
GIVES_UP_EVERY = 5
"""One run of so many ends by giving up."""


@dataclass(frozen=True)
class Strike:
    """Faults that belong together."""

    faults: tuple[Fault, ...]
    step: int = 0
    """At which the first one is due; 0: before the first step."""

    @property
    def label(self) -> str:
        """For people."""
        words = [self.faults[0].label]
        words += [f"{', then ' if one.moment == 'recovering' else ' + '}{one.label}" for one in self.faults[1:]]
        return "".join(words)


@dataclass(frozen=True)
class RunPlan:
    """One run of a campaign."""

    seed: int
    number: int
    """0: the one to which nothing happens."""
    in_place: bool = False
    """Ranks may begin again in their pods, as the profile has it; else every failure is a new attempt."""
    strikes: tuple[Strike, ...] = ()
    ending: Ending | None = None
    """How it gives up; None: it reaches its goal."""

    @property
    def faults(self) -> tuple[Fault, ...]:
        """All of them, in order."""
        return tuple(fault for strike in self.strikes for fault in strike.faults)

    @property
    def step_seconds(self) -> float:
        """How long a step takes; what is trained does not depend on it."""
        followed = any(fault.kind == "kill-flow" for strike in self.strikes[:-1] for fault in strike.faults)
        return OUTLASTING_SECONDS if followed else STEP_SECONDS

    @property
    def lines(self) -> list[str]:
        """For people."""
        how = "restarts in place" if self.in_place else "new attempts only"
        end = f"gives up: {self.ending.name}" if self.ending else "reaches its goal"
        told = [f"  step {strike.step}: {strike.label}" for strike in self.strikes]
        return [f"run {self.number} of seed {self.seed} ({how}; {end})", *told]


NODE_FAULTS = frozenset({"lose-node", "preempt-node"})
BETWEEN_SAVES = frozenset({"corrupt-all", "disk-full"})
"""A full disk is a mount over the folder, which would hide what is half written; a good save would mend the others."""


def campaign(seed: int, count: int) -> tuple[RunPlan, ...]:
    """The run to which nothing happens, and as many others as `count` faults fill.

    Raises:
        ValueError: `count` is below 1.
    """
    if count < 1:
        raise ValueError(f"count: must be at least 1, got {count}")
    dealer = _Dealer(random.Random(seed))
    plans, left = [RunPlan(seed, 0)], count
    while left:
        plans.append(dealer.run(seed, len(plans), left))
        left -= len(plans[-1].faults)
    return tuple(plans)


@dataclass
class _Dealer:
    dice: random.Random
    decks: list[Iterator[str]] = field(default_factory=list[Iterator[str]])
    waiting: list[str] = field(default_factory=list[str])
    """Cards that did not fit the runs before."""
    endings: list[Ending] = field(default_factory=list[Ending])
    drawn: int = 0

    def __post_init__(self) -> None:
        alone, together = (self._endless(cards) for cards in (ALONE, TOGETHER))
        self.decks = [alone, together]

    def run(self, seed: int, number: int, left: int) -> RunPlan:
        """The next run, of at most `left` faults."""
        ending = self._ending(left) if number % GIVES_UP_EVERY == 0 else None
        end = [self._faults(card) for card in ending.cards] if ending else []
        wanted = self.dice.randint(2, MAX_STRIKES) - len(end)
        hands: list[tuple[Fault, ...]] = []
        while wanted > len(hands) and not (ending and ending.alone):
            room = left - sum(map(len, (*hands, *end)))
            hand = self._fitting(hands, end, room)
            if hand is None:
                break
            hands.append(hand)
        in_place = self.dice.random() < 0.5 and (ending is None or ending.in_place)
        return RunPlan(seed, number, in_place, tuple(self._dated([*hands, *end])), ending)

    def _endless(self, cards: tuple[str, ...]) -> Iterator[str]:
        while True:
            yield from self.dice.sample(cards, len(cards))

    def _ending(self, left: int) -> Ending | None:
        if not self.endings:
            self.endings = self.dice.sample(ENDINGS, len(ENDINGS))
        fitting = [one for one in self.endings if sum(len(faults_of(card, (0, 1))) for card in one.cards) <= left]
        if fitting:
            self.endings.remove(fitting[0])
        return fitting[0] if fitting else None

    def _faults(self, card: str) -> tuple[Fault, ...]:
        first = self.dice.randrange(2)
        return faults_of(card, (first, 1 - first))

    def _fitting(
        self, hands: list[tuple[Fault, ...]], end: list[tuple[Fault, ...]], room: int
    ) -> tuple[Fault, ...] | None:
        """The next card that this run bears; None: it bears none of the next ones."""
        for _ in range(len(ALONE)):
            self.waiting.append(next(self.decks[self.drawn % len(self.decks)]))
            self.drawn += 1
            for card in self.waiting:
                hand = self._faults(card)
                late = bool(hands) and hand[0].moment == "starting"
                if len(hand) <= room and not late and bearable((*hands, hand), end):
                    self.waiting.remove(card)
                    return hand
        return None

    def _dated(self, hands: list[tuple[Fault, ...]]) -> Iterator[Strike]:
        step, spare = FIRST_STEP, LAST_STEP - FIRST_STEP - GAP * (MAX_STRIKES - 1)
        for hand in hands:
            if hand[0].moment == "starting":
                yield Strike(hand)
                continue
            at = step + self.dice.randrange(spare // MAX_STRIKES)
            if hand[0].moment == "saving":
                at = -(-at // SAVE_EVERY) * SAVE_EVERY
            elif any(fault.kind in BETWEEN_SAVES for fault in hand):
                at += (1 - at) % SAVE_EVERY
            yield Strike(hand, at)
            step = at + GAP


def bearable(hands: Sequence[tuple[Fault, ...]], end: Sequence[tuple[Fault, ...]]) -> bool:
    """Whether one run may suffer all this and still go on, until its ending, if it has one."""
    kinds, last = (Counter(fault.kind for hand in some for fault in hand) for some in ((*hands, *end), end))
    kinds["node"] = sum(kinds[kind] for kind in NODE_FAULTS)
    return all(kinds[kind] <= max(most, last[kind]) for kind, most in AT_MOST.items())
