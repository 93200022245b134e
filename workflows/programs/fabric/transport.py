"""Connections between members of a group: one listener for each rail, messages of a pair, round trips and datagrams.

A connection belongs to the rank that opened it and carries what that rank sends. A member that connects proves that it
knows the key on the listener's card (HMAC of a fresh number), or is refused.

A message of a pair is its length and its bytes. A message that begins with `ECHO` is sent back at once, which measures
a round trip. The UDP echo answers only senders that know its token, and with as many bytes as came.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import select
import socket
import struct
import threading
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from workflows.programs.fabric.meeting import MemberCard, RendezvousFolder
from workflows.programs.parsers.text import ParsedOutput, Reading

GREETING_SECONDS = 5.0
"""Time for a new connection to authenticate."""
WELCOME = b"ok"
NONCE_BYTES = 16
HELLO = struct.Struct(">I32s")
"""Rank of the member that connects, and its proof."""
LOOK_SECONDS = 0.25
"""Interval at which a member that waits for a connection checks whether another rank is missing."""
BACKLOG = 128
MOST_GUESTS = 64
"""Connections that authenticate at the same time."""

ECHO = b"echo"
SIZE = struct.Struct(">I")
MOST_BYTES = 1 << 16
"""A longer message is none of ours."""
LEAST_SECONDS = 0.01

ROUND_TRIPS, WARM_UPS = 1000, 20
LEAST_ROUND_TRIPS = 100
"""With fewer the slowest hundredth is one of them."""
MESSAGE_BYTES = 64
DATAGRAMS = 1000
DATAGRAM_BYTES = 1200
"""Fits into one packet of any network in use, tunnels included."""
IN_FLIGHT = 16
"""At once: 19 KiB, which no socket's buffer loses by itself (Linux gives one 208 KiB)."""
SILENT_SECONDS = 0.25
"""Longest wait for the echoes of a window; later ones still count."""
SILENT_WINDOWS = 4
"""Windows without any echo after which the rest is not sent."""
TOKEN_BYTES = 16
NUMBER = struct.Struct(">I")


class MemberLostError(ConnectionError):
    """A member did not come, ended or fell silent."""

    def __init__(self, rank: int, why: str) -> None:
        super().__init__(f"rank {rank} {why}")
        self.rank = rank


