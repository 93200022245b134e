"""What the record of a training says about one trial: pure, from the lines that the ranks appended."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """A step that a rank completed, or its last weights."""

    pid: int
    at: float
    """Seconds since the epoch."""
    rank: int
    step: int = 0
    """0: not a step."""
    began: float = 0.0
    world: int = 0
    weights: str = ""


def events(text: str) -> list[Event]:
    """All whole lines, in the order in which they were written; a line that is still being written is left out."""
    whole = text[: text.rfind("\n") + 1].splitlines()
    return [Event(**json.loads(line)) for line in whole]


@dataclass(frozen=True)
class Trial:
    """One trial of one peer.

    Times are seconds, from the moment of the fault.
    """

    peer: str
    fault: str
    """ "": nothing happened."""
    victim: int
    resumed_seconds: float | None
    """To the end of the first step that was begun after the fault; None: none was."""
    steps_lost: int | None
    """Completed before the fault and done again."""
    world: int
    """Ranks that took part in that step."""
    weights: str
    """The last ones; "": it did not come to its end within the limit."""
    said: tuple[str, ...] = ()
    """The last lines, where it did not come to its end."""

    @property
    def completed(self) -> bool:
        """It came to its end."""
        return bool(self.weights)


def read(peer: str, fault: str, victim: int, seen: Sequence[Event], at: float) -> Trial:
    """What came of the fault.

    Args:
        peer: its name.
        fault: `kill` or `hang`; "" where nothing was done.
        victim: the rank.
        seen: all events of the trial.
        at: when the fault was caused, seconds since the epoch.
    """
    weights = next((event.weights for event in reversed(seen) if event.weights), "")
    before = max((event.step for event in seen if event.step and event.began <= at), default=0)
    after = [event for event in seen if event.step and event.began > at]
    if not fault or not after:
        return Trial(peer, fault, victim, None, None, 0, weights)
    first = min(after, key=lambda event: event.at)
    return Trial(
        peer, fault, victim, first.at - at, max(0, before - first.step + 1), first.world, weights
    )  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One peer and one fault, over all trials."""

    peer: str
    fault: str
    trials: int
    resumed: int
    """Trials in which a step was completed after the fault."""
    completed: int
    equal: int
    """Trials whose last weights are those of the same peer without a fault."""
    median_seconds: float | None
    worst_seconds: float | None
    steps_lost: float | None
    """Mean of those that resumed."""
    shrunk: int
    """Trials that went on with fewer ranks."""
    by_victim: tuple[tuple[int, int, int], ...]
    """Rank, trials, completed."""


def row(trials: Sequence[Trial], calm: str, ranks: int) -> Row:
    """Of trials of one peer with one fault.

    Args:
        trials: at least one.
        calm: weights without a fault.
        ranks: how many train.
    """
    taken = [trial.resumed_seconds for trial in trials if trial.resumed_seconds is not None]
    lost = [trial.steps_lost for trial in trials if trial.steps_lost is not None]
    victims = sorted({trial.victim for trial in trials})
    of_each = [[trial.completed for trial in trials if trial.victim == victim] for victim in victims]
    return Row(
        peer=trials[0].peer,
        fault=trials[0].fault,
        trials=len(trials),
        resumed=len(taken),
        completed=sum(trial.completed for trial in trials),
        equal=sum(trial.completed and trial.weights == calm for trial in trials),
        median_seconds=statistics.median(taken) if taken else None,
        worst_seconds=max(taken) if taken else None,
        steps_lost=statistics.mean(lost) if lost else None,
        shrunk=sum(0 < trial.world < ranks for trial in trials),
        by_victim=tuple((victim, len(ends), sum(ends)) for victim, ends in zip(victims, of_each, strict=True)),
    )
