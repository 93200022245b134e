"""iperf of the node daemons: every pair of nodes in a ring, on every interface, driven by the daemon that is asked.

Standard library only, Python 3.9. What cannot be read raises ValueError, which names the parameter; whatever becomes of
nodes and processes is part of the answer: a dead node is named, and its row and column are holes.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from typing import Callable, Dict, Hashable, List, Mapping, Sequence, Set, Tuple, TypeVar, Union
from urllib.parse import parse_qsl

from workflows.programs.health_iperf_newest import Newest
from workflows.programs.health_iperf_processes import CLIENT_DEADLINE_SECONDS, LISTEN_SECONDS, Servers, send
from workflows.programs.health_iperf_words import (
    MOST_SERVERS,
    Measured,
    Query,
    Wish,
    clients_json,
    fits,
    flow_of,
    matrix_text,
    path,
    ports_of,
    received_gbits,
    steps,
    wish_of,
)
from workflows.programs.health_peers import Peer

MOST_SECONDS = 1500.0
"""Of one ring: below the half hour after which the daemon closes a connection, and the lifetime of servers."""
STEP_SECONDS = 6.0
"""One step on one interface: 5 s of traffic, and what starting costs."""
ASK_SECONDS = max(CLIENT_DEADLINE_SECONDS, LISTEN_SECONDS) + 5.0
"""What `ask` must wait for an answer at least; later ones are holes."""
UNNAMED = "default"
"""Interface of a node of which only the daemon's address is known."""

Ask = Callable[[Peer, str], str]
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

SERVERS = Servers()
"""Those of this process."""
NEWEST = Newest()


def iperf_matrix(own: str, peers: Sequence[Peer], query: Query, ask: Ask) -> str:
    """The answer of `/iperf`: an empty line, then the matrices.

    Args:
        own: name of this daemon's node; where it is one of `peers` it is not asked over the network.
        peers: the nodes of the ring, in their order.
        query: workload, pclients, startport, cleanup; of old: serverspernode, clientsperiface, plane. Others are left
            alone.
        ask: the answer of a peer's daemon to a path with its query; raises OSError. It must wait `ASK_SECONDS`.

    Raises:
        ValueError: a parameter is wrong, or so many nodes would take more than `MOST_SECONDS`.
    """
    return matrix_text(measure(own, peers, query, ask))


def measure(own: str, peers: Sequence[Peer], query: Query, ask: Ask) -> Measured:
    """The same as figures, which are also kept for `newest_metrics`."""
    wish = wish_of(query)
    ring = Ring(own, peers, wish, ask)
    ring.check()
    try:
        ring.start()
        found = ring.run()
    finally:
        if wish.cleanup:
            ring.stop()
    NEWEST.keep(found)
    return found


def newest_metrics() -> str:
    """Samples of the newest ring that this process drove, for the page of metrics; "" a day later."""
    return NEWEST.text()


def start_servers(query: Query) -> str:
    """The answer of `/iperfservers` (numservers, startport): a line a port; one that is not served says FAIL.

    Raises:
        ValueError: a parameter is wrong.
    """
    return "\n".join(SERVERS.start(ports_of(query))) + "\n"


def stop_servers(query: Query) -> str:
    """The answer of `/iperfstopservers`: a line for each server that this process had started; nobody else's ends."""
    del query
    return "\n".join(SERVERS.stop() or ["no iperf3 server of ours runs"]) + "\n"


def run_clients(query: Query) -> str:
    """The answer of `/iperfclients` (dstip, dstport, numclients; ours: srcip), after about 5 s: JSON.

    Raises:
        ValueError: a parameter is wrong.
    """
    return clients_json(*send(flow_of(query)))


def interfaces_of(peer: Peer, plane: str) -> Dict[str, str]:
    """Interface -> address on that plane; none where it has no address now.

    `data`: all but the first, or that one where there is no other.
    """
    known = dict(peer.addresses) or ({UNNAMED: peer.host} if peer.host else {})
    first = dict(list(known.items())[:1])
    return first if plane == "mgmt" else dict(list(known.items())[1:]) or first


