"""Reads network tools: iperf3 (JSON of `-J`, and text), ping (iputils and busybox) and ethtool.

Of iperf3: the rate of the whole test, what was sent again, what was lost. Of ping: packets lost, and the times of those
that came back. Of ethtool: the settings of an interface, and with `-S` those of its counters that tell of trouble.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping

from workflows.programs.parsers.text import (
    ParsedOutput,
    ToolReadings,
    amount,
    as_mapping,
    as_string,
    close_readings,
    document,
    looks_like_json,
    measure,
    no_document,
    number,
    scale,
    whole_lines,
)

TOOL = "iperf3"
_TOTAL = re.compile(
    r"\[ {0,4}(SUM|[0-9]{1,4})\](?:\[[TR]X-[CS]\])?\s{1,12}[0-9.]{1,12}-[0-9.]{1,12}\s{1,8}sec\s{1,12}"
    r"\S{1,20} \w{5,10}\s{1,12}(\S{1,20} [KMGT]?bits/sec)(?:\s{1,20}(\S{1,80}))?.{0,80}?\s(sender|receiver)"
)
SUMS: Mapping[str, str] = {
    "sum_sent": "sent",
    "sum_received": "received",
    "sum_sent_bidir_reverse": "sent back",
    "sum_received_bidir_reverse": "received back",
}
"""Parts of the end of the JSON -> subject."""


def parse_iperf3(text: str) -> ParsedOutput:
    """Readings `network_bandwidth` (Gb/s) by `sent` and `received`, `network_retransmits`, of UDP `packet_loss` (%)."""
    if looks_like_json(text):
        return _parse_json(text)
    lines, cut = whole_lines(text)
    results = ToolReadings()
    ended = False
    for line in lines:
        stripped = line.strip()
        total = _TOTAL.fullmatch(stripped)
        if total:
            _total(results, total.group(1), total.group(2), total.group(3) or "", total.group(4), line)
        elif stripped.startswith("iperf3: error"):
            results.note(f"it ended in an error: {stripped[13:133].strip(' -')}")
        elif stripped.startswith("iperf 3."):
            results.version = stripped[6:46]
        ended = ended or stripped == "iperf Done."
    return close_readings(results, TOOL, text, cut, "" if ended else "the line `iperf Done.` is missing")


def _total(results: ToolReadings, stream: str, rate: str, again: str, side: str, line: str) -> None:
    way = "sent" if side == "sender" else "received"
    subject = way if stream == "SUM" else f"stream {stream} {way}"
    measured = measure(rate)
    if measured is not None:
        results.figure("network_bandwidth", measured[0], measured[1], subject, line)
    if side == "sender":
        results.figure("network_retransmits", amount(again), "count", subject, line)


def _parse_json(text: str) -> ParsedOutput:
    data = as_mapping(document(text))
    if not {"start", "end", "error", "intervals"} & set(data):
        return no_document(TOOL, text)
    results = ToolReadings()
    results.version = as_string(as_mapping(data.get("start")).get("version")).replace("iperf ", "")[:40]
    if as_string(data.get("error")):
        results.note(f"it ended in an error: {as_string(data['error'])[:120]}")
    end = as_mapping(data.get("end"))
    for name, subject in SUMS.items():
        _sum(results, as_mapping(end.get(name)), subject, name)
    datagrams = as_mapping(end.get("sum"))
    results.figure("packet_loss", _positive(datagrams.get("lost_percent")), "%", "", f"sum: {_line(datagrams)}")
    if not results.readings:
        results.note("the end holds no sums")
    return results.to_parsed()


def _sum(results: ToolReadings, part: Dict[str, Any], subject: str, name: str) -> None:
    rate = _positive(part.get("bits_per_second"))
    line = f"{name}: {_line(part)}"
    results.figure("network_bandwidth", None if rate is None else scale(rate, 1e-9), "Gb/s", subject, line)
    results.figure("network_retransmits", _positive(part.get("retransmits")), "count", subject, line)


def _positive(value: Any) -> Any:
    figure = number(value)
    return figure if figure is not None and figure >= 0 else None


def _line(part: Dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in list(part.items())[:12] if not isinstance(value, (dict, list)))


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


def parse_ping(text: str) -> ParsedOutput:
    """Readings by target: `packets_sent`, `packets_received`, `packet_loss` (%), `round_trip` (ms) and its maximum."""
    lines, cut = whole_lines(text)
    results = ToolReadings()
    target = ""
    ended = False
    for line in lines:
        stripped = line.strip()
        if _FORBIDDEN.fullmatch(stripped):
            results.note(WHAT_TO_DO)
        to, counts, times = _TARGET.fullmatch(stripped), _COUNTS.fullmatch(stripped), _TIMES.fullmatch(stripped)
        if to:
            target, ended = to.group(1), False
        elif counts:
            ended = True
            results.figure("packets_sent", amount(counts.group(1)), "count", target, line)
            results.figure("packets_received", amount(counts.group(2)), "count", target, line)
            results.figure("packet_loss", amount(counts.group(3)), "%", target, line)
        elif times:
            results.figure("round_trip", amount(times.group(2)), "ms", target, line)
            results.figure("round_trip_max", amount(times.group(3)), "ms", target, line)
    if target and not results.readings and WHAT_TO_DO not in results.notes:
        results.note("the statistics are missing: the text broke off")
    return close_readings(results, "ping", text, cut, "" if ended else "the statistics are missing")


TELLING = re.compile(
    r"discard|drop|err|crc|symbol|timeout|down|fault|fec|missed|no_buf|out_of_buffer|retrans|pause|cnp|ecn|reset|fail"
)
"""Words in the name of a counter that is worth keeping; packets and bytes are not."""
QUEUE = re.compile(r"\[[0-9]{1,4}\].{0,80}|(?:rx|tx|ch|queue|q|xdp|xsk)_?(?:rx|tx)?_?(?:queue_?)?[0-9]{1,4}_\w{1,80}")
"""Counters of one queue: the interface's own sums tell the same."""
_COUNTER = re.compile(r"([A-Za-z\[][\w\[\]. -]{1,80}?): ([0-9]{1,20})")
_SETTINGS = re.compile(r"Settings for ([\w.@:-]{1,40}):")


