"""When a gang leaves a slow node: as soon as waiting for it has cost as much as leaving does (ski rental). Pure.

Whoever leaves when the loss equals the price of a new attempt never pays more than twice what somebody would who knew
how long the node stays slow (fault tolerance notes 6.5). Four things must hold: the loss has reached the price; a
checkpoint was proven since the rank became slow, so that little is trained again; a node is free; and the rest of the
run would lose more than the move costs. The file also describes slow ranks and jumps for `primus status`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from profiles.vocabulary import FINISHED
from workflows.model.attempt import CoordinatorFacts
from workflows.model.gang_status import JUMP_MARK, SLOWER_MARK, STRAGGLERS_MARK
from workflows.model.incidents import all_ranks_slower
from workflows.model.records import AttemptRecord, MarkRecord, Story
from workflows.status import Straggler

Json = dict[str, Any]

MAX_JUMPS = 5
"""Jumps that are shown."""


@dataclass(frozen=True)
class StragglerMove:
    """What the slowest node costs, and whether the gang should leave it."""

    straggler: Straggler
    price_seconds: float | None
    """Of a new attempt: a start like this attempt's own, and the steps since the newest proven checkpoint once more;
    None: not known."""
    blocked_by: str
    """What is missing before the move pays, in words; "": nothing."""

    @property
    def words(self) -> str:
        """For people: who lags, what it has cost, what a move costs."""
        one = self.straggler
        where = f"rank {one.rank} on {one.node or 'an unknown node'}"
        price = "" if self.price_seconds is None else f", as much as a new attempt costs ({self.price_seconds:.3g} s)"
        lost = f"the gang has lost {one.cost_seconds:.3g} s waiting for it{price}"
        return f"{where} takes {one.ratio:.2f} times as long as its peers; {lost}"


def straggler_move(facts: CoordinatorFacts | None, attempt: AttemptRecord, steps: int | None) -> StragglerMove | None:
    """What is to be said about the rank that costs most; None: none lags."""
    named = facts.news.stragglers if facts is not None else None
    if facts is None or not named:
        return None
    worst = max(named, key=lambda one: one.cost_seconds)
    price = price_seconds(facts, attempt)
    return StragglerMove(worst, price, _missing(worst, price, facts, steps))


def price_seconds(facts: CoordinatorFacts, attempt: AttemptRecord) -> float | None:
    """Seconds that a new attempt would take until it is where this one is; None: not known."""
    if attempt.first_step_at is None or facts.step is None or not facts.steps_per_second:
        return None
    start = max(0.0, attempt.first_step_at - attempt.planned_at)
    began = attempt.resumed_from_step or 0
    kept = began if facts.last_checkpoint_step is None else max(began, facts.last_checkpoint_step)
    return start + max(0, facts.step - kept) / facts.steps_per_second


def _missing(worst: Straggler, price: float | None, facts: CoordinatorFacts, steps: int | None) -> str:
    if not worst.node:
        return "the node of the slow rank is not known"
    if price is None:
        return "the cost of a new attempt is not known yet"
    if worst.cost_seconds < price:
        return f"a new attempt costs more ({price:.3g} s)"
    saved = facts.last_checkpoint_step
    if saved is None or (worst.since_step is not None and saved < worst.since_step):
        return "no checkpoint has been proven since the rank became slow"
    if steps is not None and facts.step is not None and facts.steps_per_second:
        rest = max(0, steps - facts.step) / facts.steps_per_second * (1 - 1 / max(1.0, worst.ratio))
        if rest < price:
            return f"the rest of the run loses less ({rest:.3g} s) than a new attempt costs ({price:.3g} s)"
    return ""


def slow_ranks_document(story: Story) -> Json:
    """The part of `primus status --json` about the present attempt: `stragglers`, `slower` (null: no) and `jumps`."""
    attempt = story.attempt
    over = attempt is None or attempt.ended_at is not None or story.run.state in FINISHED
    mine = () if attempt is None or over else [mark for mark in story.marks if mark.attempt == attempt.number]
    ranks = mark_details(mine, STRAGGLERS_MARK)[-1:]
    return {
        "stragglers": ranks[0] if ranks and isinstance(ranks[0], list) else [],
        "slower": next(iter(mark_details(mine, SLOWER_MARK)[-1:]), None),
        "jumps": mark_details(mine, JUMP_MARK)[-MAX_JUMPS:],
    }


def mark_details(marks: Sequence[MarkRecord], kind: str) -> list[Any]:
    """What the moments of a kind say, in order; unreadable ones are left out."""
    found: list[Any] = []
    for mark in marks:
        try:
            found += [json.loads(mark.detail)] if mark.kind == kind else []
        except ValueError:
            continue
    return found


def sentences(status: Json) -> list[str]:
    """The same for people, a line each."""
    lines = [_slow_rank_sentence(item) for item in status["stragglers"]]
    slower = status["slower"]
    if slower is not None:
        lines.append(all_ranks_slower(slower["ratio"], slower["since_step"]))
    return lines + [_jumped(item) for item in status["jumps"]]


def _jumped(item: Json) -> str:
    what, value = item["what"], item["value"]
    if isinstance(value, str):
        return f"{what} was {value} at step {item['step']}"
    return f"{what} jumped at step {item['step']}: {item['before']:.4g} to {value:.4g}"


def _slow_rank_sentence(item: Json) -> str:
    where = f" on {item['node']}" if item["node"] else ""
    since = "" if item["since_step"] is None else f" since step {item['since_step']}"
    return f"rank {item['rank']}{where} is slow{since}: a step takes {item['ratio']:.2f} times as long as on its peers"
