"""What chance explains of a run's stops: how many the infrastructure causes, how soon, how long a save may take. Pure.

Stops grow with nodes and time, so a limit that is one number ends large runs that are well: 2,048 nodes stop 466 times
in 54 days (Llama 3), 12,500 every 18 minutes. What is counted is compared with what a gang of its size lets expect.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, takewhile
from statistics import median
from typing import NamedTuple

from flows.decisions.recovery.odds import RESTART_SECONDS
from profiles.recovery import HangLimits, RecoveryProfile
from workflows.model.fleet import PRIOR_RATE, expected_at_most
from workflows.model.records import AttemptRecord
from workflows.programs.progress.pace import beats

DAY = 86400.0
IMPROBABLE = 1e-3
"""Chance explains a repetition at one place no more when it brings it less often than this."""
MOST_IMPROBABLE = 1e-6
"""The same of a row of attempts that get nowhere: a long run has thousands of occasions for one."""
SAME_STEP_ATTEMPTS = 3
"""Equal failures at one step, on a gang of any size, are the program's."""
STEPLESS_ATTEMPTS = 6
"""The same of attempts that make no step at all, which chance brings more often: starts of large gangs take minutes."""
PATIENCE = 20.0
"""Times the expected time to a durable step: where only chance delays it, one in 10^8 takes so long, and a month of a
very large gang has thousands of them."""
RECENT = 50
"""Newest attempts, and durable steps, by which the pace is known: older ones were of another time."""
_LARGEST_EXPONENT = 50.0


@dataclass(frozen=True)
class Chance:
    """How often a gang of this size stops without anybody's fault."""

    nodes: int = 1
    stops: int = 0
    """That the infrastructure caused since the run began, or a person resumed it."""
    node_days: float = 0.0
    """For which its gangs held their nodes meanwhile."""
    window_node_days: float = 0.0
    """The part of them within the window of the restart budget."""

    @property
    def rate(self) -> float:
        """Stops per node and day: the run's own, begun with what is known of others, and never less than that.

        Only stops that the infrastructure caused count: a broken program must not earn itself a larger budget.
        """
        return max(PRIOR_RATE, (1 + self.stops) / (1 / PRIOR_RATE + self.node_days))

    @property
    def mttf_seconds(self) -> float:
        """Mean time between two stops of the whole gang."""
        return DAY / (max(1, self.nodes) * self.rate)

    def allows(self, node_days: float) -> int:
        """Stops that are no wonder in so many node-days: the 0.999 quantile of a negative binomial.

        It has the mean of that rate, and is the wider the fewer stops the rate is known by.
        """
        return expected_at_most(self.rate * node_days, 1.0 + self.stops)

    def within(self, seconds: float) -> float:
        """Probability, 0 to 1, that the gang is stopped within so many seconds."""
        return -math.expm1(-seconds / self.mttf_seconds)


def row_needed(each: float, least: int, improbable: float = MOST_IMPROBABLE) -> int:
    """How many in a row, at least `least`, chance no more explains; `each`: the probability of one of them."""
    if each <= 0.0:
        return least
    return max(least, math.ceil(math.log(improbable) / math.log(min(each, 0.99)) - 1e-9))


@dataclass(frozen=True)
class Pace:
    """How fast a run saves, and since when it has not. Seconds; None: not known."""

    newest: int | None = None
    """The newest durable step; where the program never saved one, the highest step."""
    still_seconds: float = 0.0
    """For which the run's gangs have run, all together, since it moved."""
    between_seconds: float | None = None
    """Of training between two durable steps."""
    step_seconds: float | None = None
    """Between two steps that the program reports."""

    def expected_seconds(self, chance: Chance, restart_seconds: float | None) -> float | None:
        """How long the next durable step is expected to take: M e^(R/M) (e^(t/M) - 1), and the restart before it.

        M: mean time between stops, R: a restart, t: training between two (Daly; fault tolerance notes, 6.3).
        """
        if self.between_seconds is None:
            return None
        mttf = chance.mttf_seconds
        restart = RESTART_SECONDS if restart_seconds is None else restart_seconds
        again = math.exp(min(_LARGEST_EXPONENT, restart / mttf))
        return restart + mttf * again * math.expm1(min(_LARGEST_EXPONENT, self.between_seconds / mttf))

    def limit_seconds(self, chance: Chance, restart_seconds: float | None, recovery: RecoveryProfile) -> float | None:
        """How long no durable step may be made; None: not known.

        Never less than what the profile grants so many attempts before each counts as hung.
        """
        expected = self.expected_seconds(chance, restart_seconds)
        if expected is None:
            return None
        granted = recovery.hang.init_seconds + recovery.hang.checkpoint_seconds
        return max(PATIENCE * expected, recovery.no_progress_attempts * granted)


