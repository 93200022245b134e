"""Reads RDMA NICs: ports from `ibstat`, `ibv_devinfo [-v]` and `rdma link` (text and JSON), and perftest's results.

Of perftest: `ib_write_bw`, `ib_write_lat` and their `send` and `read` sisters. Its megabyte is 2**20 bytes, its gigabit
10**9 bits; both become Gb/s. A peak of 0.00 was not measured (it is not with `-D`), so only averages are kept.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Tuple

from workflows.programs.parsers.text import (
    ParsedOutput,
    ToolReadings,
    amount,
    as_list,
    as_mapping,
    as_string,
    close_readings,
    document,
    looks_like_json,
    no_document,
    number,
    scale,
    whole_lines,
)

_CA = re.compile(r"CA '([\w.-]{1,40})'")
_PORT = re.compile(r"[Pp]ort:?\s{0,20}([0-9]{1,3}):?")
_ACTIVE = re.compile(r"([0-9]{1,3})X \([0-9]{1,3}\)")
_SPEED = re.compile(r"([0-9.]{1,8}) Gbps \([0-9]{1,4}\)")
_LINK = re.compile(r"(?:link |[0-9]{1,4}/[0-9]{1,4}: )([\w.-]{1,40}/[0-9]{1,4}):? (.{1,400})")
UP = frozenset(("ACTIVE", "Active", "PORT_ACTIVE (4)", "LinkUp", "LINK_UP", "LINK_UP (5)"))
"""What a port says that carries traffic."""


def parse_ibstat(text: str) -> ParsedOutput:
    """Readings by `mlx5_0/1`: `nic_state` and `nic_physical_state` (1: up), `nic_link_rate` (Gb/s), firmware."""
    lines, cut = whole_lines(text)
    results = ToolReadings()
    device = port = ""
    wanted: Dict[str, float] = {}
    ports: Dict[str, None] = {}
    for line in lines:
        stripped = line.strip()
        adapter, number_of = _CA.fullmatch(stripped), _PORT.fullmatch(stripped)
        name, colon, value = stripped.partition(": ")
        if adapter:
            device = port = adapter.group(1)
        elif number_of and device:
            port = f"{device}/{int(number_of.group(1))}"
        elif name == "Number of ports" and device:
            wanted[device] = amount(value) or 0.0
        elif colon and device:
            _ibstat_field(results, name, value.strip(), port, line)
            if name == "Link layer":
                ports[port] = None
    whole = len(ports) >= sum(wanted.values())
    return close_readings(results, "ibstat", text, cut, "" if whole else "a port's last line is missing")


def _ibstat_field(results: ToolReadings, name: str, value: str, port: str, line: str) -> None:
    if name in ("State", "Physical state"):
        results.flag("nic_state" if name == "State" else "nic_physical_state", value in UP, value, port, line)
    elif name == "Rate":
        results.figure("nic_link_rate", amount(value), "Gb/s", port, line)
    elif name == "Firmware version":
        results.word("nic_firmware", value, port, line)
    elif name == "Link layer":
        results.word("nic_link_layer", value, port, line)


def parse_devinfo(text: str) -> ParsedOutput:
    """Readings as of `ibstat`; the rate only with `-v`, from width and speed; `nic_mtu` in bytes."""
    lines, cut = whole_lines(text)
    results = ToolReadings()
    device = port = ""
    lanes = 0.0
    ended = True
    for line in lines:
        name, _, value = line.strip().partition(":")
        value = value.strip()
        if name == "hca_id":
            device, port, ended = value[:40], value[:40], False
        elif name == "port" and device and amount(value) is not None:
            port = f"{device}/{int(amount(value) or 0)}"
        elif name == "active_width":
            width = _ACTIVE.fullmatch(value)
            lanes = amount(width.group(1)) or 0.0 if width else 0.0
        elif name == "active_speed" and lanes:
            speed = _SPEED.fullmatch(value)
            rate = amount(speed.group(1)) if speed else None
            results.figure("nic_link_rate", None if rate is None else scale(rate, lanes), "Gb/s", port, line)
        elif device:
            _devinfo_field(results, name, value, port, line)
        ended = ended or name == "link_layer"
    return close_readings(results, "ibv_devinfo", text, cut, "" if ended else "the last adapter's ports are missing")


def _devinfo_field(results: ToolReadings, name: str, value: str, port: str, line: str) -> None:
    if name in ("state", "phys_state"):
        results.flag("nic_state" if name == "state" else "nic_physical_state", value in UP, value, port, line)
    elif name == "active_mtu":
        results.figure("nic_mtu", amount(value.partition(" ")[0]), "count", port, line)
    elif name == "fw_ver":
        results.word("nic_firmware", value, port, line)
    elif name == "link_layer":
        results.word("nic_link_layer", value, port, line)


def parse_rdma_link(text: str) -> ParsedOutput:
    """Readings `nic_state` and `nic_physical_state` (1: up) and `nic_netdev` by `mlx5_0/1`."""
    if looks_like_json(text):
        return _rdma_json(text)
    lines, cut = whole_lines(text)
    results = ToolReadings()
    for line in lines:
        link = _LINK.fullmatch(line.strip())
        if link:
            words = link.group(2).split(None, 60)
            fields = dict(zip(words[::2], words[1::2]))  # noqa: B905 - 3.10
            _rdma(results, link.group(1), fields, line)
    return close_readings(results, "rdma link", text, cut)


def _rdma(results: ToolReadings, port: str, fields: Dict[str, str], line: str) -> None:
    for name in ("state", "physical_state"):
        if name in fields:
            results.flag(f"nic_{name}", fields[name] in UP, fields[name], port, line)
    results.word("nic_netdev", fields.get("netdev", ""), port, line)


def _rdma_json(text: str) -> ParsedOutput:
    links = [as_mapping(link) for link in as_list(document(text))]
    links = [link for link in links if "ifname" in link and "state" in link]
    if not links:
        return no_document("rdma link", text)
    results = ToolReadings()
    for link in links:
        port = f"{as_string(link.get('ifname'))[:40]}/{int(number(link.get('port')) or 0)}"
        fields = {name: as_string(value) for name, value in link.items()}
        _rdma(
            results, port, fields, f"{port} " + " ".join(f"{name} {value}" for name, value in fields.items() if value)
        )
    return results.to_parsed()


_HEADER = re.compile(r"#bytes\s.{0,300}")
_UNIT = re.compile(r"BW average\[(\w{2,4})/sec\]")
_DEVICE = re.compile(r"Device\s{0,20}: {0,4}(\S{1,40})")
GBITS: Mapping[str, float] = {"Gb": 1.0, "MB": 8 * 2.0**20 / 1e9, "MiB": 8 * 2.0**20 / 1e9}
"""How much Gb/s one printed unit is."""
LATENCIES = ((4, "rdma_latency_typical_by_size"), (8, "rdma_latency_p999_by_size"))
"""Column -> quantity, in a table with all columns."""


class _Table:
    """One client's or server's table."""

    def __init__(self, results: ToolReadings) -> None:
        self.results = results
        self.header = ""
        self.device = ""
        self.bandwidths: List[Tuple[float, str]] = []
        self.latencies: List[Tuple[float, str]] = []
        self.ended = True

    def row(self, stripped: str, line: str) -> None:
        """One line below the header; anything else is left alone."""
        cells = stripped.split(None, 12)
        size = amount(cells[0]) if cells else None
        if size is None or len(cells) < 4 or any(amount(cell) is None for cell in cells[:4]):
            return
        subject = f"{self.device} {int(size)} bytes".strip()
        unit = _UNIT.search(self.header)
        if unit and unit.group(1) in GBITS and len(cells) >= 5 and "#sl" not in self.header:
            average = scale(amount(cells[3]) or 0.0, GBITS[unit.group(1)])
            self.results.figure("rdma_bandwidth_by_size", average, "Gb/s", subject, line)
            self.bandwidths.append((average, line))
            self.ended = False
        elif "t_typical[usec]" in self.header and len(cells) == 9:
            self._latency(cells, subject, line)
        elif "t_avg[usec]" in self.header and "t_typical" not in self.header:
            self.results.figure("rdma_latency_average_by_size", amount(cells[2]), "us", subject, line)
            self.ended = False

    def _latency(self, cells: List[str], subject: str, line: str) -> None:
        for column, quantity in LATENCIES:
            self.results.figure(quantity, amount(cells[column]), "us", subject, line)
        typical = amount(cells[4])
        if typical is not None:
            self.latencies.append((typical, line))
        self.ended = False

    def close(self) -> None:
        """The line of dashes below the rows: now the best row is known."""
        if self.bandwidths:
            best = max(self.bandwidths)
            self.results.figure("rdma_bandwidth", best[0], "Gb/s", self.device, best[1])
        if self.latencies:
            first = self.latencies[0]
            self.results.figure("rdma_latency", first[0], "us", self.device, first[1])
        self.bandwidths, self.latencies, self.ended = [], [], True


def parse(text: str) -> ParsedOutput:
    """Readings: by message size, and at the table's end `rdma_bandwidth` (Gb/s, the best size) or `rdma_latency`.

    `rdma_latency` is the typical one of the first, smallest message, in microseconds. The subject is the device.
    """
    lines, cut = whole_lines(text)
    results = ToolReadings()
    table = _Table(results)
    for line in lines:
        stripped = line.strip()
        device = _DEVICE.search(line[:200])
        if device:
            table.device = device.group(1)
        elif _HEADER.fullmatch(stripped):
            table.header = stripped
        elif stripped.startswith("-----"):
            table.close()
        elif table.header:
            table.row(stripped, line)
    return close_readings(results, "perftest", text, cut, _missing(table))


def _missing(table: _Table) -> str:
    unended = "the line below the table is missing"
    return "" if table.ended else unended
