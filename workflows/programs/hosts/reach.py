"""Who reaches whom: a host listens where Kubernetes will, then tries all its peers at once, TCP ports and packet sizes.

What listens says its host's name to whoever connects, so that an address that two hosts have is told too. Packets are
UDP datagrams that may not be cut on their way; the peer answers with the length that it got.
"""

from __future__ import annotations

import contextlib
import errno
import resource
import selectors
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

CONNECT_SECONDS = 4.0
"""For one connection; the kernel asks again after 1 s and 3 s."""
ROUNDS, ROUND_SECONDS = 4, 0.5
"""A datagram may get lost: so often it is sent, and waited for at the end of each round."""
PACE_SECONDS = 0.0005
"""Between two peers, for answers to be taken: no switch or buffer is overrun."""
LADDER = (576, 1280, 1400, 1450, 1500, 4000, 8900, 9000)
"""Bytes of packets that are tried where the wanted size does not arrive."""
HEADERS = 28
"""Bytes of IPv4's and UDP's header."""
LARGEST = 65535
BUFFER_BYTES = 4 << 20
MOST_AT_ONCE, SPARED = 512, 64
"""Sockets of one process, and what is left of its limit."""
IP_MTU, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE = 14, 10, 3
"""Of Linux (linux/in.h); Python names none of them."""
_WORDS = {
    errno.ECONNREFUSED: "refused",
    errno.ETIMEDOUT: "timed out",
    errno.EHOSTUNREACH: "no route",
    errno.ENETUNREACH: "no route",
}


@dataclass(frozen=True)
class PeerPlace:
    """Whom to reach, and where."""

    name: str
    address: str
    ports: Tuple[int, ...]
    """TCP ports that must be open from here."""
    ours: Tuple[int, ...]
    """Those of them at which this program answers there; at the others somebody else does."""
    udp: int
    """Port of the peer's echo of packets; 0: it has none."""


def peer_from(told: Mapping[str, Any]) -> PeerPlace:
    """A peer as the asker writes it.

    Raises:
        KeyError: something is missing.
    """
    ports, ours = tuple(told["ports"]), tuple(told["ours"])
    return PeerPlace(str(told["name"]), str(told["address"]), ports, ours, int(told["udp"]))


class Listener:
    """Listens at a host's address until the program ends; whoever connects is told the host's name."""

    def __init__(self, name: str, address: str, ports: Iterable[int], nonce: str) -> None:
        self._name, self._nonce = name.encode(), nonce.encode()
        self._selector = selectors.DefaultSelector()
        self.listening: List[int] = []
        self.taken: Dict[int, str] = {}
        """Port at which we do not listen -> why; somebody else may."""
        self.udp, self.why = 0, ""
        for port in ports:
            self._listen(address, port)
        try:
            self.udp = self._answer_packets(address)
        except OSError as error:
            self.why = f"{address}: {error.strerror or error}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _listen(self, address: str, port: int) -> None:
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((address, port))
            found.listen(1024)
        except OSError as error:
            found.close()
            self.taken[port] = error.strerror or str(error)
            return
        found.setblocking(False)
        self._selector.register(found, selectors.EVENT_READ, self._greet)
        self.listening.append(port)

    def _answer_packets(self, address: str) -> int:
        found = packet_socket()
        found.bind((address, 0))
        self._selector.register(found, selectors.EVENT_READ, self._measure)
        return int(found.getsockname()[1])

    def _greet(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.setblocking(False)
            connection.send(self._name)

    def _measure(self, packets: socket.socket) -> None:
        data, where = packets.recvfrom(LARGEST)
        if data.startswith(self._nonce):
            size = len(data)
            packets.sendto(data[: len(self._nonce)] + struct.pack("!I", size), where)

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                with contextlib.suppress(OSError):  # a client that is gone; the next one comes
                    key.data(key.fileobj)


def packet_socket() -> socket.socket:
    """For datagrams that are never cut, whatever the kernel thinks of the way."""
    found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    found.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)
    with contextlib.suppress(OSError):
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    found.setblocking(False)
    return found


@dataclass
class _Attempt:
    """One connection on its way."""

    peer: PeerPlace
    port: int
    socket: socket.socket
    deadline: float
    connected: bool = False


class Connections:
    """Tries TCP ports of peers, many at a time."""

    def __init__(self, seconds: float = CONNECT_SECONDS) -> None:
        self._seconds = seconds
        self._selector = selectors.DefaultSelector()
        self._living: Set[int] = set()
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = MOST_AT_ONCE if soft < 0 else max(1, min(MOST_AT_ONCE, soft - SPARED))
        self.words: Dict[Tuple[str, int], str] = {}

    def try_all(self, peers: Sequence[PeerPlace]) -> None:
        """Fill `words`: peer and port -> `open`, or what came instead."""
        waiting = iter([(peer, port) for peer in peers for port in peer.ports])
        while True:
            self._begin(waiting)
            if not self._living:
                return
            for key, _ in self._selector.select(0.1):
                self._go_on(key.data)
            now = time.monotonic()
            late = [one.data for one in self._selector.get_map().values() if one.data.deadline <= now]
            for attempt in late:
                self._end(attempt, "silent" if attempt.connected else "timed out")

    def _begin(self, waiting: Iterator[Tuple[PeerPlace, int]]) -> None:
        while len(self._living) < self._most:
            found = next(waiting, None)
            if found is None:
                return
            peer, port = found
            made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            made.setblocking(False)
            attempt = _Attempt(peer, port, made, time.monotonic() + self._seconds)
            self._living.add(made.fileno())
            self._selector.register(made, selectors.EVENT_WRITE, attempt)
            code = made.connect_ex((peer.address, port))
            if code not in (0, errno.EINPROGRESS):
                self._end(attempt, _word(code))

    def _go_on(self, attempt: _Attempt) -> None:
        if attempt.connected:
            self._end(attempt, self._named(attempt))
            return
        code = attempt.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._end(attempt, _word(code))
        elif attempt.port in attempt.peer.ours:
            attempt.connected = True
            self._selector.modify(attempt.socket, selectors.EVENT_READ, attempt)
        else:
            self._end(attempt, "open")

    def _named(self, attempt: _Attempt) -> str:
        try:
            name = attempt.socket.recv(256).decode("utf-8", "replace")
        except OSError as error:
            return _word(error.errno or 0)
        return "open" if name == attempt.peer.name else f"answered by {name[:80]}" if name else "silent"

    def _end(self, attempt: _Attempt, word: str) -> None:
        self.words[attempt.peer.name, attempt.port] = word
        self._living.discard(attempt.socket.fileno())
        self._selector.unregister(attempt.socket)
        attempt.socket.close()