class Moved(NamedTuple):
    """A step that was known to be durable from a moment on."""

    step: int
    at: float
    """Unix seconds."""
    attempt: int
    saved: bool = True
    """The attempt wrote it; False: it was given it to resume from."""


def pace_of(
    attempts: Sequence[AttemptRecord], durable: Sequence[Moved], told: int, hang: HangLimits, since: float, now: float
) -> Pace:
    """The pace of a run.

    `durable`: as they were found, of the present lineage; `told`: steps between saves as the program is told them, 0:
    not known; `since`: when the run began, a person resumed it, or it was rolled back (Unix seconds).
    """
    first: dict[int, Moved] = {}
    highest = -1
    for moved in sorted(durable, key=lambda item: item.at):
        if moved.saved or moved.step > highest:  # what an attempt fell back to is no news
            first.setdefault(moved.step, moved)
            highest = max(highest, moved.step)
    spans = [span for item in attempts[-RECENT:] if (span := _trained(item)) is not None]
    each = median([seconds / steps for seconds, steps in spans]) if spans else None
    if first:
        newest = max(first.values(), key=lambda item: item.at)
        between = [*_gaps(first), *([told * each] if told and each is not None else [])]
        pace = Pace(highest, 0.0, max(between, default=hang.init_seconds), each)
        begin = max(since, newest.at)
    else:
        best = max((item for item in attempts if item.last_step is not None), key=lambda item: item.last_step or 0,
                   default=None)  # fmt: skip
        longest = max((seconds for seconds, _ in spans), default=hang.init_seconds)
        pace = Pace(None if best is None else best.last_step, 0.0, max(longest, told * (each or 0.0)), each)
        begin = max(since, since if best is None else best.last_step_at or since)
    return replace(pace, still_seconds=ran_seconds(attempts, begin, now))


def ran_seconds(attempts: Sequence[AttemptRecord], begin: float, now: float) -> float:
    """For how long the run's gangs ran since `begin`: to wait for room or for people is no lack of progress."""
    return sum(
        max(0.0, _end(item, now) - max(begin, item.running_at))
        for item in _since(attempts, begin, now)
        if item.running_at is not None
    )


def held_node_days(attempts: Sequence[AttemptRecord], nodes: int, begin: float, now: float) -> float:
    """Node-days for which the run's gangs held their nodes since `begin`."""
    held = 0.0
    for item in _since(attempts, begin, now):
        since = item.applied_at or item.submitted_at or (item.planned_at if item.first_step is not None else None)
        if since is not None:
            held += max(0.0, _end(item, now) - max(begin, since))
    return nodes * held / DAY


def _since(attempts: Sequence[AttemptRecord], begin: float, now: float) -> Iterator[AttemptRecord]:
    """Attempts that had not ended by `begin`: one ends before the next begins to hold anything."""
    return takewhile(lambda item: _end(item, now) > begin, reversed(attempts))


def _end(attempt: AttemptRecord, now: float) -> float:
    return now if attempt.ended_at is None else attempt.ended_at


def _trained(attempt: AttemptRecord) -> tuple[float, int] | None:
    """Seconds and steps from the first to the last step of an attempt."""
    first, last = attempt.first_step, attempt.last_step
    if first is None or last is None or attempt.first_step_at is None or attempt.last_step_at is None:
        return None
    seconds = attempt.last_step_at - attempt.first_step_at
    return (seconds, last - first) if last > first and seconds > 0 else None


def _gaps(first: Mapping[int, Moved]) -> list[float]:
    """The median time between durable steps of one attempt that follow each other; none where there are no two."""
    ordered = [first[step] for step in sorted(first)[-RECENT:]]
    gaps = [
        one.seconds / one.steps
        for _, mine in groupby(ordered, key=lambda item: item.attempt)
        for one in beats(((number, item.at) for number, item in enumerate(mine)), 0.0)
    ]
    return [median(gaps)] if gaps else []
