"""How often a run should save, what productive share it may expect, and how many spare nodes pay. Times in seconds.

Sources: fault tolerance notes, 6.3 and 6.4, and the papers named there. d is the stall of one save, M the mean time to
failure of the whole gang, R the time of a restart, t the training between two saves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median

from flows.decisions.accounting.cuts import StepSpans, intervals, marks_of
from flows.decisions.accounting.reliability import (
    FailureRate,
    believed_rate,
    expected_ettr,
    failure_rate,
    mttf_hours,
    simulated_ettr,
)
from flows.decisions.accounting.tiles import TileSpan
from flows.decisions.policy import classes_where
from profiles.resolve import Resolved
from profiles.run import CheckpointPolicy
from profiles.vocabulary import Action, Tile
from workflows.model.checkpoints import seen
from workflows.model.records import AttemptRecord, IncidentRecord, Story
from workflows.programs.coordinator import saves as coordinator_saves
from workflows.programs.progress.pace import beats, step_seconds

# The coordinator advises by the same ones, and has the standard library alone to do so.
young_interval_seconds = coordinator_saves.young_seconds
daly_interval_seconds = coordinator_saves.daly_seconds
optimal_interval_seconds = coordinator_saves.optimal_seconds
asynchronous_interval_seconds = coordinator_saves.asynchronous_seconds


def expected_wall_seconds(
    work_seconds: float, interval_seconds: float, stall_seconds: float, restart_seconds: float, mttf_seconds: float
) -> float:
    """Expected wall time of `work_seconds` of training (Daly): M e^(R/M) (e^((t+d)/M) - 1) Ts / t."""
    grown = math.expm1((interval_seconds + stall_seconds) / mttf_seconds)
    return mttf_seconds * math.exp(restart_seconds / mttf_seconds) * grown * work_seconds / interval_seconds


def availability_interval_seconds(
    save_seconds: float, mttf_seconds: float, restart_seconds: float, detection_seconds: float = 0.0
) -> float:
    """From one save's begin to the next one's, the save included, at the best availability: Ts + sqrt(2(Tf+Tr)Ts+Ts^2).

    Where a fault shows late (silent corruption), a shorter interval would only keep poisoned checkpoints: then the
    interval is the time of detection, and checkpoints older than that must be kept.
    """
    best = save_seconds + math.sqrt(2 * (mttf_seconds + restart_seconds) * save_seconds + save_seconds**2)
    return max(best, detection_seconds)


@dataclass(frozen=True)
class TwoLevels:
    """Saves in memory often, on storage rarely."""

    memory_seconds: float
    """Between two saves in memory."""
    storage_seconds: float
    """Between two saves on storage: a whole number of those in memory."""


def two_level_intervals(
    memory_stall_seconds: float, memory_mttf_seconds: float, storage_stall_seconds: float, storage_mttf_seconds: float
) -> TwoLevels:
    """Each level by its own failures: memory survives a process or one node, storage the loss of several or a rack."""
    memory = optimal_interval_seconds(memory_stall_seconds, memory_mttf_seconds)
    storage = optimal_interval_seconds(storage_stall_seconds, storage_mttf_seconds)
    return TwoLevels(memory, memory * max(1, round(storage / memory)) if memory > 0 else storage)


CLOSE = 1.5
"""Within this factor of the best interval nothing is gained by a change: the cost is flat around its minimum."""
LARGEST_CHANGE = 4.0
"""An advised interval is within this factor of the profile's: a person chose that one, for reasons of their own too."""
NO_FAILURE_ACTIONS = frozenset({Action.NONE, Action.WAIT})
"""What is answered so interrupted no training."""
NO_FAILURE_CLASSES = classes_where(lambda policy: not policy.interrupts_training or policy.exception_blames_code)
"""What interrupts nothing, and what the program or what it was given is to blame for: no node failed."""
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
    """Whether it interrupted training, and neither the program nor what it was given is to blame."""
    return incident.action not in NO_FAILURE_ACTIONS and incident.fault_class not in NO_FAILURE_CLASSES


def measured(story: Story, steps: StepSpans, spans: Sequence[TileSpan], resolved: Resolved, now: float) -> Measured:
    """What the run's own times say."""
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
    since = min((item.detected_at for item in story.incidents if is_failure(item)), default=math.inf)
    lost = sum(span.end - span.begin for span in spans if _restarts(span, since))
    return Measured(
        nodes,
        rate,
        believed,
        mttf_hours(nodes, believed) * 3600.0,
        stalled / len(saves) if saves else None,
        len(saves),
        _median_gap(story, saves),
        lost / failures if failures else None,
        step_seconds((row.step, row.at) for number in sorted(steps) for row in steps[number]),
    )


