"""The coordinator's memory: every event as one JSON line, read back when it is started again."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Dict, Iterable, List, Optional, cast

from workflows.programs.coordination_model import (
    Cleared,
    Event,
    Joined,
    Meeting,
    Member,
    Published,
    Reported,
    State,
    StopAsked,
    Ticked,
)
from workflows.programs.coordination_restart import due
from workflows.reports import REPORTS, StepSeen, from_dict, line

_LINE_START = len("@primus ")


def to_line(event: Event) -> str:
    """The event as one line."""
    return json.dumps({"event": type(event).__name__, **_plain(event)}, separators=(",", ":"))


def from_line(text: str) -> Optional[Event]:
    """The event in a line; None where it is broken (the last line of a writer that was killed) or unknown."""
    try:
        data: Dict[str, Any] = json.loads(text)
        return _READERS[data.pop("event")](data)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def read(lines: Iterable[str]) -> List[Event]:
    """Every readable event, in order."""
    return [event for event in (from_line(text) for text in lines) if event is not None]


def reports_of(items: Any) -> List[Any]:
    """The reports in the JSON list of a batch; unknown and broken ones are left out (a newer launcher may say more)."""
    found: List[Any] = []
    for item in cast("List[Any]", items) if isinstance(items, list) else []:
        try:
            data: Dict[str, Any] = dict(item)
            found.append(from_dict(REPORTS[data.pop("report")], data))
        except (ValueError, KeyError, TypeError):
            continue
    return found


def worth_keeping(state: State, event: Event) -> Optional[Event]:
    """What of an event must be remembered: no heartbeats, no steps that another rank reports as well."""
    if isinstance(event, Ticked):
        return event if due(state, event.at) else None
    if not isinstance(event, Reported):
        return event
    rank = state.progress.reporting_rank
    kept = tuple(
        report for report in event.reports if not isinstance(report, StepSeen) or rank is None or report.rank <= rank
    )
    if not kept and not event.state and not event.pids:
        return None
    return dataclasses.replace(event, reports=kept)


def _plain(event: Event) -> Dict[str, Any]:
    if isinstance(event, Reported):
        return {
            "at": event.at,
            "key": list(event.key),
            "sequence": event.sequence,
            "reports": [json.loads(line(report)[_LINE_START:]) for report in event.reports],
            "state": event.state,
            "why": event.why,
            "pids": {**event.pids},
            "incarnation": event.incarnation,
        }
    return dataclasses.asdict(event)


def _joined(data: Dict[str, Any]) -> Event:
    return Joined(float(data["at"]), Member(**data["member"]))


def _published(data: Dict[str, Any]) -> Event:
    return Published(float(data["at"]), str(data["role"]), Meeting(**data["meeting"]))


def _reported(data: Dict[str, Any]) -> Event:
    role, index = data["key"]
    return Reported(
        at=float(data["at"]),
        key=(str(role), int(index)),
        sequence=int(data["sequence"]),
        reports=tuple(reports_of(data["reports"])),
        state=str(data["state"]),
        why=str(data["why"]),
        pids=dict(data["pids"]),
        incarnation=int(data.get("incarnation", 1)),
    )


def _cleared(data: Dict[str, Any]) -> Event:
    role, index = data["key"]
    return Cleared(float(data["at"]), (str(role), int(index)), int(data["incarnation"]))


def _ticked(data: Dict[str, Any]) -> Event:
    return Ticked(float(data["at"]))


def _stop_asked(data: Dict[str, Any]) -> Event:
    return StopAsked(float(data["at"]), str(data["why"]), bool(data["save"]))


_READERS = {
    "Joined": _joined,
    "Published": _published,
    "Reported": _reported,
    "Cleared": _cleared,
    "Ticked": _ticked,
    "StopAsked": _stop_asked,
}
