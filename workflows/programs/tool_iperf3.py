"""Reads iperf3, as JSON (`-J`) and as text: the rate of the whole test, what was sent again, what was lost."""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping

from workflows.programs.readings import Parsed
from workflows.programs.tool_json import document, looks_like_json, mapping, no_document, number, string
from workflows.programs.tool_text import Told, amount, close, measure, scaled, whole_lines

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


def parse(text: str) -> Parsed:
    """Readings `network_bandwidth` (Gb/s) by `sent` and `received`, `network_retransmits`, of UDP `packet_loss` (%)."""
    if looks_like_json(text):
        return _parse_json(text)
    lines, cut = whole_lines(text)
    told = Told()
    ended = False
    for line in lines:
        stripped = line.strip()
        total = _TOTAL.fullmatch(stripped)
        if total:
            _total(told, total.group(1), total.group(2), total.group(3) or "", total.group(4), line)
        elif stripped.startswith("iperf3: error"):
            told.note(f"it ended in an error: {stripped[13:133].strip(' -')}")
        elif stripped.startswith("iperf 3."):
            told.version = stripped[6:46]
        ended = ended or stripped == "iperf Done."
    return close(told, TOOL, text, cut, "" if ended else "the line `iperf Done.` is missing")


def _total(told: Told, stream: str, rate: str, again: str, side: str, line: str) -> None:
    way = "sent" if side == "sender" else "received"
    subject = way if stream == "SUM" else f"stream {stream} {way}"
    measured = measure(rate)
    if measured is not None:
        told.figure("network_bandwidth", measured[0], measured[1], subject, line)
    if side == "sender":
        told.figure("network_retransmits", amount(again), "count", subject, line)


def _parse_json(text: str) -> Parsed:
    data = mapping(document(text))
    if not {"start", "end", "error", "intervals"} & set(data):
        return no_document(TOOL, text)
    told = Told()
    told.version = string(mapping(data.get("start")).get("version")).replace("iperf ", "")[:40]
    if string(data.get("error")):
        told.note(f"it ended in an error: {string(data['error'])[:120]}")
    end = mapping(data.get("end"))
    for name, subject in SUMS.items():
        _sum(told, mapping(end.get(name)), subject, name)
    datagrams = mapping(end.get("sum"))
    told.figure("packet_loss", _positive(datagrams.get("lost_percent")), "%", "", f"sum: {_line(datagrams)}")
    if not told.readings:
        told.note("the end holds no sums")
    return told.parsed()


def _sum(told: Told, part: Dict[str, Any], subject: str, name: str) -> None:
    rate = _positive(part.get("bits_per_second"))
    line = f"{name}: {_line(part)}"
    told.figure("network_bandwidth", None if rate is None else scaled(rate, 1e-9), "Gb/s", subject, line)
    told.figure("network_retransmits", _positive(part.get("retransmits")), "count", subject, line)


def _positive(value: Any) -> Any:
    figure = number(value)
    return figure if figure is not None and figure >= 0 else None


def _line(part: Dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in list(part.items())[:12] if not isinstance(value, (dict, list)))
