"""iperf between the node daemons: every pair of nodes in a ring, on every interface, driven by one daemon.

A wrong parameter raises ValueError, which names it; failures of nodes and processes are part of the answer: a dead node
is named, and its row and column are empty. iperf3 runs as processes of this node, without a shell: servers that are
known by their process ids, and clients of a few seconds. Only processes that were started here are ended.
"""

from __future__ import annotations

import atexit
import contextlib
import ipaddress
import socket
import subprocess
import tempfile
import threading
import time
from functools import partial
from typing import IO, Any, Callable, Dict, List, Mapping, Sequence, Set, Tuple, Union, cast
from urllib.parse import parse_qsl

from workflows.programs.health.iperf_results import (
    MOST_SERVERS,
    Flow,
    IperfMatrix,
    IperfRequest,
    NewestMatrix,
    Query,
    Sums,
    clients_json,
    fits,
    flow_of,
    matrix_text,
    parse_request,
    path,
    ports_of,
    received_gbits,
    steps,
)
from workflows.programs.health.peers import Peer
from workflows.programs.parsers import network
from workflows.programs.parsers.text import ParsedOutput, Reading, as_mapping, document, number
from workflows.programs.probes.call import Call, execute
from workflows.programs.runtime.bounded import outcomes, side_by_side

IPERF3 = "iperf3"
CLIENT_SECONDS = 5
"""Of one measurement."""
CLIENT_DEADLINE_SECONDS = 15.0
"""For one to start, connect, measure and tell: whoever hangs longer is killed."""
CONNECT_MILLISECONDS = 3000
"""For a client to reach its server: the kernel's own limit of two minutes would cost a step as much."""
LISTEN_SECONDS = 5.0
"""For servers to listen."""
SERVER_SECONDS = 1800.0
"""So long after the last start servers are stopped, where nobody asks for that: the longest ring takes less."""
STOP_SECONDS = 2.0
"""For a server to end by itself when it is asked to."""
SOCKETS = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENS = "0A"
"""State of a listening socket in these files."""
_BYTES = "network_bytes"

Server = Tuple["subprocess.Popen[bytes]", IO[bytes]]


def listening(files: Sequence[str] = SOCKETS) -> Set[int]:
    """Ports on which somebody listens in this network namespace; asking disturbs nobody."""
    found: Set[int] = set()
    for name in files:
        with contextlib.suppress(OSError, ValueError, IndexError), open(name, encoding="ascii") as lines:
            for line in list(lines)[1:]:
                fields = line.split()
                if fields[3] == _LISTENS:
                    found.add(int(fields[1].rpartition(":")[2], 16))
    return found