class Ring:
    """One measurement of every pair of nodes."""

    def __init__(self, own: str, peers: Sequence[Peer], wish: Wish, ask: Ask) -> None:
        self._own, self._ask, self._wish = own, ask, wish
        self._peers = {peer.node: peer for peer in peers}
        self._places = {node: interfaces_of(peer, wish.plane) for node, peer in self._peers.items()}
        self._interfaces = list(dict.fromkeys(iface for places in self._places.values() for iface in places))
        self._servers = wish.servers(len(self._interfaces))
        self._dead = {node: "its daemon is away" for node, peer in self._peers.items() if not peer.host}
        self._holes: List[str] = []

    def check(self) -> None:
        """Nothing, where it can be done in bounded time with bounded means.

        Raises:
            ValueError: says what to ask for instead.
        """
        count, servers = len(self._interfaces), len(self._interfaces) * self._servers
        seconds = count * max(0, len(self._peers) - 1) * STEP_SECONDS
        if seconds > MOST_SECONDS:
            told = (
                f"{len(self._peers)} nodes with {count} interfaces take {seconds:.0f} s, the most is {MOST_SECONDS:.0f}"
            )
            raise ValueError(f"host: {told}: name fewer nodes, or plane=mgmt")
        if servers > MOST_SERVERS:
            raise ValueError(
                f"pclients: {servers} servers on {count} interfaces, the most is {MOST_SERVERS}: ask for fewer"
            )
        fits(self._wish.start_port, servers, "startport")

    def start(self) -> None:
        """Servers on all nodes; who does not answer, or cannot, is dead from here on."""
        asked = path("iperfservers", numservers=len(self._interfaces) * self._servers, startport=self._wish.start_port)
        for node, answer in self._everybody(asked).items():
            if isinstance(answer, Exception):
                self._dead[node] = f"its daemon does not answer: {answer}"
                continue
            failed = [line for line in answer.splitlines() if "FAIL" in line or "ABORT" in line]
            if failed:
                self._dead[node] = failed[0]

    def stop(self) -> None:
        """Our servers on all nodes that answer; those of the others end by themselves."""
        self._everybody(path("iperfstopservers"))

    def run(self) -> Measured:
        """The figures, one interface after the other: side by side they would share what lies between CPU and NIC."""
        ends = time.monotonic() + MOST_SECONDS
        alive = [node for node in self._peers if node not in self._dead]
        gbits: Dict[str, Dict[Tuple[str, str], float]] = {}
        for iface in self._interfaces:
            gbits[iface] = self._on(iface, [node for node in alive if iface in self._places[node]], ends)
        lost = [f"{node}: {why}" for node, why in self._dead.items()]
        for iface in self._interfaces:
            lost += [f"{node}: has no {iface}" for node in alive if iface not in self._places[node]]
        if len(self._peers) < 2:
            lost.append("a ring needs two nodes at least")
        return Measured(tuple(self._peers), gbits, (*lost, *self._holes))

    def _on(self, iface: str, nodes: Sequence[str], ends: float) -> Dict[Tuple[str, str], float]:
        cells: Dict[Tuple[str, str], float] = {}
        for pairs in steps(nodes):
            if time.monotonic() > ends:
                self._holes.append(f"{iface}: no time was left for {len(pairs)} more pairs")
                break
            # Who was lost on the way is not waited for again.
            asked = [pair for pair in pairs if not self._dead.keys() & set(pair)]
            answers = side_by_side({pair: self._pair(iface, *pair) for pair in asked}, ASK_SECONDS)
            for (source, there), answer in answers.items():
                if isinstance(answer, OSError):
                    self._dead[source] = f"its daemon does not answer: {answer}"
                elif isinstance(answer, Exception):
                    self._holes.append(f"{source} -> {there} on {iface}: {answer}")
                else:
                    cells[source, there] = answer
        return cells

    def _pair(self, iface: str, source: str, there: str) -> Callable[[], float]:
        """One pair's measurement."""

        def clients() -> float:
            wanted = path(
                "iperfclients",
                dstip=_address(self._places[there][iface]),
                dstport=self._wish.start_port + self._interfaces.index(iface) * self._servers,
                numclients=self._wish.clients,
                # Several NICs in one network: without it all traffic would leave by the first.
                srcip="" if iface == UNNAMED else self._places[source][iface],
            )
            return received_gbits(self._to(source, wanted))

        return clients

    def _everybody(self, wanted: str) -> Mapping[str, Union[str, Exception]]:
        there = [node for node in self._peers if node not in self._dead]
        return side_by_side({node: self._asking(node, wanted) for node in there}, ASK_SECONDS)

    def _asking(self, node: str, wanted: str) -> Callable[[], str]:
        return lambda: self._to(node, wanted)

    def _to(self, node: str, wanted: str) -> str:
        if node != self._own:
            return self._ask(self._peers[node], wanted)
        return _OWN[wanted.partition("?")[0]](_query(wanted))


_OWN: Dict[str, Callable[[Query], str]] = {
    "/iperfservers": start_servers,
    "/iperfstopservers": stop_servers,
    "/iperfclients": run_clients,
}
"""What this node does itself."""


def _query(wanted: str) -> Dict[str, str]:
    return dict(parse_qsl(wanted.partition("?")[2]))


def _address(host: str) -> str:
    """The IP address of a host that may be a name.

    Raises:
        ValueError: it is not known.
    """
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        try:
            return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
        except OSError as error:
            raise ValueError(f"{host} cannot be resolved: {error}") from error


def side_by_side(jobs: Mapping[K, Callable[[], T]], seconds: float) -> Dict[K, Union[T, Exception]]:
    """Results of all jobs at once, in their order; of one that raised, or is not ready in time, the exception."""
    found: Dict[K, Union[T, Exception]] = {}
    closed: Set[bool] = set()

    def work(key: K, job: Callable[[], T]) -> None:
        try:
            answer: Union[T, Exception] = job()
        except Exception as error:  # a peer may answer anything; whatever it is becomes a hole with its reason
            answer = error
        if not closed:
            found[key] = answer

    threads = [threading.Thread(target=work, args=item, daemon=True) for item in jobs.items()]
    for thread in threads:
        thread.start()
    ends = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, ends - time.monotonic()))
    closed.add(True)
    late = TimeoutError(f"no answer within {seconds:g} s")
    return {key: found.get(key, late) for key in jobs}
