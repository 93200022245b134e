"""Reads ethtool: the settings of an interface, and with `-S` those of its counters that tell of trouble."""

from __future__ import annotations

import re

from workflows.programs.readings import Parsed
from workflows.programs.tool_text import Told, amount, close, measure, whole_lines

TELLING = re.compile(
    r"discard|drop|err|crc|symbol|timeout|down|fault|fec|missed|no_buf|out_of_buffer|retrans|pause|cnp|ecn|reset|fail"
)
"""Words in the name of a counter that is worth keeping; packets and bytes are not."""
QUEUE = re.compile(r"\[[0-9]{1,4}\].{0,80}|(?:rx|tx|ch|queue|q|xdp|xsk)_?(?:rx|tx)?_?(?:queue_?)?[0-9]{1,4}_\w{1,80}")
"""Counters of one queue: the interface's own sums tell the same."""
_COUNTER = re.compile(r"([A-Za-z\[][\w\[\]. -]{1,80}?): ([0-9]{1,20})")
_SETTINGS = re.compile(r"Settings for ([\w.@:-]{1,40}):")


def parse(text: str) -> Parsed:
    """Readings by interface: `nic_link_rate` (Gb/s), `nic_state` (1: link), duplex; or `nic_<counter>` of `-S`.

    `-S` does not print the interface's name, so its readings have no subject.
    """
    lines, cut = whole_lines(text)
    told = Told()
    interface = ""
    counters = False
    ended = True
    for line in lines:
        stripped = line.strip()
        settings = _SETTINGS.fullmatch(stripped)
        if settings:
            interface, counters, ended = settings.group(1), False, False
        elif stripped == "NIC statistics:":
            interface, counters = "", True
        elif counters:
            _counter(told, stripped, line)
        elif interface:
            _setting(told, interface, stripped, line)
        ended = ended or stripped.startswith("Link detected:")
    return close(told, "ethtool", text, cut, "" if ended else "the line `Link detected` is missing")


def _counter(told: Told, stripped: str, line: str) -> None:
    hit = _COUNTER.fullmatch(stripped)
    if hit and TELLING.search(hit.group(1).lower()) and QUEUE.fullmatch(hit.group(1)) is None:
        name = re.sub(r"\W+", "_", hit.group(1).lower()).strip("_")
        told.figure(f"nic_{name}", amount(hit.group(2)), "count", "", line)


def _setting(told: Told, interface: str, stripped: str, line: str) -> None:
    name, _, value = stripped.partition(": ")
    if name == "Speed":
        measured = measure(value)
        if measured is not None:
            told.figure("nic_link_rate", measured[0], measured[1], interface, line)
        else:
            told.note(f"{interface}: its speed reads {value[:40]}")
    elif name == "Link detected":
        told.flag("nic_state", value == "yes", value, interface, line)
    elif name == "Duplex" and not value.startswith("Unknown"):
        told.word("nic_duplex", value, interface, line)
