"""The incarnations of an attempt: its ranks' first start, and one more for each restart in place. Pure.

A restart in place shows in step numbers that fall back, and in the recorded restarts.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from flows.decisions.text import timestamp
from profiles.vocabulary import Action
from workflows.model.records import AttemptRecord, IncidentRecord, StepRow

Json = dict[str, Any]

_FROM = re.compile(r"from step (\d+)$")
"""How `workflows.status.RestartInPlace.words` ends; else it was from scratch."""


def begins_again(rows: Sequence[StepRow], restarts: Sequence[float]) -> list[bool]:
    """For each step whether the ranks began again before it: its number was there already, or a restart was recorded.

    `restarts`: Unix seconds at which they were decided, in order.
    A recorded restart beside such a fall belongs to it: clocks of nodes differ by less than a step.
    """
    falls = [index > 0 and row.step <= rows[index - 1].step for index, row in enumerate(rows)]
    times = [row.at for row in rows]
    again = list(falls)
    for at in restarts:
        index = bisect_left(times, at)
        if 0 < index < len(rows) and not any(falls[max(0, index - 1) : index + 2]):
            again[index] = True
    return again


def first_restart_in(restarts: Sequence[float], after: float, until: float) -> float | None:
    """When the first fault in (after, until] was noticed for which the ranks began again; None: there was none."""
    index = bisect_right(restarts, after)
    return restarts[index] if index < len(restarts) and restarts[index] <= until else None


def by_attempt(incidents: Iterable[IncidentRecord]) -> dict[int, list[IncidentRecord]]:
    """The incidents of each attempt by its number, in their order."""
    found: dict[int, list[IncidentRecord]] = {}
    for incident in incidents:
        found.setdefault(incident.attempt, []).append(incident)
    return found


def incarnations(
    attempt: AttemptRecord, incidents: Sequence[IncidentRecord], rows: Sequence[StepRow] = ()
) -> list[Json]:
    """The part `incarnations` of an attempt in `primus status --json`, oldest first.

    Without `rows` the first step of a later incarnation is not known.
    """
    restarts = sorted(
        (item for item in incidents if item.attempt == attempt.number and item.action is Action.RESTART_IN_PLACE),
        key=lambda item: item.detected_at,
    )
    found = [_first(attempt), *(_later(number, item) for number, item in enumerate(restarts, 2))]
    if not restarts:
        found[0]["last_step"] = attempt.last_step
        return found
    for place, steps in enumerate(_cut(sorted(rows, key=lambda row: (row.at, row.step)), restarts)):
        newest = place == len(restarts)
        if steps:
            found[place] |= {"first_step": steps[0].step, "last_step": steps[-1].step}
        elif not newest and (not place or _trained(restarts[place - 1], until=restarts[place].detected_at)):
            found[place]["last_step"] = restarts[place].step
        if newest and attempt.last_step is not None and (steps or (not rows and restarts[-1].resumed_at is not None)):
            found[place]["last_step"] = attempt.last_step  # a launcher's own record may know of later ones
    return found


def _trained(restart: IncidentRecord, until: float) -> bool:
    """Whether ranks that began with this restart made a step before `until`: else the last step is not theirs."""
    return restart.resumed_at is not None and restart.resumed_at <= until


def lines(attempts: Sequence[Json]) -> list[str]:
    """A line for each incarnation of attempts whose ranks began again, from rows of `primus status --json`."""
    return [_line(row["number"], item) for row in attempts if len(row["incarnations"]) > 1
            for item in row["incarnations"]]  # fmt: skip


def span(item: Json) -> str:
    """Its steps in words."""
    first, last = item["first_step"], item["last_step"]
    if first is None and last is None:
        return "no step yet"
    return f"steps {'?' if first is None else first} to {'?' if last is None else last}"


def began_from(item: Json) -> str:
    """From where it began, in words."""
    return "from scratch" if item["from_step"] is None else f"from step {item['from_step']}"


def _line(attempt: int, item: Json) -> str:
    text = f"attempt {attempt}, incarnation {item['number']}: {span(item)}, {began_from(item)}"
    return f"{text}, since {item['began_at']}: {item['why']}"


def _first(attempt: AttemptRecord) -> Json:
    began = next(at for at in (attempt.running_at, attempt.submitted_at, attempt.planned_at) if at is not None)
    return _item(1, attempt.resumed_from_step, began, attempt.why) | {"first_step": attempt.first_step}


def _later(number: int, restart: IncidentRecord) -> Json:
    from_step = _FROM.search(restart.why)
    why = f"{restart.why}: {restart.seen}" if restart.seen else restart.why
    return _item(number, int(from_step[1]) if from_step else None, restart.detected_at, why)


def _item(number: int, from_step: int | None, began_at: float, why: str) -> Json:
    return {
        "number": number,
        "from_step": from_step,
        "first_step": None,
        "last_step": None,
        "began_at": timestamp(began_at),
        "why": why,
    }


def _cut(rows: Sequence[StepRow], restarts: Sequence[IncidentRecord]) -> list[Sequence[StepRow]]:
    """The steps of each incarnation: where their numbers fall, else where the restarts were decided."""
    times = [item.detected_at for item in restarts]
    starts = [index for index, again in enumerate(begins_again(rows, times)) if again]
    if len(starts) != len(times):
        starts = [bisect_left(rows, at, key=lambda row: row.at) for at in times]
    edges = [0, *starts, len(rows)]
    return [rows[begin:end] for begin, end in pairwise(edges)]
