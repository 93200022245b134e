"""Statistics of a gang's steps: ranks slower than their peers, slowdowns of the whole gang, and figures that jump.

Nothing is decided here: the flow reads the statistics and decides. Steps in which a rank loads, saves or evaluates do
not count, nor do the first ones of each incarnation. A coordinator that is started again gets the job's own steps and
every vote on stragglers from its journal (which holds no other rank's steps).

After a barrier all ranks are equally slow, so only local times (compute before the first collective of a step) show a
slow one. Sources: fault tolerance notes 6.5; four votes of five are ByteRobust's, a tenth as least is Greyhound's.

There is one `Peers` for each role: `add` for each step and rank, `close_step` after each step, which every
`STEPS_PER_WINDOW` steps returns the ranks that were slow; `Votes` names those that were slow in four of five windows,
by enough and for long enough: processes that share a processor lag now and then, for tens of steps.
A decision on 100,000 ranks takes some tens of milliseconds without numpy, thanks to the layout: two arrays of doubles
(the least and the second least time of each rank in this window), passes that run inside the interpreter, the median by
narrowing between quantiles of a sample instead of sorting everything, and the spread of a sample only where a rank is
slow at all.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional, Sequence, Tuple

from workflows.programs.coordinator.budgets import median
from workflows.programs.coordinator.progress import STALLS, StepRow
from workflows.programs.coordinator.state import (
    AppendMoment,
    AppendStep,
    Effect,
    Event,
    ReplaceStep,
    ReportsReceived,
    SlowVote,
    State,
    WindowClosed,
)
from workflows.programs.coordinator.status import json_number
from workflows.programs.coordinator.step_change import GangPace, attribute_change
from workflows.status import Jump, Slower, Straggler
from workflows.wire import PhaseSeen, StepSeen

STEPS_PER_WINDOW = 3
"""A window counts a rank's second least time of three, which a single pause does not change. Four windows are 12 steps,
15 where every fifth is left out for a save: a rank twice as slow is named within 20 steps."""
WINDOWS = 5
LEAST_EXCESS_SECONDS = 0.005
"""Least that a slow rank takes longer than its peers in a step: a scheduler's slice (3 to 4 ms in Linux) is chance."""
LEAST_EVIDENCE = 3.0
"""Sum over the windows of a spell: `ratio - 1`, at most 1, of one in which a rank was slow; `-GOOD_WINDOW` of another.
A rank of half the speed is named after four windows, 12 to 15 steps; one that takes a tenth longer after thirty."""
GOOD_WINDOW = 0.5
LEAST_SLOW_SECONDS = 1.0
"""Time that a rank's slow steps must have taken together: windows of a program of 100 steps a second are soon over."""
FEW_PEERS = 4
"""Up to so many peers a spread is meaningless."""
EPSILON = 0.01
"""Least spread as a share of the median: one window may look more even than the gang is."""
Z_FACTOR = 0.6745
SAMPLE = 2048
"""Size of a sample that gives the spread to 3 %, and the median to within a hundredth of the values."""

WARM_ROWS = 3
"""First steps of each incarnation, which do not count: programs compile and read files for the first time."""
JUMP_FACTOR = 5.0
"""A jump is a value above so many medians of the newest values. ByteRobust takes a fivefold loss or gradient norm for
an anomaly: healthy ones vary by some tens of percent between steps, warm-up and schedules move them within hundreds of
steps, and a sudden factor of five is bad data, a bad sum or lost weights."""
JUMP_VALUES = 32
JUMP_LEAST_VALUES = 8
"""Values that a median needs."""
KEPT_JUMPS = 64
LISTED_STRAGGLERS = 100


@dataclass(frozen=True)
class StragglerLimits:
    """The profile's `recovery.straggler`."""

    ratio: float = 1.1
    """Least time of a slow rank, divided by the peers' median."""
    robust_z: float = 3.5
    windows: int = 4
    """Windows in which it is slow, of the last `WINDOWS`."""


@dataclass(frozen=True)
class SlowRank:
    """A slow rank in one window."""

    rank: int
    """Index among its peers."""
    seconds: float
    ratio: float
    z: float
    """Infinite with few peers, where it does not count."""

    @property
    def excess_seconds(self) -> float:
        """What one step takes beyond the peers' median."""
        return self.seconds - self.seconds / self.ratio


