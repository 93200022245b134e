"""Who is slower than its peers, by time before the barrier, and when acting on it pays. Pure.

After a barrier everybody is equally slow, so only local times (compute before the first collective of a step) tell.
Sources: fault tolerance notes 6.5; four votes of five are ByteRobust's, a tenth as least is Greyhound's.

One `Peers` for each role; for each step and rank `add`, after each step `stepped`; `STEPS_PER_WINDOW` steps later
`stepped` gives who was slow in that window, and `votes` who was in four of the last five. The layout is what makes a
decision on 100,000 ranks a matter of some tens of milliseconds without numpy: two arrays of doubles (the least and the
second least time of each rank in this window, so a rank's value for the window is at hand when it closes), passes that
run inside the interpreter, the median by narrowing between quantiles of a sample instead of sorting everything, and the
spread of a sample only where somebody is slow at all.

What the numbers of a gang's steps say: who is slower than its peers, whether all became slower, what has jumped.

Nothing follows from it here: the flow reads it and decides. It is found from what ranks report; a coordinator that is
started again has the job's own steps and every vote on stragglers from its journal (which holds no other rank's steps).

Steps in which somebody loads, saves or evaluates say nothing, and neither do the first ones of each incarnation.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional, Sequence, Tuple

from workflows.programs.coordinator.hang_watch import median
from workflows.programs.coordinator.progress import STALLS, StepRow
from workflows.programs.coordinator.state import (
    AppendMoment,
    AppendStep,
    Effect,
    Event,
    ReplaceStep,
    Reported,
    State,
    Voted,
)
from workflows.programs.coordinator.state import Slow as SlowTold
from workflows.programs.coordinator.status import finite
from workflows.programs.coordinator.step_change import Change, Cusum, whose
from workflows.status import Jump, Slower, Straggler
from workflows.wire import PhaseSeen, StepSeen

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
class StragglerLimits:
    """The profile's `recovery.straggler`."""

    ratio: float = 1.1
    """Times the peers' median."""
    robust_z: float = 3.5
    windows: int = 4
    """Bad ones of `WINDOWS`."""


@dataclass(frozen=True)
class SlowRank:
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

    def __init__(self, size: int, limits: StragglerLimits) -> None:
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

    def stepped(self) -> Optional[Tuple[SlowRank, ...]]:
        """The gang went on to the next step; who was slow, where that closed a window.

        Steps in which somebody saved or evaluated are not told of, neither here nor to `add`.
        """
        self._steps += 1
        if self._steps < STEPS_PER_WINDOW:
            return None
        found = slow(self._second, self._limits)
        self._least, self._second, self._steps = self._empty[:], self._empty[:], 0
        return found


def slow(values: Sequence[float], limits: StragglerLimits) -> Tuple[SlowRank, ...]:
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
        SlowRank(rank, value, value / middle, Z_FACTOR * (value - middle) / spread)
        for rank, value in enumerate(values)
        if bound < value < math.inf
    )


