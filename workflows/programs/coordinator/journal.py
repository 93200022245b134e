"""The coordinator's memory: every event as one JSON line, read back when it is started again.

Where the coordinator's journal lies: read once at its start, appended to from then on.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
from contextlib import contextmanager
from typing import Any, Callable, Dict, Generator, Iterable, List, Optional, cast

from workflows.programs.coordinator.restarts import due
from workflows.programs.coordinator.state import (
    Cleared,
    Event,
    HangFound,
    Joined,
    Meeting,
    Member,
    Published,
    Reported,
    RightSaid,
    Slow,
    State,
    StopAsked,
    Suspected,
    Ticked,
    Voted,
)
from workflows.programs.runtime.files import Appender
from workflows.wire import REPORTS, CheckpointSeen, StepSeen, from_dict, line

_LINE_START = len("@primus ")
MOST = 1e15
"""No step, no rank and no time in seconds is larger."""
_SECONDS = ("seconds", "compute_seconds", "tokens_per_second")


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


def read_events(lines: Iterable[str]) -> List[Event]:
    """Every readable event, in order."""
    return [event for event in (from_line(text) for text in lines) if event is not None]


def reports_of(items: Any) -> List[Any]:
    """The reports in the JSON list of a batch; unknown and broken ones are left out (a newer launcher may say more)."""
    found: List[Any] = []
    for item in cast("List[Any]", items) if isinstance(items, list) else []:
        try:
            data: Dict[str, Any] = dict(item)
            report = _sane(from_dict(REPORTS[data.pop("report")], data))
        except (ValueError, KeyError, TypeError):
            continue
        if report is not None:
            found.append(report)
    return found


def _sane(report: Any) -> Optional[Any]:
    """The report without figures that are none; None where its time, its step or its rank cannot be."""
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


def worth_keeping(state: State, event: Event) -> Optional[Event]:
    """What of an event must be remembered: no heartbeats, no steps that another rank reports as well."""
    if isinstance(event, Ticked):
        return event if due(state, event.at) else None
    if not isinstance(event, Reported):
        return event
    rank = state.progress.reporting_rank
    kept = tuple(one for one in event.reports if not isinstance(one, StepSeen) or rank is None or one.rank <= rank)
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
            **({"posted": True} if event.posted else {}),
        }
    return dataclasses.asdict(event)


def _joined(data: Dict[str, Any]) -> Event:
    return Joined(float(data["at"]), Member(**data["member"]))


def _published(data: Dict[str, Any]) -> Event:
    index = int(data.get("pod_index", 0))
    return Published(float(data["at"]), str(data["role"]), Meeting(**data["meeting"]), index)


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
        posted=data.get("posted") is True,
    )


def _cleared(data: Dict[str, Any]) -> Event:
    role, index = data["key"]
    return Cleared(float(data["at"]), (str(role), int(index)), int(data["incarnation"]))


def _ticked(data: Dict[str, Any]) -> Event:
    return Ticked(float(data["at"]), _gang(data))


def _stop_asked(data: Dict[str, Any]) -> Event:
    return StopAsked(float(data["at"]), str(data["why"]), bool(data["save"]))


def _suspected(data: Dict[str, Any]) -> Event:
    return Suspected(float(data["at"]), int(data["incarnation"]), str(data["why"]), _gang(data))


def _right_said(data: Dict[str, Any]) -> Event:
    return RightSaid(float(data["at"]), str(data["withheld"]))


def _hang_found(data: Dict[str, Any]) -> Event:
    rank = data.get("rank")
    return HangFound(
        at=float(data["at"]),
        incarnation=int(data["incarnation"]),
        why=str(data["why"]),
        rank=None if rank is None else int(rank),
        node=str(data.get("node") or ""),
        stacks=str(data.get("stacks") or ""),
        gang=_gang(data),
    )


def _voted(data: Dict[str, Any]) -> Event:
    slow = [Slow(int(rank), float(seconds), float(ratio)) for rank, seconds, ratio in data["slow"]]
    sane = tuple(one for one in slow if 0 <= one.rank < MOST and 0 < one.seconds < MOST and 1 <= one.ratio < MOST)
    return Voted(float(data["at"]), int(data["incarnation"]), int(data["step"]), sane, _gang(data))


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


JOURNAL_SECONDS = 1.0
"""How long the storage may take to write down an order before launchers hear of it."""
SYNC_SECONDS = 0.02
"""How long they wait for it to be synced as well; a disk takes a fraction of a millisecond, a busy one a second. Where
the node is lost meanwhile, launchers know more orders than the next coordinator, which then uses no right any more."""


@contextmanager
def undisturbed() -> Generator[None, None, None]:
    """Nothing is searched for garbage meanwhile: of a hundred thousand new objects nearly all are kept."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Memory:
    """The journal at `path`. It is written behind the coordinator's back, since a storage may hang."""

    def __init__(self, path: str, sync: Callable[[int], None] = os.fdatasync) -> None:
        self._path = path
        self._appender = Appender(sync=sync)
        self._start = b""
        """What the first line is parted by from one that was cut off."""
        self._trouble = ""

    def read(self) -> List[Event]:
        """Every event of earlier lives, in order; none where there were none or the file cannot be read."""
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
        """Remember an event.

        Args:
            event: what happened.
            order: an order follows from it: it is synced, so that it outlives the node as well.
            surely: all of that is done, or the storage was too slow, when this returns.
        """
        data, self._start = self._start + (to_line(event) + "\n").encode(), b""
        self._appender.append(self._path, data, sync=order)
        if surely:
            written = self._appender.flush(JOURNAL_SECONDS, synced=False)
            late = f"{self._path}: not {{}} in {JOURNAL_SECONDS if not written else SYNC_SECONDS:g} s"
            if not written:
                self._told(late.format("written"))
            else:
                done = self._appender.flush(SYNC_SECONDS)
                self._told(self._appender.last_error if done else late.format("synced"))

    def _told(self, trouble: str) -> None:
        """What the storage does is said when it changes; nobody is kept waiting for it."""
        if trouble and trouble != self._trouble:
            print(f"coordinator: {trouble}; going on, an order may be forgotten when the node is lost", flush=True)
        self._trouble = trouble

    def close(self) -> None:
        """Write what is left."""
        self._appender.close(2.0)
