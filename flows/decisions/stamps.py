"""Time stamps of log lines: the formats that loggers, kernels and launchers print, as Unix seconds.

Only differences matter here. A stamp without a zone is read as UTC, one without a year as of the clock's year.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

LOOK_CHARACTERS = 120
"""A stamp further to the right belongs to the message."""
_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
MONTHS = {name: number for number, name in enumerate(_NAMES, 1)}
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
_ISO = re.compile(rf"(?P<year>\d{{4}})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T _]{_CLOCK} ?(?P<zone>Z|[+-]\d\d:?\d\d)?")
_AMERICAN = re.compile(rf"\b(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>\d{{4}}) {_CLOCK}")
_GLOG = re.compile(rf"\b[IWEF](?P<month>\d\d)(?P<day>\d\d) {_CLOCK}")
_SYSLOG = re.compile(rf"\b(?P<name>{'|'.join(MONTHS)}) (?P<day>[ \d]\d) {_CLOCK}(?: (?P<year>\d{{4}}))?")


@dataclass
class Clock:
    """The year that stamps without one belong to: that of the last stamp that had one."""

    year: int = 2000


def stamp(text: str, clock: Clock) -> float | None:
    """When the line says it was printed, Unix seconds; None where it does not say.

    Args:
        text: the line as printed.
        clock: completes stamps without a year, and is set by those that have one.
    """
    head = text[:LOOK_CHARACTERS]
    for pattern, read in _FORMATS:
        hit = pattern.search(head)
        if hit is not None:
            try:
                return read(hit, clock)
            except ValueError:
                continue
    return None


def _whole(hit: re.Match[str], clock: Clock) -> float:
    clock.year = int(hit["year"])
    return _seconds(hit, clock.year, int(hit["month"]))


def _iso(hit: re.Match[str], clock: Clock) -> float:
    clock.year = int(hit["year"])
    zone = hit["zone"]
    shift = UTC if zone in (None, "Z") else timezone(_offset(zone))
    return _seconds(hit, clock.year, int(hit["month"]), shift)


def _offset(zone: str) -> timedelta:
    total = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
    return -total if zone[0] == "-" else total


def _glog(hit: re.Match[str], clock: Clock) -> float:
    return _seconds(hit, clock.year, int(hit["month"]))


def _syslog(hit: re.Match[str], clock: Clock) -> float:
    if hit["year"]:
        clock.year = int(hit["year"])
    return _seconds(hit, clock.year, MONTHS[hit["name"]])


def _seconds(hit: re.Match[str], year: int, month: int, zone: timezone = UTC) -> float:
    fraction = float(f"0.{hit['fraction']}") if hit["fraction"] else 0.0
    day, hour, minute, second = (int(hit[word]) for word in ("day", "hour", "minute", "second"))
    return datetime(year, month, day, hour, minute, min(second, 59), tzinfo=zone).timestamp() + fraction


_FORMATS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], Clock], float]], ...] = (
    (_ISO, _iso),
    (_AMERICAN, _whole),
    (_GLOG, _glog),
    (_SYSLOG, _syslog),
)