class IperfServers:
    """iperf3 servers that this process started, by port. Safe to call from several threads."""

    def __init__(self, lifetime_seconds: float = SERVER_SECONDS) -> None:
        self._lifetime_seconds = lifetime_seconds
        self._lock = threading.Lock()
        self._running: Dict[int, Server] = {}
        self._end: Union[threading.Timer, None] = None
        atexit.register(self.stop)

    def start(self, ports: Sequence[int]) -> List[str]:
        """Starts what does not run yet. A line a port; one that is not served says FAIL and why."""
        with self._lock:
            self._forget_ended()
            taken = listening()
            lines = {port: self._begin(port, taken) for port in ports}
            self._await({port for port, line in lines.items() if not line}, lines)
            self._end_later()
        return [lines[port] for port in ports]

    def stop(self) -> List[str]:
        """Stops all of them. A line each."""
        with self._lock:
            running, self._running = self._running, {}
            if self._end:
                self._end.cancel()
        for process, _ in running.values():
            with contextlib.suppress(OSError):
                process.terminate()
        ends = time.monotonic() + STOP_SECONDS
        for process, errors in running.values():
            try:
                process.wait(max(0.0, ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            errors.close()
        return [f"iperf3 server on port {port} stopped (pid {one[0].pid})" for port, one in running.items()]

    def pids(self) -> Dict[int, int]:
        """Process id by port."""
        with self._lock:
            return {port: process.pid for port, (process, _) in self._running.items()}

    def _begin(self, port: int, taken: Set[int]) -> str:
        """What is to be said of the port; nothing where a server was started that may listen soon."""
        if port in self._running:
            return f"iperf3 server on port {port} runs already (pid {self._running[port][0].pid})"
        if port in taken:
            return f"FAIL iperf3 server on port {port}: another process listens there; take another startport"
        errors = cast("IO[bytes]", tempfile.TemporaryFile())  # noqa: SIM115 - lives as long as the server
        argv = [IPERF3, "-s", "-p", str(port)]
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
            )
        except OSError as error:
            errors.close()
            return f"FAIL iperf3 server on port {port}: {IPERF3} cannot be started: {error.strerror or error}"
        self._running[port] = (process, errors)
        return ""

    def _await(self, begun: Set[int], lines: Dict[int, str]) -> None:
        """Waits until the begun ones listen; who does not is ended."""
        ends = time.monotonic() + LISTEN_SECONDS
        waiting = set(begun)
        while waiting:
            for port in sorted(waiting & listening()):
                if self._running[port][0].poll() is None:
                    lines[port] = f"iperf3 server on port {port} started (pid {self._running[port][0].pid})"
                    waiting.discard(port)
            for port in sorted(waiting):
                if self._running[port][0].poll() is not None or time.monotonic() > ends:
                    lines[port] = f"FAIL iperf3 server on port {port}: {self._ended(port)}"
                    waiting.discard(port)
            if waiting:
                time.sleep(0.01)

    def _ended(self, port: int) -> str:
        process, errors = self._running.pop(port)
        code = process.poll()
        if code is None:
            process.kill()
            process.wait()
        with errors:
            errors.seek(0)
            errors_text = " ".join(errors.read(2000).decode("utf-8", "replace").split())[-300:]
        what = f"it did not listen within {LISTEN_SECONDS:g} s" if code is None else f"it ended with {code}"
        return f"{what}; it said: {errors_text}" if errors_text else what

    def _forget_ended(self) -> None:
        for port in [port for port, (process, _) in self._running.items() if process.poll() is not None]:
            self._running.pop(port)[1].close()

    def _end_later(self) -> None:
        if self._end:
            self._end.cancel()
        self._end = threading.Timer(self._lifetime_seconds, self.stop)
        self._end.daemon = True
        self._end.start()


def send(flow: Flow) -> Tuple[List[Sums], List[str]]:
    """All clients of a flow at once: what those told that ended well, and what became of the others."""

    def client(index: int) -> Callable[[], ParsedOutput]:
        call = Call(number=index, command=tuple(client_argv(flow, index)), parser=IPERF3)
        return lambda: execute(call, {}, CLIENT_DEADLINE_SECONDS, {IPERF3: client_sums})

    output: List[Sums] = []
    errors: List[str] = []
    for index, parsed in enumerate(side_by_side([client(index) for index in range(flow.clients)])):
        values = {(one.quantity, one.subject): one.value for one in parsed.readings}
        try:
            if parsed.unknown:
                raise KeyError(parsed.unknown)
            output.append(_sums(values))
        except KeyError as error:
            errors.append(f"port {flow.port + index}: {error.args[0]}")
    return output, errors


def client_argv(flow: Flow, index: int) -> List[str]:
    """The client of that number: JSON, without copying, for `CLIENT_SECONDS`."""
    argv = [IPERF3, "-c", flow.address, "-p", str(flow.port + index), "-t", str(CLIENT_SECONDS), "-Z", "-J"]
    argv += ["--connect-timeout", str(CONNECT_MILLISECONDS)]
    return [*argv, "-B", flow.source] if flow.source else argv


def client_sums(text: str) -> ParsedOutput:
    """What a client printed: bandwidth as `parsers.network` reads it, and the bytes beside it."""
    parsed = network.parse_iperf3(text)
    end = as_mapping(as_mapping(document(text)).get("end"))
    sizes = {subject: number(as_mapping(end.get(name)).get("bytes")) for name, subject in network.SUMS.items()}
    readings = [Reading(_BYTES, size, "B", subject) for subject, size in sizes.items() if size is not None]
    return ParsedOutput((*parsed.readings, *readings), parsed.unknown, parsed.version)


def _sums(values: Dict[Tuple[str, str], Any]) -> Sums:
    """The sums of a client.

    Raises:
        KeyError: one of them is missing.
    """

    def of(quantity: str, subject: str) -> float:
        value = values.get((quantity, subject))
        if value is None:
            raise KeyError(f"{IPERF3} did not tell what was {subject}")
        return float(value)

    rates = [of("network_bandwidth", subject) for subject in ("sent", "received")]
    sizes = [of(_BYTES, subject) / 2**30 for subject in ("sent", "received")]
    return Sums(sizes[0], rates[0], sizes[1], rates[1])


MOST_SECONDS = 1500.0
"""Of one ring: below the half hour after which the daemon closes a connection, and the lifetime of servers."""
STEP_SECONDS = 6.0
"""One step on one interface: 5 s of traffic, and what starting costs."""
ASK_SECONDS = max(CLIENT_DEADLINE_SECONDS, LISTEN_SECONDS) + 5.0
"""What `ask` must wait for an answer at least; later ones are holes."""
UNNAMED = "default"
"""Interface of a node of which only the daemon's address is known."""

Ask = Callable[[Peer, str], str]

SERVERS = IperfServers()
"""Those of this process."""
NEWEST = NewestMatrix()


def iperf_matrix(own: str, peers: Sequence[Peer], query: Query, ask: Ask) -> str:
    """The answer of `/iperf`: an empty line, then the matrices.

    `own` is this daemon's node, which is not asked over the network. Of `query` count workload, pclients, startport,
    cleanup, and formerly serverspernode, clientsperiface, plane. `ask` gets a daemon's answer to a path, raises OSError
    and must wait `ASK_SECONDS`.

    Raises:
        ValueError: a parameter is wrong, or so many nodes would take more than `MOST_SECONDS`.
    """
    return matrix_text(measure(own, peers, query, ask))


def measure(own: str, peers: Sequence[Peer], query: Query, ask: Ask) -> IperfMatrix:
    """The same as figures, which are also kept for `newest_metrics`."""
    wish = parse_request(query)
    ring = RingMeasurement(own, peers, wish, ask)
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


class RingMeasurement:
    """One measurement of every pair of nodes."""

    def __init__(self, own: str, peers: Sequence[Peer], wish: IperfRequest, ask: Ask) -> None:
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
            output = (
                f"{len(self._peers)} nodes with {count} interfaces take {seconds:.0f} s, the most is {MOST_SECONDS:.0f}"
            )
            raise ValueError(f"host: {output}: name fewer nodes, or plane=mgmt")
        if servers > MOST_SERVERS:
            raise ValueError(
                f"pclients: {servers} servers on {count} interfaces, the most is {MOST_SERVERS}: ask for fewer"
            )
        fits(self._wish.start_port, servers, "startport")

    def start(self) -> None:
        """Servers on all nodes; who does not answer, or cannot, is dead from here on."""
        count = len(self._interfaces) * self._servers
        request = path("iperfservers", numservers=count, startport=self._wish.start_port)
        for node, answer in self._everybody(request).items():
            if isinstance(answer, Exception):
                self._dead[node] = f"its daemon does not answer: {answer}"
                continue
            failed = [line for line in answer.splitlines() if "FAIL" in line or "ABORT" in line]
            if failed:
                self._dead[node] = failed[0]

    def stop(self) -> None:
        """Our servers on all nodes that answer; those of the others end by themselves."""
        self._everybody(path("iperfstopservers"))

    def run(self) -> IperfMatrix:
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
        return IperfMatrix(tuple(self._peers), gbits, (*lost, *self._holes))

    def _on(self, iface: str, nodes: Sequence[str], ends: float) -> Dict[Tuple[str, str], float]:
        cells: Dict[Tuple[str, str], float] = {}
        for pairs in steps(nodes):
            if time.monotonic() > ends:
                self._holes.append(f"{iface}: no time was left for {len(pairs)} more pairs")
                break
            # Who was lost on the way is not waited for again.
            alive = [pair for pair in pairs if not self._dead.keys() & set(pair)]
            answers = outcomes([self._pair(iface, *pair) for pair in alive], seconds=ASK_SECONDS)
            for (source, there), answer in zip(alive, answers):  # noqa: B905 - 3.10
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
        answers = outcomes([partial(self._to, node, wanted) for node in there], seconds=ASK_SECONDS)
        return dict(zip(there, answers))  # noqa: B905 - 3.10

    def _to(self, node: str, wanted: str) -> str:
        if node != self._own:
            return self._ask(self._peers[node], wanted)
        return _OWN[wanted.partition("?")[0]](dict(parse_qsl(wanted.partition("?")[2])))


_OWN: Dict[str, Callable[[Query], str]] = {
    "/iperfservers": start_servers,
    "/iperfstopservers": stop_servers,
    "/iperfclients": run_clients,
}
"""What this node does itself."""


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