def _word(code: int) -> str:
    return _WORDS.get(code) or errno.errorcode.get(code, str(code))


@dataclass
class _Way:
    """Packets on the way to one peer."""

    peer: PeerPlace
    wanted: int
    best: int = 0
    refused: Set[int] = field(default_factory=set[int])
    """Sizes that do not even leave this host."""

    def sizes(self, first: bool) -> List[int]:
        """What is sent now: the wanted size alone, and what is smaller where it did not arrive."""
        below = [] if first else [size for size in LADDER if self.best < size < self.wanted]
        return [size for size in (*below, self.wanted) if size not in self.refused]


class Packets:
    """Finds the largest packet that reaches each peer whole."""

    def __init__(self, address: str, nonce: str, wanted: int) -> None:
        self._nonce, self._wanted = nonce.encode(), wanted
        self._address = address
        self._ways: Dict[Tuple[str, int], _Way] = {}
        self._socket = packet_socket()
        self._socket.bind((address, 0))

    def try_all(self, peers: Sequence[PeerPlace]) -> Dict[str, Tuple[int, int]]:
        """PeerPlace -> bytes of the largest packet that arrived (0: none), and of the one that was wanted."""
        for peer in peers:
            if peer.udp:
                wanted = min(self._wanted or self._route_mtu(peer), LARGEST)
                self._ways[peer.address, peer.udp] = _Way(peer, wanted)
        for number in range(ROUNDS):
            for way in self._open():
                self._send(way, number == 0)
                self._take(PACE_SECONDS)
            deadline = time.monotonic() + ROUND_SECONDS
            while self._open() and time.monotonic() < deadline:
                self._take(0.02)
            if not self._open():
                break
        self._socket.close()
        return {way.peer.name: (way.best, way.wanted) for way in self._ways.values()}

    def _open(self) -> List[_Way]:
        return [way for way in self._ways.values() if way.best < way.wanted]

    def _route_mtu(self, peer: PeerPlace) -> int:
        """What the kernel's route to the peer carries."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            asked.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)
            asked.bind((self._address, 0))
            asked.connect((peer.address, peer.udp))
            return asked.getsockopt(socket.IPPROTO_IP, IP_MTU)
        return 1500

    def _send(self, way: _Way, first: bool) -> None:
        for size in way.sizes(first):
            packet = self._nonce.ljust(size - HEADERS, b"\0")
            try:
                self._socket.sendto(packet, (way.peer.address, way.peer.udp))
            except OSError as error:
                if error.errno == errno.EMSGSIZE:
                    way.refused.add(size)

    def _take(self, seconds: float) -> None:
        """Take the answers that are there, waiting for the first one."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                data, where = self._socket.recvfrom(256)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return
                time.sleep(min(0.001, seconds))
                continue
            except OSError:  # an earlier datagram was refused: its peer stays without an answer
                continue
            way = self._ways.get((where[0], where[1]))
            start = len(self._nonce)
            if way is not None and data.startswith(self._nonce) and len(data) == start + 4:
                way.best = max(way.best, struct.unpack("!I", data[start:])[0] + HEADERS)


def listen(asked: Mapping[str, Any]) -> Tuple[Listener, Dict[str, Any]]:
    """Begin to listen as `asked`: `name`, `address`, `ports`, `nonce`; and what is told of it."""
    made = Listener(str(asked["name"]), str(asked["address"]), asked["ports"], str(asked["nonce"]))
    taken = {str(port): why for port, why in made.taken.items()}
    return made, {"listening": made.listening, "taken": taken, "udp": made.udp, "why": made.why}


def reach(asked: Mapping[str, Any]) -> Dict[str, Any]:
    """Try all `peers` from `address`: per peer what each port said, and how large a packet arrived."""
    peers = [peer_from(one) for one in asked["peers"]]
    connections = Connections(float(asked.get("seconds", CONNECT_SECONDS)))
    trying = threading.Thread(target=connections.try_all, args=(peers,), daemon=True)
    trying.start()
    packets: Dict[str, Tuple[int, int]] = {}
    why: Optional[str] = None
    try:
        packets = Packets(str(asked["address"]), str(asked["nonce"]), int(asked["mtu"])).try_all(peers)
    except OSError as error:
        why = f"no packets can be sent from {asked['address']}: {error.strerror or error}"
    trying.join()
    rows = {
        peer.name: {
            "ports": {str(port): connections.words.get((peer.name, port), "untried") for port in peer.ports},
            "mtu": packets.get(peer.name, (0, 0))[0],
            "wanted_mtu": packets.get(peer.name, (0, 0))[1],
        }
        for peer in peers
    }
    return {"peers": rows, "why": why or ""}
