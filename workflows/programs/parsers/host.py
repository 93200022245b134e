"""Reads a host's tools: `lspci -vv`, `chronyc tracking`, `timedatectl`, `grep . /sys/…` and lines of `dmesg`.

`lspci`: speed and width of each PCIe link, fatal errors, access control services. `timedatectl` also with `show` and
`timesync-status`. Lines `path:value` of `grep` are one reading a file. Lines of `dmesg` are split into time and text,
in each of its styles; rules elsewhere decide what a line means.
"""

from __future__ import annotations

import calendar
import re
from typing import List, Mapping, Optional, Tuple

from workflows.programs.parsers.text import (
    EVIDENCE_CHARACTERS,
    ParsedOutput,
    Reading,
    ToolReadings,
    amount,
    close_readings,
    evidence,
    figure,
    measure,
    scale,
    whole_lines,
)

_DEVICE = re.compile(r"((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]) .{1,300}")
_LINK = re.compile(
    r"(LnkSta|LnkCap):\s{0,8}(?:Port #[0-9]{1,4}, )?Speed ([0-9.]{1,6})GT/s(?: \((\w{1,20})\))?, "
    r"Width x([0-9]{1,3})(?: \((\w{1,20})\))?.{0,300}"
)
_STATUS = re.compile(r"DevSta:\s{0,8}CorrErr([+-]) (?:NonFatalErr|UncorrErr)([+-]) FatalErr([+-]).{0,200}")
_ACS = re.compile(r"ACSCtl:\s{0,8}(.{1,200})")


class _Bus:
    """Whose lines these are."""

    def __init__(self) -> None:
        self.results = ToolReadings()
        self.device = ""
        self.links = 0
        self.statuses = 0

    def line(self, stripped: str, line: str) -> None:
        """One line below a device, or of a search without devices: then links and states are counted."""
        link, status, acs = _LINK.fullmatch(stripped), _STATUS.fullmatch(stripped), _ACS.fullmatch(stripped)
        if link:
            self._link(link.group(1), link.group(2), link.group(4), link.group(3) or link.group(5) or "", line)
        elif status:
            self.statuses += 1
            subject = self.device or f"device {self.statuses}"
            self.results.flag("pcie_fatal_error", status.group(3) == "+", f"FatalErr{status.group(3)}", subject, line)
            self.results.flag(
                "pcie_uncorrected_error", status.group(2) == "+", f"NonFatalErr{status.group(2)}", subject, line
            )
        elif acs and self.device:
            on = "+" in acs.group(1)
            self.results.flag("pcie_acs_enabled", on, "on" if on else "off", self.device, line)

    def _link(self, kind: str, speed: str, width: str, word: str, line: str) -> None:
        most = "_max" if kind == "LnkCap" else ""
        self.links += not most
        subject = self.device or f"link {self.links}"
        self.results.figure(f"pcie_link_speed{most}", amount(speed), "GT/s", subject, line)
        self.results.figure(f"pcie_link_width{most}", amount(width), "count", subject, line)
        if word == "downgraded":
            self.results.word("pcie_link_state", word, subject, line)


def parse_lspci(text: str) -> ParsedOutput:
    """Readings by `05:00.0`, or `link <n>` where only the lines of links were searched out.

    A link of an idle device may be slower than it can be: what it says of itself is kept as a word, not as a verdict.
    """
    lines, cut = whole_lines(text)
    bus = _Bus()
    for line in lines:
        device = _DEVICE.fullmatch(line)
        if device:
            bus.device = device.group(1)
        else:
            bus.line(line.strip(), line)
    if bus.device and not bus.results.readings:
        bus.results.note("devices without their links: it needs -vv, and root")
    return close_readings(bus.results, "lspci -vv", text, cut)


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


