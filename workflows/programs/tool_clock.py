"""Reads how well a node keeps time: `chronyc tracking` and `timedatectl` (with `show` and `timesync-status`)."""

from __future__ import annotations

import re
from typing import Mapping

from workflows.programs.readings import Parsed
from workflows.programs.tool_text import Told, amount, close, figure, scaled, whole_lines

_OFFSET = re.compile(r"([0-9.]{1,24}) seconds (fast|slow) of NTP time")
_SECONDS = re.compile(r"([+-]?[0-9.]{1,24}) seconds")
_SPAN = re.compile(r"([+-]?[0-9.]{1,20})(us|ms|s)")
SECONDS: Mapping[str, str] = {
    "Last offset": "clock_last_offset",
    "RMS offset": "clock_rms_offset",
    "Root delay": "clock_root_delay",
    "Root dispersion": "clock_root_dispersion",
}
SYNCHRONIZED = ("NTP synchronized", "System clock synchronized", "NTPSynchronized")
SERVICE = ("NTP service", "NTP enabled", "Network time on", "systemd-timesyncd.service active", "NTP")
UNITS: Mapping[str, float] = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def parse_chrony(text: str) -> Parsed:
    """Readings in seconds: `clock_skew` (above zero: this clock is fast), offsets; `clock_synchronized` (1: yes)."""
    lines, cut = whole_lines(text)
    told = Told()
    ended = False
    for line in lines:
        name, colon, value = (part.strip() for part in line.partition(" : "))
        if not colon:
            continue
        offset, seconds = _OFFSET.fullmatch(value), _SECONDS.fullmatch(value)
        if name == "System time" and offset:
            skew = amount(offset.group(1))
            sign = 1.0 if offset.group(2) == "fast" else -1.0
            told.figure("clock_skew", None if skew is None else skew * sign + 0.0, "s", "", line)
        elif name in SECONDS and seconds:
            told.figure(SECONDS[name], figure(seconds.group(1)), "s", "", line)
        elif name == "Stratum":
            told.figure("clock_stratum", amount(value), "count", "", line)
        elif name == "Leap status":
            ended = True
            told.flag("clock_synchronized", value in ("Normal", "Insert second", "Delete second"), value, "", line)
    return close(told, "chronyc tracking", text, cut, "" if ended else "the leap status is missing")


def parse_timedatectl(text: str) -> Parsed:
    """Readings `clock_synchronized` and `clock_service` (1: yes), and the `clock_skew` in seconds where it is told."""
    lines, cut = whole_lines(text)
    told = Told()
    for line in lines:
        name, colon, value = (part.strip() for part in line.partition(":" if ": " in line[:60] else "="))
        if not colon or not value:
            continue
        span = _SPAN.fullmatch(value)
        if name in SYNCHRONIZED:
            told.flag("clock_synchronized", value == "yes", value, "", line)
        elif name in SERVICE:
            told.flag("clock_service", value in ("yes", "active"), value, "", line)
        elif name == "Offset" and span:
            # It tells the server's time against ours, so a positive one means that this clock is slow.
            offset = figure(span.group(1))
            told.figure("clock_skew", None if offset is None else scaled(offset, -UNITS[span.group(2)]), "s", "", line)
    return close(told, "timedatectl", text, cut)
