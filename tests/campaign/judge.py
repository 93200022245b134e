"""Whether a run of a campaign came to its right end, and what is wrong where it did not. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from flows.decisions.accounting.report import curve_of, tiles_of
from flows.decisions.accounting.tiles import totals
from profiles.vocabulary import Action, NodeAction, RunState, VerdictWord
from tests.campaign.expected import classes_of, is_noise, may_evict, must_be_noticed
from tests.campaign.plan import STEPS
from tests.campaign.seen import Seen
from workflows.model.records import IncidentRecord

EXACT_SECONDS = 1e-4
"""Sums of a few hundred tiles, each rounded to a microsecond in the ledger's summary."""


@dataclass(frozen=True)
class Violation:
    """Something that must never be."""

    kind: str
    """One of `KINDS`, or `weights`."""
    text: str


def judge(seen: Seen) -> list[Violation]:
    """Everything that is wrong with a run, but for its weights, which need another run."""
    return [Violation(kind, text) for kind, look in KINDS.items() for text in look(seen)]


def differing(weights: str, expected: str) -> list[Violation]:
    """Of a run that reached its goal: its weights must be those of the run to which nothing happened."""
    if weights and weights == expected:
        return []
    return [Violation("weights", f"{weights[:12] or 'none'}, but {expected[:12] or 'none'} without faults")]


def _played(seen: Seen) -> Iterator[str]:
    if seen.error:
        yield seen.error
    fired = len(seen.hits)
    if fired < len(seen.plan.faults):
        yield f"{fired} of {len(seen.plan.faults)} faults fired; the next was {seen.plan.faults[fired].label}"


def _ended(seen: Seen) -> Iterator[str]:
    ending, run = seen.plan.ending, seen.story.run
    wanted = RunState.SUCCEEDED if ending is None else RunState.FAILED
    if run.state is not wanted:
        yield f"{run.state} ({run.why}), but it should be {wanted}"
    elif ending is not None:
        last = seen.story.troubles[-1] if seen.story.troubles else None
        if last is None or (last.fault_class, last.action) != (ending.fault_class, Action.GIVE_UP):
            yield f"given up for {last and last.fault_class}, but it should be for {ending.fault_class}"
        if ending.words not in run.why:
            yield f"the reason does not say {ending.words!r}: {run.why}"


def _explained(seen: Seen) -> Iterator[str]:
    for item in seen.story.incidents:
        place = seen.strike_of(item)
        if is_noise(item):
            continue
        if place is None:
            yield f"{_words(item)}, while nothing was broken"
        elif item.fault_class not in classes_of(seen.plan.strikes[place]):
            yield f"{_words(item)} after {seen.plan.strikes[place].label}"


def _noticed(seen: Seen) -> Iterator[str]:
    for place in seen.begins:
        if must_be_noticed(seen.plan.strikes[place]) and not seen.incidents_of(place):
            yield f"nothing was noticed of {seen.plan.strikes[place].label}"


def _innocent(seen: Seen) -> Iterator[str]:
    for place in seen.begins:
        for item in seen.incidents_of(place):
            named = {node for node, _ in item.culprits if node}
            if healthy := named - seen.struck(place):
                yield f"{_words(item)} blames {', '.join(sorted(healthy))}; struck: {sorted(seen.struck(place))}"
    taken = {item.target for item in seen.story.actions if item.kind == NodeAction.QUARANTINE} | set(seen.tainted)
    guilty = {node for hit in seen.hits if may_evict(hit.fault) for node in hit.nodes}
    if healthy := taken - guilty:
        yield f"{', '.join(sorted(healthy))} taken out, though nothing was lost there"


def _left_over(seen: Seen) -> Iterator[str]:
    if seen.orphans:
        yield f"{len(seen.orphans)} processes live on: {'; '.join(seen.orphans[:5])}"


def _tiled(seen: Seen) -> Iterator[str]:
    run = seen.story.run
    if run.ended_at is None:
        yield "the run has no end"
        return
    spans = tiles_of(seen.story, seen.steps, run.ended_at)
    edges = [run.created_at, *(span.end for span in spans)]
    if [span.begin for span in spans] != edges[:-1] or edges[-1] != run.ended_at:
        yield "tiles leave gaps or overlap"
    if any(span.end <= span.begin for span in spans):
        yield "tiles without any time"
    summed = totals(spans, seen.gpus)
    wall = run.ended_at - run.created_at
    if not math.isclose(math.fsum(summed.by_state.values()), wall * seen.gpus, abs_tol=EXACT_SECONDS):
        yield f"tiles hold {math.fsum(summed.by_state.values()):.6f} of {wall * seen.gpus:.6f} device-seconds"
    mine = {str(state): value / seen.gpus for state, value in summed.by_state.items()}
    kept = {state: value for state, value in (seen.kept or {}).items() if value}
    if seen.kept is None:
        yield "the driver left no summary"
    elif mine.keys() != kept.keys() or any(abs(mine[state] - kept[state]) > EXACT_SECONDS for state in mine):
        yield f"the driver's summary says {kept}, the ledger {mine}"


def _counted(seen: Seen) -> Iterator[str]:
    numbers = [attempt.number for attempt in seen.story.attempts]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"attempts {numbers}"
    for attempt in seen.story.attempts:
        if attempt.outcome is None:
            yield f"attempt {attempt.number} has no end"
        if attempt.resume_proof not in (None, VerdictWord.PASS):
            yield f"attempt {attempt.number} did not prove its resume from step {attempt.resumed_from_step}"
    done = [step for step, _, _, kept in curve_of(seen.steps) if kept]
    if sorted(done) != sorted(set(done)):
        yield "a step counts twice"
    missing = set(range(1, STEPS + 1)) - set(done) - _untold(seen)
    if seen.story.run.state is RunState.SUCCEEDED and missing:
        yield f"steps of which the ledger knows nothing: {sorted(missing)}"


_TELLERS = frozenset({"kill-launcher", "lose-node"})
"""Faults that kill launchers: what they had read and not told is gone with them."""


def _untold(seen: Seen) -> set[int]:
    """Steps that a launcher was killed over before it could tell them; the checkpoint resumed from proves them."""
    found = set[int]()
    for before, attempt in pairwise(seen.story.attempts):
        killed = any(
            hit.fault.kind in _TELLERS and before.planned_at <= hit.at < attempt.planned_at for hit in seen.hits
        )
        if killed and attempt.resumed_from_step is not None:
            told = [row.step for row in seen.steps.get(before.number, ())]
            found |= set(range(max(told, default=attempt.resumed_from_step) + 1, attempt.resumed_from_step + 1))
    return found


def _ordered(seen: Seen) -> Iterator[str]:
    for item in seen.story.incidents:
        times = [at for at in (item.at, item.detected_at, item.resumed_at, item.over_at) if at is not None]
        if any(later < earlier for earlier, later in pairwise(times)):
            yield f"{_words(item)}: happened, noticed and resumed at {times}"


def _words(item: IncidentRecord) -> str:
    return f"{item.id} ({item.fault_class}, {item.action})"


KINDS: dict[str, Callable[[Seen], Iterator[str]]] = {
    "played": _played,
    "end": _ended,
    "explained": _explained,
    "noticed": _noticed,
    "blame": _innocent,
    "orphans": _left_over,
    "tiling": _tiled,
    "attempts": _counted,
    "order": _ordered,
}
"""What is looked at, by its name."""
