"""Who is slower than its peers, by time before the barrier, and when acting on it pays. Pure.

After a barrier everybody is equally slow, so only local times (compute before the first collective of a step) tell.
Sources: fault tolerance notes 6.5; four votes of five are ByteRobust's, a tenth as least is Greyhound's.

One `Peers` for each role; for each step and rank `add`, after each step `stepped`; `STEPS_PER_WINDOW` steps later
`stepped` gives who was slow in that window, and `votes` who was in four of the last five. The layout is what makes a
decision on 100,000 ranks a matter of some tens of milliseconds without numpy: two arrays of doubles (the least and the
second least time of each rank in this window, so a rank's value for the window is at hand when it closes), passes that
run inside the interpreter, the median by narrowing between quantiles of a sample instead of sorting everything, and the
spread of a sample only where somebody is slow at all.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field, replace
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

STEPS_PER_WINDOW = 3
"""A rank's second least time of three: a pause in a window says nothing. Four windows are 12 steps, 15 where every
fifth is left out for a save: who is twice as slow is named within 20, whenever it began."""
WINDOWS = 5
FEW_PEERS = 4
"""With fewer a spread says nothing."""
EPSILON = 0.01
"""Of the median: a gang is never as even as its luck in one window."""
Z_FACTOR = 0.6745
SAMPLE = 2048
"""Of so many the spread is known to 3 %, and the median to lie in a hundredth of them."""


@dataclass(frozen=True)
class Limits:
    """The profile's `recovery.straggler`."""

    ratio: float = 1.1
    """Times the peers' median."""
    robust_z: float = 3.5
    windows: int = 4
    """Bad ones of `WINDOWS`."""


@dataclass(frozen=True)
class Slow:
    """A rank in one window."""

    rank: int
    """Its place among its peers."""
    seconds: float
    ratio: float
    z: float
    """Infinite with few peers, where it is not asked for."""


class Peers:
    """Local times of the ranks of one role.

    Args:
        size: ranks.
        limits: from the profile.
    """

    def __init__(self, size: int, limits: Limits) -> None:
        self._size = size
        self._limits = limits
        self._empty = array("d", [math.inf]) * size
        self._least, self._second = self._empty[:], self._empty[:]
        self._steps = 0

    def add(self, rank: int, seconds: float) -> None:
        """A rank's local time in the present step; what is no time is left out."""
        if not (0 < seconds < math.inf and 0 <= rank < self._size):
            return
        if seconds < self._least[rank]:
            self._second[rank] = self._least[rank]
            self._least[rank] = seconds
        elif seconds < self._second[rank]:
            self._second[rank] = seconds

    def stepped(self) -> Optional[Tuple[Slow, ...]]:
        """The gang went on to the next step; who was slow, where that closed a window.

        Steps in which somebody saved or evaluated are not told of, neither here nor to `add`.
        """
        self._steps += 1
        if self._steps < STEPS_PER_WINDOW:
            return None
        found = slow(self._second, self._limits)
        self._least, self._second, self._steps = self._empty[:], self._empty[:], 0
        return found


def slow(values: Sequence[float], limits: Limits) -> Tuple[Slow, ...]:
    """Who is slow in one window.

    Args:
        values: [ranks] local seconds of each; infinite: not known, no measure for others and never slow itself.
        limits: ratio and z, both must be exceeded; with fewer than `FEW_PEERS` known peers the ratio alone, against
            the median of the others.
    """
    known = list(filter(math.inf.__gt__, values))
    if len(known) <= FEW_PEERS:
        return _slow_of_few(values, known, limits)
    middle = middle_of(known)
    bound = limits.ratio * middle
    if max(known) <= bound:
        return ()
    spread = max(middle_of([abs(value - middle) for value in _sample(known)]), EPSILON * middle)
    bound = max(bound, middle + limits.robust_z * spread / Z_FACTOR)
    return tuple(
        Slow(rank, value, value / middle, Z_FACTOR * (value - middle) / spread)
        for rank, value in enumerate(values)
        if bound < value < math.inf
    )


def _slow_of_few(values: Sequence[float], known: Sequence[float], limits: Limits) -> Tuple[Slow, ...]:
    found: List[Slow] = []
    for rank, value in enumerate(values):
        if value == math.inf or len(known) < 2:
            continue
        others = list(known)
        others.remove(value)
        middle = sorted(others)[len(others) // 2]  # of two the slower one: one fast rank makes nobody slow
        if value > limits.ratio * middle:
            found.append(Slow(rank, value, value / middle, math.inf))
    return tuple(found)


def middle_of(values: Sequence[float]) -> float:
    """Their lower median, exactly; at least one, all finite.

    A sample's quantiles on both sides of its middle bracket it, so only the few values between them are sorted.
    """
    rank = (len(values) - 1) // 2
    if len(values) <= 2 * SAMPLE:
        return sorted(values)[rank]
    sample = sorted(_sample(values))
    low, high = sample[len(sample) * 9 // 20], sample[len(sample) * 11 // 20]
    upto = list(filter(high.__ge__, values))
    between = sorted(filter(low.__le__, upto))
    below = len(upto) - len(between)
    if below <= rank < len(upto):
        return between[rank - below]
    return sorted(values)[rank]  # the order of the ranks has a pattern that the sample met


def _sample(values: Sequence[float]) -> Sequence[float]:
    """About `SAMPLE` of them, by an odd stride: hosts have even numbers of ranks."""
    return values[:: len(values) // SAMPLE | 1] if len(values) > 2 * SAMPLE else values


@dataclass(frozen=True)
class Votes:
    """In which of the last windows which ranks were slow; only those that were are kept."""

    slow: Mapping[int, Tuple[bool, ...]] = field(default_factory=lambda: {})
    """Newest last, at most `WINDOWS`."""

    def and_(self, window: Sequence[Slow]) -> Votes:
        """With one more window."""
        now = {one.rank for one in window}
        found: Dict[int, Tuple[bool, ...]] = {}
        for rank in sorted(now.union(self.slow)):
            kept = (*self.slow.get(rank, ()), rank in now)[-WINDOWS:]
            if any(kept):
                found[rank] = kept
        return Votes(found)

    def named(self, limits: Limits) -> Tuple[int, ...]:
        """Ranks that were slow often enough."""
        return tuple(rank for rank, windows in self.slow.items() if sum(windows) >= limits.windows)


@dataclass(frozen=True)
class Loss:
    """What slowness has cost so far; the next action comes when it has cost as much as that action (ski-rental)."""

    gpu_seconds: float = 0.0

    def and_(self, step_seconds: float, ideal_seconds: float, gpus: int) -> Loss:
        """With one more step; faster ones give nothing back."""
        return replace(self, gpu_seconds=self.gpu_seconds + max(0.0, step_seconds - ideal_seconds) * gpus)

    def pays(self, action_seconds: float, gpus: int) -> bool:
        """Whether an action that stops the gang for so long has become the cheaper way."""
        return self.gpu_seconds >= action_seconds * gpus > 0
