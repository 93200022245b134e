"""Reads `lspci -vv`: speed and width of each PCIe link, fatal errors, access control services."""

from __future__ import annotations

import re

from workflows.programs.readings import Parsed
from workflows.programs.tool_text import Told, amount, close, whole_lines

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
        self.told = Told()
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
            self.told.flag("pcie_fatal_error", status.group(3) == "+", f"FatalErr{status.group(3)}", subject, line)
            self.told.flag(
                "pcie_uncorrected_error", status.group(2) == "+", f"NonFatalErr{status.group(2)}", subject, line
            )
        elif acs and self.device:
            on = "+" in acs.group(1)
            self.told.flag("pcie_acs_enabled", on, "on" if on else "off", self.device, line)

    def _link(self, kind: str, speed: str, width: str, word: str, line: str) -> None:
        most = "_max" if kind == "LnkCap" else ""
        self.links += not most
        subject = self.device or f"link {self.links}"
        self.told.figure(f"pcie_link_speed{most}", amount(speed), "GT/s", subject, line)
        self.told.figure(f"pcie_link_width{most}", amount(width), "count", subject, line)
        if word == "downgraded":
            self.told.word("pcie_link_state", word, subject, line)


def parse(text: str) -> Parsed:
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
    if bus.device and not bus.told.readings:
        bus.told.note("devices without their links: it needs -vv, and root")
    return close(bus.told, "lspci -vv", text, cut)
