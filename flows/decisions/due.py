"""Which of the flow runs whose time has come are started, and what becomes of those whose process died. Pure.

What people ask for is always started. Of what a timetable made only the newest counts: a night that was missed is
caught up once, however many were missed; one that would overlap with the one before is skipped, not queued.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from workflows.driven import Due, Phase, Plain

GRACE_SECONDS = 15.0
"""Whoever claimed something a moment ago is about to run it."""
MOST_STARTS = 3
"""A flow run whose process died so often is given up: it is what kills it."""


@dataclass(frozen=True)
class Start:
    """Claim it and run it."""

    flow_run: str


@dataclass(frozen=True)
class Skip:
    """End it without running it."""

    flow_run: str
    why: str


@dataclass(frozen=True)
class Again:
    """Schedule it anew: whoever claimed or ran it is gone."""

    flow_run: str
    why: str


@dataclass(frozen=True)
class GiveUp:
    """Call it crashed."""

    flow_run: str
    why: str


@dataclass(frozen=True)
class Cancel:
    """End its process, if it has one: a person cancelled it."""

    flow_run: str


Choice = Start | Skip
Fate = Again | GiveUp | Cancel


def choose(due: Sequence[Due], alone: frozenset[str], busy: frozenset[str]) -> tuple[Choice, ...]:
    """What becomes of each flow run that is due, in the order in which they are.

    Args:
        due: nobody claimed them yet.
        alone: deployments of which one flow run runs at a time.
        busy: deployments of which one runs now.
    """
    newest = {item.deployment: item.id for item in sorted(due, key=_order) if item.scheduled}
    chosen: list[Choice] = []
    taken = set(busy)
    for item in sorted(due, key=_order):
        if item.scheduled and newest[item.deployment] != item.id:
            chosen.append(Skip(item.id, "missed: a later one is due already"))
        elif item.deployment not in alone:
            chosen.append(Start(item.id))
        elif item.deployment not in taken:
            taken.add(item.deployment)
            chosen.append(Start(item.id))
        elif item.scheduled:
            chosen.append(Skip(item.id, "overlap: the one before has not ended"))
        # What a person asked for waits for its turn.
    return tuple(chosen)


def look_after_plain(
    seen: Iterable[Plain], working: frozenset[str], fleeting: frozenset[str], now: float
) -> tuple[Fate, ...]:
    """What becomes of flow runs that were claimed: all our flows go on where they were, so they are begun again.

    Args:
        seen: claimed, running or being cancelled.
        working: ids of those whose process lives.
        fleeting: deployments with a timetable, whose next flow run does what this one left undone.
        now: Unix seconds.
    """
    fates = (_fate(one, one.id in working, one.deployment in fleeting, now) for one in seen)
    return tuple(fate for fate in fates if fate is not None)


def _fate(one: Plain, works: bool, fleeting: bool, now: float) -> Fate | None:
    if one.phase is Phase.CANCELLING:
        return Cancel(one.id)
    if works or now - one.since < GRACE_SECONDS or one.phase not in (Phase.CLAIMED, Phase.RUNNING):
        return None
    if one.phase is Phase.CLAIMED:
        return Again(one.id, "whoever claimed it did not run it")
    if fleeting:
        return GiveUp(one.id, "its process died; the next one does its work")
    if one.begun >= MOST_STARTS:
        return GiveUp(one.id, f"its process died {one.begun} times")
    return Again(one.id, "its process died")


def _order(item: Due) -> tuple[float, str]:
    return (item.at, item.id)