class RailConnections:
    """Listens on the address of each rail and holds the connections of the others."""

    def __init__(self, rank: int, folder: RendezvousFolder, hosts: Sequence[str], until: float) -> None:
        self.rank, self.folder, self._until = rank, folder, until
        self.key = os.urandom(32)
        self._listeners = [socket.create_server((host, 0), backlog=BACKLOG) for host in hosts]
        self._came: Dict[Tuple[int, int], socket.socket] = {}
        self._made: Dict[Tuple[int, int], socket.socket] = {}
        self._news = threading.Condition()
        self._guests = threading.Semaphore(MOST_GUESTS)
        for rail, listener in enumerate(self._listeners):
            threading.Thread(target=self._accept, args=(rail, listener), daemon=True).start()

    @property
    def addresses(self) -> Tuple[Tuple[str, int], ...]:
        """Address and port of each rail."""
        return tuple((str(name[0]), int(name[1])) for name in (one.getsockname() for one in self._listeners))

    def connection_to(self, rank: int, rail: int) -> socket.socket:
        """The connection on which we send to a rank.

        Raises:
            MemberLostError: it does not take it.
        """
        known = self._made.get((rank, rail))
        if known is None:
            known = self._made[rank, rail] = self._connect(rank, rail)
        return known

    def connection_from(self, rank: int, rail: int) -> socket.socket:
        """The connection on which a rank sends to us; waits for it.

        Raises:
            MemberLostError: it does not come in time.
        """
        while True:
            left = self._until - time.monotonic()
            with self._news:
                if self._news.wait_for(lambda: (rank, rail) in self._came, max(0.0, min(LOOK_SECONDS, left))):
                    return self._came[rank, rail]
            if left <= 0:
                raise MemberLostError(rank, "did not connect")
            missed = self._missed()  # a member that waits for a third one will not connect either
            if missed is not None:
                raise MemberLostError(missed, "is missed by another member")

    def close(self) -> None:
        """Close everything."""
        every: List[socket.socket] = [*self._listeners, *self._came.values(), *self._made.values()]
        for one in every:
            with contextlib.suppress(OSError):
                one.close()

    def _missed(self) -> Optional[int]:
        with contextlib.suppress(OSError):
            return self.folder.missed_rank()
        return None

    def _connect(self, rank: int, rail: int) -> socket.socket:
        try:
            card: MemberCard = self.folder.card(rank)
            if rail >= len(card.addresses):
                raise MemberLostError(rank, f"has {len(card.addresses)} rails, not {rail + 1}")
            left = max(0.1, self._until - time.monotonic())
            own = self._listeners[rail].getsockname()[0]  # by this rail's card, not by the default route
            connection = socket.create_connection(card.addresses[rail], min(left, GREETING_SECONDS), (own, 0))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            nonce = _exactly(connection, NONCE_BYTES)
            connection.sendall(HELLO.pack(self.rank, _proof(bytes.fromhex(card.key), nonce, self.rank)))
            if _exactly(connection, len(WELCOME)) != WELCOME:
                raise MemberLostError(rank, "sent us away")
            connection.setblocking(False)
            return connection
        except MemberLostError:
            raise
        except (OSError, ValueError) as error:
            raise MemberLostError(rank, f"cannot be reached: {getattr(error, 'strerror', None) or error}") from error

    def _accept(self, rail: int, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                guest, _ = listener.accept()
                if self._guests.acquire(blocking=False):
                    threading.Thread(target=self._authenticate, args=(rail, guest), daemon=True).start()
                else:
                    guest.close()

    def _authenticate(self, rail: int, guest: socket.socket) -> None:
        try:
            guest.settimeout(GREETING_SECONDS)
            guest.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            nonce = os.urandom(NONCE_BYTES)
            guest.sendall(nonce)
            rank, proof = HELLO.unpack(_exactly(guest, HELLO.size))
            if not hmac.compare_digest(proof, _proof(self.key, nonce, rank)):
                guest.close()
                return
            guest.sendall(WELCOME)
            guest.setblocking(False)
            with self._news:
                self._came[rank, rail] = guest
                self._news.notify_all()
        except OSError:
            guest.close()
        finally:
            self._guests.release()


def _proof(key: bytes, nonce: bytes, rank: int) -> bytes:
    return hmac.new(key, nonce + struct.pack(">I", rank), hashlib.sha256).digest()


def _exactly(connection: socket.socket, size: int) -> bytes:
    """Raises OSError where it ends before."""
    got = b""
    while len(got) < size:
        more = connection.recv(size - len(got))
        if not more:
            raise ConnectionResetError(104, "ended while it was greeted")
        got += more
    return got


class PartnerLine:
    """Connections between us and our partner, one for each direction."""

    def __init__(self, doors: RailConnections, partner: int, until: float) -> None:
        """Connect in both directions, at most `until` (monotonic clock).

        Raises:
            MemberLostError: the partner does not come.
        """
        self.partner, self._until = partner, until
        self._out, self._in = doors.connection_to(partner, 0), doors.connection_from(partner, 0)

    def send(self, message: bytes) -> None:
        """Send a message.

        Raises:
            MemberLostError: the partner ended, or takes nothing more.
        """
        try:
            self._ready(self._out).sendall(SIZE.pack(len(message)) + message)
        except OSError as error:
            raise MemberLostError(self.partner, "ended") from error

    def receive(self) -> bytes:
        """The next message.

        Raises:
            MemberLostError: the partner ended, fell silent or says what is no message.
        """
        (size,) = SIZE.unpack(self._exactly(SIZE.size))
        if size > MOST_BYTES:
            raise MemberLostError(self.partner, f"says {size} bytes at once, which no member does")
        return self._exactly(size)

    def send_json(self, **words: Any) -> None:
        """Send words as JSON; raises as `send`."""
        self.send(json.dumps(words).encode())

    def receive_json(self) -> Dict[str, Any]:
        """The next message that is not to be echoed, as words; those before it are echoed.

        Raises:
            MemberLostError: as `receive`.
        """
        while (message := self.receive()).startswith(ECHO):
            self.send(message)
        try:
            words: Dict[str, Any] = dict(json.loads(message))
        except (ValueError, TypeError) as error:
            raise MemberLostError(self.partner, "says something that is no word of ours") from error
        return words

    def request(self, **words: Any) -> Dict[str, Any]:
        """Send words and wait for the answer; raises as `receive`."""
        self.send_json(**words)
        return self.receive_json()

    def _ready(self, connection: socket.socket) -> socket.socket:
        connection.settimeout(max(LEAST_SECONDS, self._until - time.monotonic()))
        return connection

    def _exactly(self, size: int) -> bytes:
        got = b""
        try:
            self._ready(self._in)
            while len(got) < size:
                more = self._in.recv(size - len(got))
                if not more:
                    raise MemberLostError(self.partner, "ended")
                got += more
        except socket.timeout as error:
            raise MemberLostError(self.partner, "fell silent") from error
        except OSError as error:
            if isinstance(error, MemberLostError):
                raise
            raise MemberLostError(self.partner, "ended") from error
        return got


class EchoServer:
    """Answers datagrams until it is closed."""

    def __init__(self, host: str) -> None:
        """Raises OSError: no socket can be had on that address."""
        self.token = os.urandom(TOKEN_BYTES)
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((host, 0))
        self._closed = threading.Event()
        self._socket.settimeout(SILENT_SECONDS)
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Answer nobody any more."""
        self._closed.set()
        self._thread.join(2 * SILENT_SECONDS)
        self._socket.close()

    def _answer(self) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(OSError):  # nobody asks, or whoever asked has gone
                data, whom = self._socket.recvfrom(1 << 16)
                if data[:TOKEN_BYTES] == self.token:
                    self._socket.sendto(data, whom)


def measure(
    line: PartnerLine, address: Tuple[str, int], token: bytes, arguments: Mapping[str, str], until: float
) -> ParsedOutput:
    """Round trips to our partner, and datagrams to its echo at `address`.

    `arguments` may set the numbers of `round_trips` and `datagrams`; `until` is by the monotonic clock.

    Raises:
        MemberLostError: the partner ended.
        ValueError: an argument is no number.
    """
    took = round_trips(line, int(arguments.get("round_trips", ROUND_TRIPS)), until)
    sent, back = datagrams(address, token, int(arguments.get("datagrams", DATAGRAMS)), until)
    readings: List[Reading] = []
    unknown = ""
    if len(took) < LEAST_ROUND_TRIPS:
        unknown = f"only {len(took)} round trips ended in time; {LEAST_ROUND_TRIPS} are needed"
    else:
        middle, late = took[len(took) // 2], took[len(took) * 99 // 100]
        payload = f"{len(took)} round trips of {MESSAGE_BYTES} bytes by TCP: median {middle:.1f} us, p99 {late:.1f} us"
        readings.append(Reading("pair_round_trip", round(middle, 1), "us", line=payload))
        readings.append(Reading("pair_round_trip_p99", round(late, 1), "us", line=payload))
    if sent:
        payload = f"{sent - back} of {sent} datagrams of {DATAGRAM_BYTES} bytes by UDP did not come back"
        readings.append(Reading("pair_lost_datagrams", round(100.0 * (sent - back) / sent, 3), "%", line=payload))
    else:
        unknown = "; ".join(part for part in (unknown, "no datagram was sent in time") if part)
    return ParsedOutput(tuple(readings), unknown)


def round_trips(line: PartnerLine, count: int, until: float) -> List[float]:
    """Microseconds of each round trip, ascending; fewer than `count` where the time is up."""
    message, took = ECHO.ljust(MESSAGE_BYTES, b"."), list[float]()
    for number in range(WARM_UPS + count):
        if time.monotonic() > until:
            break
        began = time.perf_counter()
        line.send(message)
        line.receive()
        if number >= WARM_UPS:
            took.append((time.perf_counter() - began) * 1e6)
    return sorted(took)


def datagrams(address: Tuple[str, int], token: bytes, count: int, until: float) -> Tuple[int, int]:
    """How many datagrams were sent, and how many came back; `IN_FLIGHT` of them at once."""
    back: Set[int] = set()
    sent = 0
    with socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.setblocking(False)
        while sent < count and time.monotonic() < until:
            window = range(sent, min(sent + IN_FLIGHT, count))
            for number in window:
                # A datagram that our own node cannot send counts as lost.
                with contextlib.suppress(OSError):
                    own.sendto((token + NUMBER.pack(number)).ljust(DATAGRAM_BYTES, b"."), address)
            sent = window.stop
            _gather(own, token, set(window), back)
            if not back and sent >= SILENT_WINDOWS * IN_FLIGHT:
                break
        _gather(own, token, set(range(sent)), back)
    return sent, len(back)


def _gather(own: socket.socket, token: bytes, wanted: Set[int], back: Set[int]) -> None:
    """Add the numbers that come back to `back`, until all wanted ones have or none comes any more."""
    while wanted - back and select.select([own], [], [], SILENT_SECONDS)[0]:
        with contextlib.suppress(OSError):
            data = own.recv(1 << 16)
            if data[:TOKEN_BYTES] == token and len(data) == DATAGRAM_BYTES:
                back.add(NUMBER.unpack_from(data, TOKEN_BYTES)[0])
