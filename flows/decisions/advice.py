"""How often a run should save, and what share of its time may be expected to be productive: from what it measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from flows.decisions.account import TileSpan
from flows.decisions.cuts import Steps, marks_of
from flows.decisions.failure_rate import FailureRate, believed_rate, failure_rate
from flows.decisions.formulas import expected_ettr, mttf_hours, simulated_ettr
from flows.decisions.saving import optimal_interval_seconds
from flows.decisions.stretches import intervals
from profiles.resolve import Resolved
from profiles.run import CheckpointPolicy
from profiles.vocabulary import Action, FaultClass, Tile
from workflows.records import AttemptRecord, IncidentRecord, Story

CLOSE = 1.5
"""Within this factor of the best interval nothing is gained by a change: the cost is flat around its minimum."""
LARGEST_CHANGE = 4.0
"""An advised interval is within this factor of the profile's: a person chose that one, for reasons of their own too."""
NO_FAILURE_ACTIONS = frozenset({Action.NONE, Action.WAIT})
NO_FAILURE_CLASSES = frozenset({FaultClass.NONE, FaultClass.SCHEDULING, FaultClass.CONTROL_PLANE})
"""Incidents of these classes, or answered so, interrupted no training: they are no failures."""
_RESTARTING = frozenset({Tile.DIAGNOSE, Tile.RESTART, Tile.RESTORE, Tile.INIT, Tile.PREFLIGHT, Tile.PAUSED, Tile.QUEUE})


@dataclass(frozen=True)
class Measured:
    """What a run says about itself. Seconds; None: it did not come to that."""

    nodes: int
    rate: FailureRate
    per_node_day: float
    """Believed: of the run's own failures and what is known of others (`failure_rate.believed_rate`)."""
    mttf_seconds: float
    """Of the whole gang, by that rate."""
    stall_seconds: float | None
    """Training stood still so long for one save, in the mean."""
    saves: int
    interval_seconds: float | None
    """Between two saves, the median."""
    restart_seconds: float | None
    """From the last step before a failure to the first one after it, in the mean over its failures."""
    step_seconds: float | None
    """The median."""


@dataclass(frozen=True)
class Advice:
    """What to do about the interval, and what to expect."""

    measured: Measured
    best_interval_seconds: float | None
    """Where the expected wall time is smallest; None: no save was measured."""
    best_interval_steps: int | None
    expected_ettr: float | None
    """With the present interval, closed form; None: an input is not known, or nothing can be expected."""
    simulated_ettr: float | None
    """The same by playing failures."""
    best_ettr: float | None
    """Closed form with the best interval."""
    text: str
    """In one sentence."""


def is_failure(incident: IncidentRecord) -> bool:
    """Whether it interrupted training."""
    return incident.action not in NO_FAILURE_ACTIONS and incident.fault_class not in NO_FAILURE_CLASSES


def measured(story: Story, steps: Steps, spans: Sequence[TileSpan], resolved: Resolved, now: float) -> Measured:
    """What the run's own times say.

    Args:
        story: the run.
        steps: completed steps by attempt.
        spans: its tiles.
        resolved: its profile.
        now: Unix seconds.
    """
    nodes = resolved.run.deciding_role.replicas
    failures = sum(is_failure(item) for item in story.incidents)
    rate = failure_rate(failures, node_days(story, nodes, now))
    believed = believed_rate(failures, rate.node_days)
    saves = [
        pair
        for mine in marks_of(story.marks).values()
        for pair in intervals(mine, "checkpoint-begin", "checkpoint-end")
    ]
    stalled = sum(span.end - span.begin for span in spans if span.state is Tile.CHECKPOINT_STALL)
    lost = sum(span.end - span.begin for span in spans if _restarts(span, story.incidents))
    gaps = [b.at - a.at for rows in steps.values() for a, b in pairwise(rows) if b.step == a.step + 1]
    return Measured(
        nodes,
        rate,
        believed,
        mttf_hours(nodes, believed) * 3600.0,
        stalled / len(saves) if saves else None,
        len(saves),
        _median_gap(story, saves),
        lost / failures if failures else None,
        median(gaps) if gaps else None,
    )


