"""The coordinator's journal: every event as one JSON line. Read at the start, then appended to."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
from contextlib import contextmanager
from typing import Any, Callable, Dict, Generator, Iterable, List, Optional, Type, cast

from workflows.programs.coordinator.restarts import is_due
from workflows.programs.coordinator.state import (
    Event,
    HangConfirmed,
    HangSuspected,
    LauncherJoined,
    Meeting,
    MeetingPublished,
    Member,
    PodCleared,
    ReportsReceived,
    RightChanged,
    SlowVote,
    State,
    StopRequested,
    TimePassed,
    WindowClosed,
)
from workflows.programs.runtime.files import Appender
from workflows.wire import REPORTS, CheckpointSeen, StepSeen, from_dict, line

_LINE_START = len("@primus ")
MOST = 1e15
"""Upper limit of steps, ranks and times in seconds; anything larger is garbage."""
_SECONDS = ("seconds", "compute_seconds", "tokens_per_second")

_NAMES: Dict[Type[Any], str] = {
    LauncherJoined: "Joined",
    MeetingPublished: "Published",
    ReportsReceived: "Reported",
    PodCleared: "Cleared",
    TimePassed: "Ticked",
    StopRequested: "StopAsked",
    HangSuspected: "Suspected",
    HangConfirmed: "HangFound",
    WindowClosed: "Voted",
    RightChanged: "RightSaid",
}
"""Names of events in the file, which coordinators of other versions read as well."""

JOURNAL_SECONDS = 1.0
"""How long launchers wait for an order while the storage writes it."""
SYNC_SECONDS = 0.02
"""How long they also wait for the sync; a disk takes a fraction of a millisecond, a busy one a second. If the node is
lost before the sync, launchers know more orders than the next coordinator, which then does no restart any more."""


def to_line(event: Event) -> str:
    """The event as one line."""
    return json.dumps({"event": _NAMES[type(event)], **_to_json(event)}, separators=(",", ":"))


def from_line(text: str) -> Optional[Event]:
    """The event in a line; None for an unknown event and for a broken line, as a killed writer leaves it."""
    try:
        data: Dict[str, Any] = json.loads(text)
        return _READERS[data.pop("event")](data)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def read_events(lines: Iterable[str]) -> List[Event]:
    """Every readable event, in order."""
    return [event for event in (from_line(text) for text in lines) if event is not None]


def parse_reports(items: Any) -> List[Any]:
    """The reports in the JSON list of a batch; unknown and broken ones are left out (a newer launcher may say more)."""
    found: List[Any] = []
    for item in cast("List[Any]", items) if isinstance(items, list) else []:
        try:
            data: Dict[str, Any] = dict(item)
            report = _valid_report(from_dict(REPORTS[data.pop("report")], data))
        except (ValueError, KeyError, TypeError):
            continue
        if report is not None:
            found.append(report)
    return found


def _valid_report(report: Any) -> Optional[Any]:
    """The report without impossible figures; None where its time, its step or its rank is impossible."""
    if not (0 <= getattr(report, "at", 0.0) < MOST and 0 <= getattr(report, "rank", 0) < MOST):
        return None
    if not 0 <= (getattr(report, "step", 0) or 0) < MOST:
        return None
    if isinstance(report, StepSeen):
        wrong = [name for name in _SECONDS if not 0 <= (getattr(report, name) or 0.0) < MOST]
        return dataclasses.replace(report, **{name: None for name in wrong}) if wrong else report
    if isinstance(report, CheckpointSeen) and not 0 <= (report.written_at or 0.0) < MOST:
        return dataclasses.replace(report, written_at=None)
    return report


def for_journal(state: State, event: Event) -> Optional[Event]:
    """The part of an event that the journal keeps: no heartbeats, and no steps that a lower rank reports as well."""
    if isinstance(event, TimePassed):
        return event if is_due(state, event.at) else None
    if not isinstance(event, ReportsReceived):
        return event
    rank = state.progress.reporting_rank
    kept = tuple(one for one in event.reports if not isinstance(one, StepSeen) or rank is None or one.rank <= rank)
    if not kept and not event.state and not event.pids:
        return None
    return dataclasses.replace(event, reports=kept)


def _to_json(event: Event) -> Dict[str, Any]:
    if isinstance(event, ReportsReceived):
        return {
            "at": event.at,
            "key": list(event.key),
            "sequence": event.sequence,
            "reports": [json.loads(line(report)[_LINE_START:]) for report in event.reports],
            "state": event.state,
            "why": event.why,
            "pids": {**event.pids},
            "incarnation": event.incarnation,
            **({"posted": True} if event.posted else {}),
        }
    return dataclasses.asdict(event)


def _joined(data: Dict[str, Any]) -> Event:
    return LauncherJoined(float(data["at"]), Member(**data["member"]))


def _published(data: Dict[str, Any]) -> Event:
    index = int(data.get("pod_index", 0))
    return MeetingPublished(float(data["at"]), str(data["role"]), Meeting(**data["meeting"]), index)


def _reported(data: Dict[str, Any]) -> Event:
    role, index = data["key"]
    return ReportsReceived(
        at=float(data["at"]),
        key=(str(role), int(index)),
        sequence=int(data["sequence"]),
        reports=tuple(parse_reports(data["reports"])),
        state=str(data["state"]),
        why=str(data["why"]),
        pids=dict(data["pids"]),
        incarnation=int(data.get("incarnation", 1)),
        posted=data.get("posted") is True,
    )


def _cleared(data: Dict[str, Any]) -> Event:
    role, index = data["key"]
    return PodCleared(float(data["at"]), (str(role), int(index)), int(data["incarnation"]))


def _ticked(data: Dict[str, Any]) -> Event:
    return TimePassed(float(data["at"]), _gang(data))


def _stop_asked(data: Dict[str, Any]) -> Event:
    return StopRequested(float(data["at"]), str(data["why"]), bool(data["save"]))


def _suspected(data: Dict[str, Any]) -> Event:
    return HangSuspected(float(data["at"]), int(data["incarnation"]), str(data["why"]), _gang(data))


def _right_said(data: Dict[str, Any]) -> Event:
    return RightChanged(float(data["at"]), str(data["withheld"]))


def _hang_found(data: Dict[str, Any]) -> Event:
    rank = data.get("rank")
    return HangConfirmed(
        at=float(data["at"]),
        incarnation=int(data["incarnation"]),
        why=str(data["why"]),
        rank=None if rank is None else int(rank),
        node=str(data.get("node") or ""),
        stacks=str(data.get("stacks") or ""),
        gang=_gang(data),
    )


def _voted(data: Dict[str, Any]) -> Event:
    slow = [SlowVote(int(rank), float(seconds), float(ratio)) for rank, seconds, ratio in data["slow"]]
    sane = tuple(one for one in slow if 0 <= one.rank < MOST and 0 < one.seconds < MOST and 1 <= one.ratio < MOST)
    return WindowClosed(float(data["at"]), int(data["incarnation"]), int(data["step"]), sane, _gang(data))


def _gang(data: Dict[str, Any]) -> int:
    return int(data.get("gang", 0))


_READERS = {
    "Joined": _joined,
    "Published": _published,
    "Reported": _reported,
    "Cleared": _cleared,
    "Ticked": _ticked,
    "StopAsked": _stop_asked,
    "Suspected": _suspected,
    "HangFound": _hang_found,
    "Voted": _voted,
    "RightSaid": _right_said,
}


@contextmanager
def garbage_collection_off() -> Generator[None, None, None]:
    """Replaying a journal creates a hundred thousand objects, nearly all of which stay: searching them is a waste."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Journal:
    """The journal at `path`. A thread of its own writes it, since a storage may hang."""

    def __init__(self, path: str, sync: Callable[[int], None] = os.fdatasync) -> None:
        self._path = path
        self._appender = Appender(sync=sync)
        self._start = b""
        """Newline before the first event, where the file ends in a line that was cut off."""
        self._problem = ""

    def read(self) -> List[Event]:
        """Every event of earlier coordinators, in order; none where the file is missing or cannot be read."""
        try:
            with open(self._path, "rb") as raw:
                size = raw.seek(0, os.SEEK_END)
                raw.seek(max(0, size - 1))
                self._start = b"\n" if raw.read() not in (b"", b"\n") else b""
            with open(self._path, encoding="utf-8", errors="replace") as file:
                return read_events(file)
        except FileNotFoundError:
            return []
        except OSError as error:
            print(f"coordinator: {self._path} cannot be read: {error.strerror}; starting without memory", flush=True)
            return []

    def write(self, event: Event, order: bool, surely: bool) -> None:
        """Append an event.

        With `order` an order follows from it, so the file is synced: the event must outlive the node. With `surely`
        that is waited for, at most `JOURNAL_SECONDS` and `SYNC_SECONDS`.
        """
        data, self._start = self._start + (to_line(event) + "\n").encode(), b""
        self._appender.append(self._path, data, sync=order)
        if surely:
            written = self._appender.flush(JOURNAL_SECONDS, synced=False)
            late = f"{self._path}: not {{}} in {JOURNAL_SECONDS if not written else SYNC_SECONDS:g} s"
            if not written:
                self._print_problem(late.format("written"))
            else:
                done = self._appender.flush(SYNC_SECONDS)
                self._print_problem(self._appender.last_error if done else late.format("synced"))

    def _print_problem(self, trouble: str) -> None:
        """Print the storage's problem once, when it changes."""
        if trouble and trouble != self._problem:
            print(f"coordinator: {trouble}; going on, an order may be forgotten when the node is lost", flush=True)
        self._problem = trouble

    def close(self) -> None:
        """Flush, for at most 2 s."""
        self._appender.close(2.0)