class Peers:
    """Local times of the ranks of one role; `size` is their number."""

    def __init__(self, size: int, limits: StragglerLimits) -> None:
        self._size = size
        self._limits = limits
        self._empty = array("d", [math.inf]) * size
        self._least, self._second = self._empty[:], self._empty[:]
        self._steps = 0

    def add(self, rank: int, seconds: float) -> None:
        """Add a rank's local time in the present step, unless it is not a duration."""
        if not (0 < seconds < math.inf and 0 <= rank < self._size):
            return
        if seconds < self._least[rank]:
            self._second[rank] = self._least[rank]
            self._least[rank] = seconds
        elif seconds < self._second[rank]:
            self._second[rank] = seconds

    def close_step(self) -> Optional[Tuple[SlowRank, ...]]:
        """End a step; the slow ranks where that closes a window, else None.

        Callers leave out steps in which a rank saved or evaluated, both here and in `add`.
        """
        self._steps += 1
        if self._steps < STEPS_PER_WINDOW:
            return None
        slow = find_slow_ranks(self._second, self._limits)
        found = tuple(one for one in slow if one.excess_seconds >= LEAST_EXCESS_SECONDS)
        self._least, self._second, self._steps = self._empty[:], self._empty[:], 0
        return found


def find_slow_ranks(values: Sequence[float], limits: StragglerLimits) -> Tuple[SlowRank, ...]:
    """The slow ranks in one window.

    `values` [ranks] are local seconds; infinite: not known, which counts neither for nor against a rank. Ratio and z
    must both be exceeded; with at most `FEW_PEERS` known peers the ratio alone, against the median of the others.
    """
    known = list(filter(math.inf.__gt__, values))
    if len(known) <= FEW_PEERS:
        return _slow_of_few(values, known, limits)
    middle = lower_median(known)
    bound = limits.ratio * middle
    if max(known) <= bound:
        return ()
    spread = max(lower_median([abs(value - middle) for value in _sample(known)]), EPSILON * middle)
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
        middle = sorted(others)[len(others) // 2]  # the slower of two: one fast rank makes no other slow
        if value > limits.ratio * middle:
            found.append(SlowRank(rank, value, value / middle, math.inf))
    return tuple(found)


def lower_median(values: Sequence[float]) -> float:
    """Exact lower median of at least one finite value.

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
    return sorted(values)[rank]  # the sample was not typical: its stride fits a pattern in the order of the ranks


def _sample(values: Sequence[float]) -> Sequence[float]:
    """About `SAMPLE` of them, by an odd stride: hosts have even numbers of ranks."""
    return values[:: len(values) // SAMPLE | 1] if len(values) > 2 * SAMPLE else values


@dataclass(frozen=True)
class Spell:
    """What the windows say of a rank since it was slow first; over after `WINDOWS` good ones in a row."""

    windows: Tuple[bool, ...] = ()
    """Whether it was slow in each of the last ones, newest last, at most `WINDOWS`."""
    evidence: float = 0.0
    slow_seconds: float = 0.0
    named: bool = False
    """Set once it was slow often, by enough and for long enough, until the spell is over: a good window is no cure."""

    def with_window(self, slow: Optional[SlowRank], limits: StragglerLimits) -> Spell:
        """With one more window; `slow`: what was seen of the rank in it, None: it was not slow."""
        gained = -GOOD_WINDOW if slow is None else min(slow.ratio - 1, 1.0)
        windows = (*self.windows, slow is not None)[-WINDOWS:]
        evidence = max(0.0, self.evidence + gained)
        seconds = self.slow_seconds + (0.0 if slow is None else slow.seconds * STEPS_PER_WINDOW)
        enough = sum(windows) >= limits.windows and evidence >= LEAST_EVIDENCE and seconds >= LEAST_SLOW_SECONDS
        return Spell(windows, evidence, seconds, self.named or enough)


@dataclass(frozen=True)
class Votes:
    """Ranks that were slow in any of the last windows."""

    slow: Mapping[int, Spell] = field(default_factory=lambda: {})

    def with_window(self, window: Sequence[SlowRank], limits: StragglerLimits) -> Votes:
        """With one more window."""
        now = {one.rank: one for one in window}
        known = {rank: self.slow.get(rank, Spell()) for rank in sorted({*now, *self.slow})}
        moved = {rank: spell.with_window(now.get(rank), limits) for rank, spell in known.items()}
        return Votes({rank: spell for rank, spell in moved.items() if any(spell.windows)})

    def stragglers(self) -> Tuple[int, ...]:
        """Ranks that are slow."""
        return tuple(rank for rank, spell in self.slow.items() if spell.named)


@dataclass(frozen=True)
class Loss:
    """Cost of slowness so far; an action is due when this has cost as much as the action would (ski-rental)."""

    gpu_seconds: float = 0.0

    def with_step(self, step_seconds: float, ideal_seconds: float, gpus: int) -> Loss:
        """With one more step; a step faster than ideal gives nothing back."""
        return replace(self, gpu_seconds=self.gpu_seconds + max(0.0, step_seconds - ideal_seconds) * gpus)

    def justifies(self, action_seconds: float, gpus: int) -> bool:
        """Whether an action that stops the gang for `action_seconds` has become cheaper than waiting."""
        return self.gpu_seconds >= action_seconds * gpus > 0


class JumpDetector:
    """Finds jumps and non-finite values of one figure."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._recent: Deque[float] = deque(maxlen=JUMP_VALUES)
        self._high = False
        self._not_finite = False
        self._step: Optional[int] = None

    def check(self, step: int, value: float) -> Optional[Jump]:
        """The anomaly in a step's value; None: none, or one that was found in the step before already."""
        if step == self._step:
            return None
        self._step = step
        if not math.isfinite(value):
            new, self._not_finite = not self._not_finite, True
            before = median(sorted(self._recent)) if self._recent else None
            return self._anomaly(step, value, before) if new else None
        self._not_finite = False
        before = median(sorted(self._recent)) if len(self._recent) >= JUMP_LEAST_VALUES else 0.0
        was, self._high = self._high, value > JUMP_FACTOR * before > 0
        self._recent.append(value)
        return self._anomaly(step, value, before) if self._high and not was else None

    def _anomaly(self, step: int, value: float, before: Optional[float]) -> Jump:
        return Jump(step, self._what, json_number(value), before)


class GangStatistics:
    """Statistics of one gang: `ranks` ranks from `first_rank` on; `gang` is its index among the attempt's gangs."""

    def __init__(self, ranks: int, limits: StragglerLimits, first_rank: int = 0, gang: int = 0) -> None:
        self._ranks, self._limits, self._first_rank, self._gang = ranks, limits, first_rank, gang
        self._peers = Peers(ranks, limits)
        self._votes = Votes()
        self._window: Tuple[SlowRank, ...] = ()
        self._since: Dict[int, int] = {}
        """First step of the first window in which each rank was slow."""
        self._losses: Dict[int, Loss] = {}
        self._ratios: Dict[int, float] = {}
        self._window_step: Optional[int] = None
        self._has_pause = False
        self._vote: Optional[WindowClosed] = None
        """Vote of the window that has just closed; None: no rank was slow, neither in it nor in the last ones."""
        self.replaying = False
        """Events come from the journal, which holds the votes but not the steps that led to them."""
        self._has_own_times = False
        """Whether a rank reported local times in this window; most programs never do."""
        self._rows = 0
        self._incarnation = 1
        self._last: Optional[StepRow] = None
        self._pace = GangPace()
        self._figures = {"loss": JumpDetector("loss"), "gradient_norm": JumpDetector("gradient_norm")}
        self._anomalies: Deque[Jump] = deque(maxlen=KEPT_JUMPS)

    def update(self, state: State, event: Event, effects: Sequence[Effect]) -> None:
        """Follow an accepted event, with the gang's state after it and its effects."""
        if state.incarnation != self._incarnation:
            self._incarnation, self._rows, self._last, self._has_pause = state.incarnation, 0, None, False
        if isinstance(event, WindowClosed):
            self._close_window(event.step, tuple(SlowRank(*one, math.inf) for one in event.slow))
        if not isinstance(event, ReportsReceived) or event.key[0] != state.deciding_role:
            return
        self._has_pause = self._has_pause or any(isinstance(effect, AppendMoment) for effect in effects)
        for report in event.reports:
            self._take_report(state, report)
        self._take_rows(state, effects, event.at)

    def take_vote(self) -> Optional[WindowClosed]:
        """Remove and return the vote of the window that has just closed, for the journal; None: none."""
        vote, self._vote = self._vote, None
        return vote

    def stragglers(self, place: Callable[[int], str]) -> List[Straggler]:
        """Slow ranks, the costliest first; `place` gives the node of a rank."""
        named = sorted(self._votes.stragglers(), key=lambda rank: -self._cost(rank))[:LISTED_STRAGGLERS]
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

    def slowdown(self) -> Optional[Slower]:
        """The last slowdown of the whole gang; None: none, one that is over, or one that a slow rank explains.

        A single rank is no gang: nobody is there to be compared with, and its steps may just have more to do.
        """
        change = self._pace.slower if self._ranks > 1 else None
        slow = {one.rank: one.ratio for one in self._window}
        slow |= {rank: self._ratios.get(rank, 1.0) for rank in self._votes.slow}
        if change is None or attribute_change(change, slow.values()) != "job":
            return None
        ratio = round(change.after_seconds / change.before_seconds, 3)
        return Slower(change.step, ratio, change.before_seconds, change.after_seconds)

    def anomalies(self) -> List[Jump]:
        """The newest jumps and non-finite figures, oldest first."""
        return list(self._anomalies)

    def _cost(self, rank: int) -> float:
        return self._losses.get(rank, Loss()).gpu_seconds

    def _take_rows(self, state: State, effects: Sequence[Effect], at: float) -> None:
        for effect in effects:
            if isinstance(effect, AppendStep):
                self._take_row(state, effect.row, at)
            elif isinstance(effect, ReplaceStep) and effect.row[3] is not None:
                self._figure("loss", effect.row[0], effect.row[3])

    def _take_report(self, state: State, report: Any) -> None:
        if isinstance(report, PhaseSeen) and report.incarnation == state.incarnation and report.phase in STALLS:
            self._has_pause = True
        if not isinstance(report, StepSeen) or report.incarnation != state.incarnation:
            return
        if report.compute_seconds is not None and not self._has_pause and self._rows >= WARM_ROWS:
            self._peers.add(report.rank - self._first_rank, report.compute_seconds)
            self._has_own_times = True
        if report.gradient_norm is not None and report.rank == state.progress.reporting_rank:
            self._figure("gradient_norm", report.step, report.gradient_norm)

    def _take_row(self, state: State, row: StepRow, at: float) -> None:
        last, self._last = self._last, row
        self._rows += 1
        if row[3] is not None:
            self._figure("loss", row[0], row[3])
        masked, self._has_pause = self._has_pause, state.progress.stall is not None
        if masked or self._rows <= WARM_ROWS:
            return
        self._close_step(row[0], at)
        if row[2] is not None:
            self._pace = self._pace.with_steps(row[0], 1, row[2], told=True)
        elif last is not None and row[0] > last[0]:
            self._pace = self._pace.with_steps(row[0], row[0] - last[0], row[1] - last[1])

    def _close_step(self, step: int, at: float) -> None:
        if not self._has_own_times or self.replaying:
            return
        began = step if self._window_step is None else self._window_step
        window = self._peers.close_step()
        self._window_step = began if window is None else None
        if window is None:
            return
        self._has_own_times = False
        known = self._votes
        self._close_window(began, window)
        if known.slow or window:
            slow = tuple(SlowVote(one.rank, one.seconds, one.ratio) for one in window)
            self._vote = WindowClosed(at, self._incarnation, began, slow, self._gang)

    def _close_window(self, began: int, window: Tuple[SlowRank, ...]) -> None:
        self._window = window
        self._votes = self._votes.with_window(window, self._limits)
        self._since = {rank: self._since.get(rank, began) for rank in self._votes.slow}
        for one in window:
            self._ratios[one.rank] = one.ratio
            loss, ideal = self._losses.get(one.rank, Loss()), one.seconds / one.ratio
            self._losses[one.rank] = loss.with_step(one.seconds * STEPS_PER_WINDOW, ideal * STEPS_PER_WINDOW, 1)
        # A spell that is over is paid for: it is no reason to leave a node in the next one.
        self._losses = {rank: loss for rank, loss in self._losses.items() if rank in self._votes.slow}

    def _figure(self, what: str, step: int, value: float) -> None:
        anomaly = self._figures[what].check(step, value)
        if anomaly is None:
            return
        # A replayed journal finds the same anomalies again.
        known = {(one.step, one.what, one.incarnation) for one in self._anomalies}
        if (step, what, self._incarnation) not in known:
            self._anomalies.append(replace(anomaly, incarnation=self._incarnation))
