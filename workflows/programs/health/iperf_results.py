"""Parameters and results of iperf between the nodes' daemons, as values and text, and the newest result for metrics.

Bitrates are Gb/s (10^9 bits), transfers GBytes of 2^30 bytes, as iperf3 prints them.
"""

from __future__ import annotations

import ipaddress
import json
import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple
from urllib.parse import urlencode

from workflows.programs.health.query import whole
from workflows.programs.runtime.prometheus import FIGURE_DIGITS, Family, Labels, exposition

CLIENTS = 8
"""Clients of a pair, and servers of a node, where nobody says how many: Autopilot's own number."""
START_PORT = 5200
"""Likewise."""
MOST_CLIENTS = 64
"""Of one pair: more processes than that measure the host and not the link."""
MOST_SERVERS = 256
"""Of one node."""
LEAST_PORT = 1024
"""Below it only root may listen."""
WORKLOADS = ("ring",)
PLANES = ("data", "mgmt")
HOLE = "N/A"
"""Stands in the matrix where nothing was measured."""
WIDTH = 40
"""Of a column of the matrix; more where a name is longer."""
METRIC = "autopilot_iperf_gbits"
_OLD = ("serverspernode", "clientsperiface", "plane")

Query = Mapping[str, str]


@dataclass(frozen=True)
class IperfRequest:
    """What `/iperf` is asked for."""

    clients: int = CLIENTS
    """Of each pair on one interface."""
    start_port: int = START_PORT
    """Port of the first server."""
    cleanup: bool = False
    """Servers are stopped afterwards."""
    plane: str = "data"
    """`data`: the secondary interfaces, or the primary one where there is no other; `mgmt`: the primary one."""
    servers_per_node: int = 1
    """At least so many on a node, divided over the interfaces."""

    def servers(self, interfaces: int) -> int:
        """Servers of each interface: one a client, since iperf3 serves one client at a time."""
        return max(1, self.clients, self.servers_per_node // max(1, interfaces))


@dataclass(frozen=True)
class Flow:
    """What `/iperfclients` is asked for."""

    address: str
    """Where to send."""
    port: int
    """Of the first server; the next client takes the next one."""
    clients: int
    source: str = ""
    """Our own address to send from; "": as the routes say."""


@dataclass(frozen=True)
class Sums:
    """What one iperf3 client told."""

    sent_gbytes: float
    sent_gbits: float
    """Per second."""
    received_gbytes: float
    received_gbits: float
    """Per second."""


@dataclass(frozen=True)
class IperfMatrix:
    """What a ring found."""

    nodes: Tuple[str, ...]
    gbits: Mapping[str, Mapping[Tuple[str, str], float]] = field(default_factory=lambda: {})
    """By interface, by source and destination; what was not measured is missing."""
    missing: Tuple[str, ...] = ()
    """Why, a line each: dead nodes, and pairs."""


def parse_request(query: Query) -> IperfRequest:
    """What is asked for; parameters that are not ours (host, job, source …) are left alone.

    Raises:
        ValueError: names the parameter, and says what would be right.
    """
    workload = query.get("workload") or WORKLOADS[0]
    if workload not in WORKLOADS:
        raise ValueError(f"workload: must be {' or '.join(WORKLOADS)}, got {printable(workload)}")
    plane = query.get("plane") or PLANES[0]
    if plane not in PLANES:
        raise ValueError(f"plane: must be {' or '.join(PLANES)}, got {printable(plane)}")
    # Callers of old say how many clients an interface has, and mean one where they do not.
    usual = 1 if any(query.get(name) for name in _OLD) else CLIENTS
    clients = whole(query, "pclients", whole(query, "clientsperiface", usual, 1, MOST_CLIENTS), 1, MOST_CLIENTS)
    servers = whole(query, "serverspernode", 1, 1, MOST_SERVERS)
    start = start_port(query, "startport")
    cleanup = query.get("cleanup", "no").strip().lower() not in ("no", "false", "0", "none")
    if plane == "mgmt":
        return IperfRequest(1, start, cleanup, plane, 1)
    return IperfRequest(clients, start, cleanup, plane, servers)


def flow_of(query: Query) -> Flow:
    """What `/iperfclients` is asked for.

    Raises:
        ValueError: names the parameter, and says what would be right.
    """
    clients = whole(query, "numclients", CLIENTS, 1, MOST_CLIENTS)
    port = start_port(query, "dstport")
    fits(port, clients, "dstport")
    source = address(query, "srcip") if query.get("srcip") else ""
    return Flow(address(query, "dstip"), port, clients, source)


def ports_of(query: Query) -> range:
    """Ports of the servers that `/iperfservers` is asked for.

    Raises:
        ValueError: names the parameter, and says what would be right.
    """
    count = whole(query, "numservers", CLIENTS, 1, MOST_SERVERS)
    first = start_port(query, "startport")
    fits(first, count, "startport")
    return range(first, first + count)


def start_port(query: Query, name: str) -> int:
    """A port that anybody may open.

    Raises:
        ValueError: something else.
    """
    return whole(query, name, START_PORT, LEAST_PORT, 65535)


def fits(first: int, count: int, name: str) -> None:
    """Nothing, where `count` ports from `first` on exist.

    Raises:
        ValueError: they do not.
    """
    if first + count - 1 > 65535:
        raise ValueError(f"{name}: {count} ports from {first} on end beyond 65535: take a lower one")


def address(query: Query, name: str) -> str:
    """An IP address of one machine.

    Raises:
        ValueError: something else.
    """
    text = query.get(name, "").strip()
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"{name}: must be an IP address such as 10.0.0.7, got {printable(text)}") from None
    if found.is_multicast or found.is_unspecified or "%" in text:
        raise ValueError(f"{name}: must be the address of one machine, got {printable(text)}")
    return str(found)