def _restarts(span: TileSpan, since: float) -> bool:
    """Whether the tile is part of coming back, not of the first start; `since`: when the first failure was detected."""
    return span.state is Tile.DETECT or (span.state in _RESTARTING and span.begin >= since - 1e-3)


def believed_mttf_seconds(story: Story, resolved: Resolved, now: float) -> float:
    """Mean time to failure of the run's whole gang, by its own failures and what is known of others."""
    nodes = resolved.run.deciding_role.replicas
    failures = sum(is_failure(item) for item in story.incidents)
    seconds = mttf_hours(nodes, believed_rate(failures, node_days(story, nodes, now))) * 3600.0
    return float(f"{seconds:.3g}")


def interval_for_next_attempt(policy: CheckpointPolicy, attempts: Sequence[AttemptRecord]) -> int | None:
    """Steps between saves that the next attempt uses; None: those of the profile."""
    known = [item.advised_steps for item in attempts if item.advised_steps is not None]
    if not policy.follow_advice or not known:
        return None
    least, most = math.ceil(policy.interval_steps / LARGEST_CHANGE), round(policy.interval_steps * LARGEST_CHANGE)
    interval = min(max(known[-1], least), most)
    return None if interval == policy.interval_steps else interval


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
    """Between the begins of saves; where none were reported, between findings of checkpoints of one attempt."""
    moments = sorted(begin for begin, _ in saves)
    gaps = [b - a for a, b in pairwise(moments)]
    if not gaps:
        known = sorted({(item.attempt, item.step): item.at for item in seen(story.checkpoints)}.items())
        for _, mine in groupby(known, key=lambda item: item[0][0]):
            gaps += [one.seconds / one.steps for one in beats(((n, at) for n, (_, at) in enumerate(mine)), 0.0)]
    return median(gaps) if gaps else None


def spares(nodes: int, failure_probability: float, confidence: float = 0.99) -> int:
    """Spares that cover the failures within one replenishment with `confidence`: a quantile of Binom(N, p).

    The loss of a rack or a switch is another event: it is answered by a new gang elsewhere, not by spares.

    Raises:
        ValueError: a probability outside of [0, 1], or a confidence outside of (0, 1).
    """
    if not 0 <= failure_probability <= 1:
        raise ValueError(f"failure_probability: must lie between 0 and 1, got {failure_probability}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: must lie between 0 and 1, got {confidence}")
    if failure_probability in (0, 1):
        return nodes if failure_probability else 0
    ways, up, down = math.lgamma(nodes + 1), math.log(failure_probability), math.log1p(-failure_probability)
    covered = 0.0
    for count in range(nodes + 1):
        # By logarithms: of a large gang the probability of no failure at all is smaller than any float.
        chosen = ways - math.lgamma(count + 1) - math.lgamma(nodes - count + 1)
        covered += math.exp(chosen + count * up + (nodes - count) * down)
        if covered >= confidence:
            return count
    return nodes


def failure_probability(failures_per_node_day: float, replenish_days: float) -> float:
    """Probability that a node fails before the spares are replenished: 1 - e^(-r days)."""
    return -math.expm1(-failures_per_node_day * replenish_days)


def spares_pay(
    nodes: int, failures_per_node_day: float, reschedule_seconds: float, wake_seconds: float, held: int
) -> bool:
    """Whether `held` spares save more node-time than they stand idle: failures/day x (reschedule - wake) x N > s days.

    `held` is the number of spares.
    """
    saved = nodes * failures_per_node_day * (reschedule_seconds - wake_seconds) * nodes
    return saved > held * 86400.0


def shortage_probability(nodes: int, failures_per_node_day: float, repair_days: float, held: int) -> float:
    """Probability that more nodes are in repair than there are spares: a Poisson tail with mean N r x repair days."""
    mean = nodes * failures_per_node_day * repair_days
    if mean == 0:
        return 0.0
    terms = (math.exp(count * math.log(mean) - mean - math.lgamma(count + 1)) for count in range(held + 1))
    return min(1.0, max(0.0, 1.0 - math.fsum(terms)))