def parse_ethtool(text: str) -> ParsedOutput:
    """Readings by interface: `nic_link_rate` (Gb/s), `nic_state` (1: link), duplex; or `nic_<counter>` of `-S`.

    `-S` does not print the interface's name, so its readings have no subject.
    """
    lines, cut = whole_lines(text)
    results = ToolReadings()
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
            _counter(results, stripped, line)
        elif interface:
            _setting(results, interface, stripped, line)
        ended = ended or stripped.startswith("Link detected:")
    return close_readings(results, "ethtool", text, cut, "" if ended else "the line `Link detected` is missing")


def _counter(results: ToolReadings, stripped: str, line: str) -> None:
    hit = _COUNTER.fullmatch(stripped)
    if hit and TELLING.search(hit.group(1).lower()) and QUEUE.fullmatch(hit.group(1)) is None:
        name = re.sub(r"\W+", "_", hit.group(1).lower()).strip("_")
        results.figure(f"nic_{name}", amount(hit.group(2)), "count", "", line)


def _setting(results: ToolReadings, interface: str, stripped: str, line: str) -> None:
    name, _, value = stripped.partition(": ")
    if name == "Speed":
        measured = measure(value)
        if measured is not None:
            results.figure("nic_link_rate", measured[0], measured[1], interface, line)
        else:
            results.note(f"{interface}: its speed reads {value[:40]}")
    elif name == "Link detected":
        results.flag("nic_state", value == "yes", value, interface, line)
    elif name == "Duplex" and not value.startswith("Unknown"):
        results.word("nic_duplex", value, interface, line)