def printable(text: str) -> str:
    """Somebody else's text, short and on one line."""
    return repr(text[:60])


def path(name: str, **parameters: object) -> str:
    """What is asked of a daemon, e.g. `/iperfservers?numservers=8&startport=5200`; empty parameters are left out."""
    sums = urlencode({key: str(value) for key, value in parameters.items() if value != ""})
    return f"/{name}?{sums}" if sums else f"/{name}"


def steps(nodes: Sequence[str]) -> List[List[Tuple[str, str]]]:
    """The ring: n-1 steps of pairs (source, destination). In a step each node sends to one and receives from one."""
    count = len(nodes)
    return [[(nodes[i], nodes[(i + step) % count]) for i in range(count)] for step in range(1, count)]


def clients_json(sums: Sequence[Sums], errors: Sequence[str]) -> str:
    """The answer of `/iperfclients`: sums, means and extremes of the clients that ended well, as strings.

    `errors` says what became of the others; where none ended well, every figure is `nan`: not known, and no 0.
    """
    answer: Dict[str, Any] = {
        "sender": _side([one.sent_gbytes for one in sums], [one.sent_gbits for one in sums]),
        "receiver": _side([one.received_gbytes for one in sums], [one.received_gbits for one in sums]),
    }
    if errors:
        answer["errors"] = list(errors)
    return json.dumps(answer, indent=4) + "\n"


def _side(gbytes: Sequence[float], gbits: Sequence[float]) -> Dict[str, Dict[str, str]]:
    columns = {"transfer": _figures(gbytes), "bitrate": _figures(gbits)}
    return {row: {name: f"{column[row]:.2f}" for name, column in columns.items()} for row in columns["transfer"]}


def _figures(values: Sequence[float]) -> Dict[str, float]:
    if not values:
        return dict.fromkeys(("aggregate", "mean", "min", "max"), float("nan"))
    total = sum(values)
    return {"aggregate": total, "mean": total / len(values), "min": min(values), "max": max(values)}


def received_gbits(text: str) -> float:
    """What all clients of a pair got through together, in Gb/s, from an answer of `/iperfclients`.

    Raises:
        ValueError: it is no such answer, or one of them failed: what the others got is not what the link can do.
    """
    try:
        answer: Dict[str, Any] = json.loads(text)
        errors = [str(one) for one in answer.get("errors", [])]
        figure = float(answer["receiver"]["aggregate"]["bitrate"])
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ValueError(f"answered {printable(' '.join(text.split()))}") from None
    if errors or not 0 <= figure < float("inf"):
        raise ValueError("; ".join(errors)[:300] or "measured nothing")
    return figure


def average(cells: Mapping[Tuple[str, str], float]) -> Optional[float]:
    """Mean of what was measured on an interface, in Gb/s; None where nothing was."""
    return sum(cells.values()) / len(cells) if cells else None


def matrix_text(found: IperfMatrix) -> str:
    """The answer of `/iperf`: an empty line, a matrix an interface, the averages, and what was not measured and why."""
    lines = [""]
    wide = max([WIDTH, *(len(node) + 2 for node in found.nodes)])
    for interface, cells in found.gbits.items():
        lines.append(f"Network Throughput {interface}:")
        lines.append(_row("src/dst", found.nodes, wide))
        for source in found.nodes:
            row = [_cell(cells.get((source, destination))) for destination in found.nodes]
            lines.append(_row(source, row, wide))
        lines.append("")
    lines.append("Overall Network Interface Average Bandwidth:")
    for interface, cells in found.gbits.items():
        lines.append(f"{interface} Average Bandwidth Gb/s: {_cell(average(cells))}")
    if found.missing:
        lines += ["", "Not measured:", *found.missing]
    return "\n".join(lines) + "\n"


def _row(head: str, cells: Sequence[str], wide: int) -> str:
    return "".join(f"{cell:<{wide}}" for cell in (head, *cells)).rstrip()


def _cell(figure: Optional[float]) -> str:
    return HOLE if figure is None else f"{figure:.2f}"


def metrics_of(found: IperfMatrix) -> str:
    """The matrix for Prometheus (a gauge, Gb/s); a hole has no sample, and without samples there is no text."""
    samples: List[Tuple[Labels, float]] = [
        ((("iface", iface), ("source", source), ("destination", there)), figure)
        for iface, cells in found.gbits.items()
        for (source, there), figure in cells.items()
    ]
    family = Family(METRIC, "gauge", "Gb/s between two nodes in the newest iperf", samples)
    return exposition([family], FIGURE_DIGITS) if samples else ""


NEWEST_SECONDS = 86400.0
"""A ring that was measured longer ago says nothing of today's network."""


class NewestMatrix:
    """The newest ring. Safe to use from several threads."""

    def __init__(self) -> None:
        self._kept = (0.0, "")

    def keep(self, found: IperfMatrix) -> None:
        """It takes the place of the one before."""
        self._kept = (time.monotonic() + NEWEST_SECONDS, metrics_of(found))

    def text(self) -> str:
        """Its samples."""
        until, text = self._kept
        return text if time.monotonic() < until else ""