def _restarts(span: TileSpan, incidents: Sequence[IncidentRecord]) -> bool:
    """Whether the tile is part of coming back, not of the first start."""
    since = min((item.detected_at for item in incidents if is_failure(item)), default=math.inf)
    return span.state is Tile.DETECT or (span.state in _RESTARTING and span.begin >= since - 1e-3)


def believed_mttf_seconds(story: Story, resolved: Resolved, now: float) -> float:
    """Mean time to failure of the run's whole gang, by its own failures and what is known of others."""
    nodes = resolved.run.deciding_role.replicas
    failures = sum(is_failure(item) for item in story.incidents)
    seconds = mttf_hours(nodes, believed_rate(failures, node_days(story, nodes, now))) * 3600.0
    return float(f"{seconds:.3g}")


def told_interval(policy: CheckpointPolicy, attempts: Sequence[AttemptRecord]) -> int | None:
    """Steps between saves that the next attempt is told; None: those of the profile.

    Args:
        policy: of the profile, which allows another interval or does not.
        attempts: of the run so far, oldest first.
    """
    known = [item.advised_steps for item in attempts if item.advised_steps is not None]
    if not policy.follow_advice or not known:
        return None
    least, most = math.ceil(policy.interval_steps / LARGEST_CHANGE), round(policy.interval_steps * LARGEST_CHANGE)
    told = min(max(known[-1], least), most)
    return None if told == policy.interval_steps else told


def node_days(story: Story, nodes: int, now: float) -> float:
    """For which the run's gangs held their nodes."""
    return nodes * held_seconds(story, now) / 86400.0


def held_seconds(story: Story, now: float) -> float:
    """How long the run's gangs held their nodes: from each attempt's JobSet to its end."""
    held = 0.0
    for attempt in story.attempts:
        begin = attempt.applied_at or attempt.submitted_at
        if begin is not None:
            held += max(0.0, (attempt.ended_at or now) - begin)
    return held


def advise(found: Measured) -> Advice:
    """The interval that loses least, and what to expect of the present one and of it."""
    stall, present = found.stall_seconds, found.interval_seconds
    best = None if stall is None else optimal_interval_seconds(stall, found.mttf_seconds)
    if best is not None and found.step_seconds:
        best = max(best, found.step_seconds)
    steps = None if best is None or not found.step_seconds else max(1, round(best / found.step_seconds))
    return Advice(
        found,
        best,
        steps,
        _expected(found, present, simulated=False),
        _expected(found, present, simulated=True),
        _expected(found, best, simulated=False),
        _text(found, best, steps),
    )


def _expected(found: Measured, interval: float | None, *, simulated: bool) -> float | None:
    if not interval or found.restart_seconds is None:
        return None
    form = simulated_ettr if simulated else expected_ettr
    try:
        return form(found.nodes, found.per_node_day, found.restart_seconds, interval, found.stall_seconds or 0.0)
    except ValueError:
        return None


def _text(found: Measured, best: float | None, steps: int | None) -> str:
    if best is None:
        return "No save was seen: how long one stalls training is not known, so no interval can be advised."
    often = f"every {_span(best)}" + (f" (about {steps} steps)" if steps else "")
    since = (
        f"a save stalls {_span(found.stall_seconds)} and the gang is expected to fail every {_span(found.mttf_seconds)}"
    )
    if found.interval_seconds is None:
        return f"Save {often}: {since}."
    now = f"every {_span(found.interval_seconds)}"
    if best / CLOSE <= found.interval_seconds <= best * CLOSE:
        return f"Leave the interval as it is, {now}: the best one is {often}, since {since}."
    more = "less" if best > found.interval_seconds else "more"
    return f"Save {more} often, {often} instead of {now}: {since}."


def _span(seconds: float | None) -> str:
    """A length of time in one unit, as exact as an advice is."""
    if seconds is None:
        return "?"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:,.0f} h"


def _median_gap(story: Story, saves: Sequence[tuple[float, float]]) -> float | None:
    """Between the begins of saves; where none were told, between findings of checkpoints of one attempt."""
    moments = sorted(begin for begin, _ in saves)
    gaps = [b - a for a, b in pairwise(moments)]
    if not gaps:
        known = sorted({(item.attempt, item.step): item.at for item in story.checkpoints}.items())
        gaps = [later - earlier for (a, earlier), (b, later) in pairwise(known) if a[0] == b[0] and later > earlier]
    return median(gaps) if gaps else None