def parse_chrony(text: str) -> ParsedOutput:
    """Readings in seconds: `clock_skew` (above zero: this clock is fast), offsets; `clock_synchronized` (1: yes)."""
    lines, cut = whole_lines(text)
    results = ToolReadings()
    ended = False
    for line in lines:
        name, colon, value = (part.strip() for part in line.partition(" : "))
        if not colon:
            continue
        offset, seconds = _OFFSET.fullmatch(value), _SECONDS.fullmatch(value)
        if name == "System time" and offset:
            skew = amount(offset.group(1))
            sign = 1.0 if offset.group(2) == "fast" else -1.0
            results.figure("clock_skew", None if skew is None else skew * sign + 0.0, "s", "", line)
        elif name in SECONDS and seconds:
            results.figure(SECONDS[name], figure(seconds.group(1)), "s", "", line)
        elif name == "Stratum":
            results.figure("clock_stratum", amount(value), "count", "", line)
        elif name == "Leap status":
            ended = True
            results.flag("clock_synchronized", value in ("Normal", "Insert second", "Delete second"), value, "", line)
    return close_readings(results, "chronyc tracking", text, cut, "" if ended else "the leap status is missing")


def parse_timedatectl(text: str) -> ParsedOutput:
    """Readings `clock_synchronized` and `clock_service` (1: yes), and the `clock_skew` in seconds where it is told."""
    lines, cut = whole_lines(text)
    results = ToolReadings()
    for line in lines:
        name, colon, value = (part.strip() for part in line.partition(":" if ": " in line[:60] else "="))
        if not colon or not value:
            continue
        span = _SPAN.fullmatch(value)
        if name in SYNCHRONIZED:
            results.flag("clock_synchronized", value == "yes", value, "", line)
        elif name in SERVICE:
            results.flag("clock_service", value in ("yes", "active"), value, "", line)
        elif name == "Offset" and span:
            # It tells the server's time against ours, so a positive one means that this clock is slow.
            offset = figure(span.group(1))
            results.figure(
                "clock_skew", None if offset is None else scale(offset, -UNITS[span.group(2)]), "s", "", line
            )
    return close_readings(results, "timedatectl", text, cut)


_LINE = re.compile(r"(/(?:sys|proc|dev)/(?:[^/\s]{1,80}/){0,30}[^/:\s]{1,80}):(.{1,400})")
_ADDRESS = re.compile(r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")


def parse_sysfs(text: str) -> ParsedOutput:
    """Readings named as the file (`link_downed`); the subject is the folder, or the PCI address or NIC above it."""
    lines, cut = whole_lines(text)
    results = ToolReadings()
    for line in lines:
        hit = _LINE.fullmatch(line.strip())
        if hit is None:
            continue
        folders = hit.group(1).split("/")
        name = re.sub(r"\W+", "_", folders[-1].lower()).strip("_")
        value = hit.group(2).strip()
        measured = measure(value.partition(" PCIe")[0])
        subject = _subject(folders[:-1])
        if measured is not None and figure(value.partition(" ")[0]) is not None:
            results.figure(name, measured[0], measured[1], subject, line)
        else:
            results.word(name, value, subject, line)
    return close_readings(results, "grep over /sys", text, cut)


def _subject(folders: List[str]) -> str:
    if "ports" in folders[:-1]:
        at = folders.index("ports")
        return f"{folders[at - 1]}/{folders[at + 1]}"
    address = next((one for one in reversed(folders) if _ADDRESS.fullmatch(one)), "")
    return address or (folders[-1] if folders else "")


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


def parse_kernel_log(text: str) -> ParsedOutput:
    """One reading `kernel_line` a line: its text as the word, seconds as the value, since what as the subject.

    `since boot` for stamps of the kernel (also `--raw`), `unix` for `--time-format=iso`, `local clock` for `-T`: those
    seconds count as if the clock of the node showed UTC. Lines without a stamp are left out: they may be of last year.
    """
    lines, cut = whole_lines(text)
    results = ToolReadings()
    unstamped = 0
    for line in lines:
        moment = _boot(line) or _clock(line) or _iso(line)
        if moment is None:
            unstamped += line.strip() != ""
        elif moment[2].strip():
            seconds, since, said = moment
            word = said.strip()[:EVIDENCE_CHARACTERS]
            results.readings.append(Reading("kernel_line", seconds, "s", since, word, "", evidence(line)))
    if unstamped and results.readings:
        results.note(f"{unstamped} lines have no time")
    return close_readings(results, "dmesg", text, cut)


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
