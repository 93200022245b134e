"""Splits lines of `dmesg` into time and text, in each of its styles; what a line means, rules elsewhere decide."""

from __future__ import annotations

import calendar
import re
from typing import Optional, Tuple

from workflows.programs.readings import EVIDENCE_CHARACTERS, Parsed, Reading
from workflows.programs.tool_text import Told, amount, close, evidence, figure, whole_lines

_BOOT = re.compile(r"(?:<[0-9]{1,4}>)?\[ {0,12}([0-9]{1,12}\.[0-9]{1,9})\](?:\[ *[TC][0-9]{1,9}\])? ?(.{0,4000})")
_CLOCK = re.compile(
    r"\[[A-Z][a-z]{2} ([A-Z][a-z]{2}) {1,2}([0-9]{1,2}) ([0-9]{2}):([0-9]{2}):([0-9]{2}) ([0-9]{4})\] ?(.{0,4000})"
)
_ISO = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})[,.]([0-9]{1,9})([+-])([0-9]{2}):?([0-9]{2}) "
    r"(.{0,4000})"
)
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_Moment = Tuple[float, str, str]
"""Seconds, since what, and the text."""


def parse(text: str) -> Parsed:
    """One reading `kernel_line` a line: its text as the word, seconds as the value, since what as the subject.

    `since boot` for stamps of the kernel (also `--raw`), `unix` for `--time-format=iso`, `local clock` for `-T`: those
    seconds count as if the clock of the node showed UTC. Lines without a stamp are left out: they may be of last year.
    """
    lines, cut = whole_lines(text)
    told = Told()
    unstamped = 0
    for line in lines:
        moment = _boot(line) or _clock(line) or _iso(line)
        if moment is None:
            unstamped += line.strip() != ""
        elif moment[2].strip():
            seconds, since, said = moment
            word = said.strip()[:EVIDENCE_CHARACTERS]
            told.readings.append(Reading("kernel_line", seconds, "s", since, word, "", evidence(line)))
    if unstamped and told.readings:
        told.note(f"{unstamped} lines have no time")
    return close(told, "dmesg", text, cut)


def _boot(line: str) -> Optional[_Moment]:
    hit = _BOOT.fullmatch(line)
    seconds = amount(hit.group(1)) if hit else None
    return (seconds, "since boot", hit.group(2)) if hit and seconds is not None else None


def _clock(line: str) -> Optional[_Moment]:
    hit = _CLOCK.fullmatch(line)
    if hit is None or hit.group(1) not in MONTHS:
        return None
    year, month, day = hit.group(6), str(MONTHS.index(hit.group(1)) + 1), hit.group(2)
    seconds = _unix((year, month, day, *hit.groups()[2:5]))
    return None if seconds is None else (seconds, "local clock", hit.group(7))


def _iso(line: str) -> Optional[_Moment]:
    hit = _ISO.fullmatch(line)
    seconds = _unix(hit.groups()[:6]) if hit else None
    if hit is None or seconds is None:
        return None
    east = (int(hit.group(9)) * 60 + int(hit.group(10))) * 60 * (1 if hit.group(8) == "+" else -1)
    return seconds - east + (figure(f"0.{hit.group(7)}") or 0.0), "unix", hit.group(11)


def _unix(parts: Tuple[str, ...]) -> Optional[float]:
    year, month, day, hour, minute, second = (int(part) for part in parts)
    if not (1970 <= year <= 9999 and 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1]):
        return None
    return float(calendar.timegm((year, month, day, hour, minute, second, 0, 0, 0))) if hour < 24 else None