def _slow_of_few(values: Sequence[float], known: Sequence[float], limits: StragglerLimits) -> Tuple[SlowRank, ...]:
    found: List[SlowRank] = []
    for rank, value in enumerate(values):
        if value == math.inf or len(known) < 2:
            continue
        others = list(known)
        others.remove(value)
        middle = sorted(others)[len(others) // 2]  # of two the slower one: one fast rank makes nobody slow
        if value > limits.ratio * middle:
            found.append(SlowRank(rank, value, value / middle, math.inf))
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

    def and_(self, window: Sequence[SlowRank]) -> Votes:
        """With one more window."""
        now = {one.rank for one in window}
        found: Dict[int, Tuple[bool, ...]] = {}
        for rank in sorted(now.union(self.slow)):
            kept = (*self.slow.get(rank, ()), rank in now)[-WINDOWS:]
            if any(kept):
                found[rank] = kept
        return Votes(found)

    def named(self, limits: StragglerLimits) -> Tuple[int, ...]:
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


WARM_ROWS = 3
"""Of each incarnation: programs compile, files are read for the first time."""
JUMP_FACTOR = 5.0
"""Times the median of the newest values. ByteRobust takes a fivefold loss or gradient norm for an anomaly: healthy ones
vary by some tens of percent between steps, warm-up and schedules move them within hundreds of steps, and what is five
times as high at once is bad data, a bad sum or weights that are lost."""
JUMP_VALUES = 32
JUMP_LEAST_VALUES = 8
"""With fewer a median says nothing."""
KEPT_JUMPS = 64
TOLD_STRAGGLERS = 100


class Jumps:
    """One figure that should not jump."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._recent: Deque[float] = deque(maxlen=JUMP_VALUES)
        self._high = False
        self._not_finite = False
        self._step: Optional[int] = None

    def take(self, step: int, value: float) -> Optional[Jump]:
        """What is to be said about a step's value; None: nothing. What stays high is said once."""
        if step == self._step:
            return None
        self._step = step
        if not math.isfinite(value):
            new, self._not_finite = not self._not_finite, True
            before = median(sorted(self._recent)) if self._recent else None
            return self._said(step, value, before) if new else None
        self._not_finite = False
        before = median(sorted(self._recent)) if len(self._recent) >= JUMP_LEAST_VALUES else 0.0
        was, self._high = self._high, value > JUMP_FACTOR * before > 0
        self._recent.append(value)
        return self._said(step, value, before) if self._high and not was else None

    def _said(self, step: int, value: float, before: Optional[float]) -> Jump:
        return Jump(step, self._what, finite(value), before)


class Numbers:
    """The numbers of one gang.

    Args:
        ranks: of the gang.
        limits: what counts as slow.
        first_rank: of the gang, in the attempt.
        gang: its place among the attempt's.
    """

    def __init__(self, ranks: int, limits: StragglerLimits, first_rank: int = 0, gang: int = 0) -> None:
        self._limits, self._first_rank, self._gang = limits, first_rank, gang
        self._peers = Peers(ranks, limits)
        self._votes = Votes()
        self._window: Tuple[SlowRank, ...] = ()
        self._since: Dict[int, int] = {}
        """First step of the window in which a rank was slow first."""
        self._losses: Dict[int, Loss] = {}
        self._ratios: Dict[int, float] = {}
        self._window_step: Optional[int] = None
        self._masked = False
        self._vote: Optional[Voted] = None
        """Of the window that has just closed; None: nobody was slow, neither in it nor in the last ones."""
        self.remembering = False
        """What is heard is heard for the second time: votes are among it, and the steps that led to them are not."""
        self._measured = False
        """In this window somebody told his own time: most programs never do."""
        self._rows = 0
        self._incarnation = 1
        self._last: Optional[StepRow] = None
        self._cusum = Cusum()
        self._change: Optional[Change] = None
        self._figures = {"loss": Jumps("loss"), "gradient_norm": Jumps("gradient_norm")}
        self._numeric: Deque[Jump] = deque(maxlen=KEPT_JUMPS)

    def heard(self, state: State, event: Event, effects: Sequence[Effect]) -> None:
        """An event changed what the coordinator knows.

        Args:
            state: after it.
            event: one that was not refused.
            effects: of it.
        """
        if state.incarnation != self._incarnation:
            self._incarnation, self._rows, self._last, self._masked = state.incarnation, 0, None, False
        if isinstance(event, Voted):
            self._closed(event.step, tuple(SlowRank(*one, math.inf) for one in event.slow))
        if not isinstance(event, Reported) or event.key[0] != state.deciding_role:
            return
        self._masked = self._masked or any(isinstance(effect, AppendMoment) for effect in effects)
        for report in event.reports:
            self._one(state, report)
        self._rows_of(state, effects, event.at)

    def take_vote(self) -> Optional[Voted]:
        """What is to be remembered of the window that has just closed; None: nothing."""
        vote, self._vote = self._vote, None
        return vote

    def stragglers(self, place: Callable[[int], str]) -> List[Straggler]:
        """Ranks that are slow, the costliest first.

        Args:
            place: node of a rank.
        """
        named = sorted(self._votes.named(self._limits), key=lambda rank: -self._cost(rank))[:TOLD_STRAGGLERS]
        return [
            Straggler(
                rank=self._first_rank + rank,
                node=place(self._first_rank + rank),
                ratio=round(self._ratios.get(rank, 0.0), 3),
                since_step=self._since.get(rank),
                cost_seconds=round(self._cost(rank), 3),
            )
            for rank in named
        ]

    def slower(self) -> Optional[Slower]:
        """The last time that all became slower together; None: they did not, or wait for a rank that did."""
        change = self._change
        slow = {one.rank: one.ratio for one in self._window}
        slow |= {rank: self._ratios.get(rank, 1.0) for rank in self._votes.slow}
        if change is None or whose(change, slow.values()) != "job":
            return None
        ratio = round(change.after_seconds / change.before_seconds, 3)
        return Slower(change.step, ratio, change.before_seconds, change.after_seconds)

    def numeric(self) -> List[Jump]:
        """The newest figures that jumped or are none, oldest first."""
        return list(self._numeric)

    def _cost(self, rank: int) -> float:
        return self._losses.get(rank, Loss()).gpu_seconds

    def _rows_of(self, state: State, effects: Sequence[Effect], at: float) -> None:
        for effect in effects:
            if isinstance(effect, AppendStep):
                self._row(state, effect.row, at)
            elif isinstance(effect, ReplaceStep) and effect.row[3] is not None:
                self._figure("loss", effect.row[0], effect.row[3])

    def _one(self, state: State, report: Any) -> None:
        if isinstance(report, PhaseSeen) and report.incarnation == state.incarnation and report.phase in STALLS:
            self._masked = True
        if not isinstance(report, StepSeen) or report.incarnation != state.incarnation:
            return
        if report.compute_seconds is not None and not self._masked and self._rows >= WARM_ROWS:
            self._peers.add(report.rank - self._first_rank, report.compute_seconds)
            self._measured = True
        if report.gradient_norm is not None and report.rank == state.progress.reporting_rank:
            self._figure("gradient_norm", report.step, report.gradient_norm)

    def _row(self, state: State, row: StepRow, at: float) -> None:
        last, self._last = self._last, row
        self._rows += 1
        if row[3] is not None:
            self._figure("loss", row[0], row[3])
        masked, self._masked = self._masked, state.progress.stall is not None
        if masked or self._rows <= WARM_ROWS:
            return
        self._stepped(row[0], at)
        seconds = row[2]
        if seconds is None and last is not None and row[0] > last[0]:
            seconds = (row[1] - last[1]) / (row[0] - last[0])
        if seconds is not None:
            self._cusum = self._cusum.and_(row[0], seconds)
            self._change = self._cusum.change or self._change

    def _stepped(self, step: int, at: float) -> None:
        if not self._measured or self.remembering:
            return
        began = step if self._window_step is None else self._window_step
        window = self._peers.stepped()
        self._window_step = began if window is None else None
        if window is None:
            return
        self._measured = False
        known = self._votes
        self._closed(began, window)
        if known.slow or window:
            slow = tuple(SlowTold(one.rank, one.seconds, one.ratio) for one in window)
            self._vote = Voted(at, self._incarnation, began, slow, self._gang)

    def _closed(self, began: int, window: Tuple[SlowRank, ...]) -> None:
        self._window = window
        self._votes = self._votes.and_(window)
        self._since = {rank: self._since.get(rank, began) for rank in self._votes.slow}
        for one in window:
            self._ratios[one.rank] = one.ratio
            loss, ideal = self._losses.get(one.rank, Loss()), one.seconds / one.ratio
            self._losses[one.rank] = loss.and_(one.seconds * STEPS_PER_WINDOW, ideal * STEPS_PER_WINDOW, 1)

    def _figure(self, what: str, step: int, value: float) -> None:
        said = self._figures[what].take(step, value)
        if said is None:
            return
        # What was heard before is heard once more from a journal.
        known = {(one.step, one.what, one.incarnation) for one in self._numeric}
        if (step, what, self._incarnation) not in known:
            self._numeric.append(replace(said, incarnation=self._incarnation))
