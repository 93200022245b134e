"""Incidents of all runs, a line each: what a person reads first at night. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flows.decisions import spans
from flows.decisions.status import incident_row
from workflows.overview import IncidentLine
from workflows.records import IncidentRecord

Json = dict[str, Any]


def document(line: IncidentLine) -> Json:
    """The incident as `primus status` shows it, with its run and whether it is over."""
    state = line.run_state
    return {
        "run": line.incident.run,
        **incident_row(line.incident),
        "run_state": None if state is None else str(state),
        "open": line.is_open,
    }


def row(line: IncidentLine, now: float) -> Json:
    """The incident in one line."""
    incident = line.incident
    known = f"{incident.fault_class} ({incident.confidence:.2f})" if incident.fault_class else "not diagnosed yet"
    return {
        "run": f"{incident.run}/{incident.attempt}",
        "class": known,
        "culprit": culprits(incident),
        "action": "not decided yet" if incident.action is None else str(incident.action),
        "took": took(line, now),
        "why": incident.why or incident.seen or incident.signal,
    }


def culprits(incident: IncidentRecord) -> str:
    """Who is to blame, in a word: the first one, and how many more."""
    named = [node or f"rank {rank}" for node, rank in incident.culprits]
    distinct = list(dict.fromkeys(named))
    if not distinct:
        return "-"
    return distinct[0] if len(distinct) == 1 else f"{distinct[0]} +{len(distinct) - 1}"


def took(line: IncidentLine, now: float) -> str:
    """From the fault to the first step after it: `2.4 s`; `5.0 min so far` while it is open; `-`: no step came.

    Of what was only told: how long it was so; `-`: it was a moment, or is so still.
    """
    if line.incident.over_at is not None:
        return spans.took(line.incident.over_at - line.incident.at)
    if line.incident.resumed_at is not None:
        return spans.took(line.incident.resumed_at - line.incident.at)
    return f"{spans.age(now - line.incident.at)} so far" if line.is_open else "-"


def headline(lines: Sequence[IncidentLine], total: int) -> str:
    """How many there are, and how many of them are not over."""
    count = sum(line.is_open for line in lines)
    shown = f"{total} incident{'s' if total != 1 else ''}"
    more = f", the newest {len(lines)} are shown" if total > len(lines) else ""
    return f"{shown}{more}; {count} not over" if count else f"{shown}{more}; none is open"
