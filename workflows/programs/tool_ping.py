"""Reads ping (iputils and busybox): packets lost, and the times of those that came back."""

from __future__ import annotations

import re

from workflows.programs.readings import Parsed
from workflows.programs.tool_text import Told, amount, close, whole_lines

_TARGET = re.compile(r"PING (\S{1,120}?) ?\((\S{1,60})\).{0,120}")
_COUNTS = re.compile(
    r"([0-9]{1,12}) packets transmitted, ([0-9]{1,12}) (?:packets )?received,(?: \+[0-9]{1,9} \w{1,20},)* "
    r"([0-9.]{1,12})% packet loss.{0,60}"
)
_TIMES = re.compile(
    r"(?:rtt|round-trip) min/avg/max(?:/mdev|/stddev)? = ([0-9.]{1,16})/([0-9.]{1,16})/([0-9.]{1,16})\S{0,20} ms.{0,60}"
)


_FORBIDDEN = re.compile(
    r"ping6?: (?:.{0,40}(?:socket|socktype).{0,40}(?:not permitted|denied).{0,60}|permission denied.{0,60}"
    r"|.{0,20}missing cap_net_raw.{0,60}|lacking privilege for .{0,60})",
    re.IGNORECASE,
)
"""What iputils, BusyBox and inetutils say where they may open no socket. `sendmsg: Operation not permitted` is another
matter: a firewall of the node drops what is sent."""
WHAT_TO_DO = (
    "ping may not open a socket here: let the pod carry the sysctl net.ipv4.ping_group_range = 0 2147483647 (enough "
    "for the ping of iputils) or the capability NET_RAW; on a node set that sysctl"
)


def parse(text: str) -> Parsed:
    """Readings by target: `packets_sent`, `packets_received`, `packet_loss` (%), `round_trip` (ms) and its maximum."""
    lines, cut = whole_lines(text)
    told = Told()
    target = ""
    ended = False
    for line in lines:
        stripped = line.strip()
        if _FORBIDDEN.fullmatch(stripped):
            told.note(WHAT_TO_DO)
        to, counts, times = _TARGET.fullmatch(stripped), _COUNTS.fullmatch(stripped), _TIMES.fullmatch(stripped)
        if to:
            target, ended = to.group(1), False
        elif counts:
            ended = True
            told.figure("packets_sent", amount(counts.group(1)), "count", target, line)
            told.figure("packets_received", amount(counts.group(2)), "count", target, line)
            told.figure("packet_loss", amount(counts.group(3)), "%", target, line)
        elif times:
            told.figure("round_trip", amount(times.group(2)), "ms", target, line)
            told.figure("round_trip_max", amount(times.group(3)), "ms", target, line)
    if target and not told.readings and WHAT_TO_DO not in told.notes:
        told.note("the statistics are missing: the text broke off")
    return close(told, "ping", text, cut, "" if ended else "the statistics are missing")
