"""The connections of one member of a group: one door for each rail, and who may come in.

A connection belongs to the rank that made it and is used for what that rank sends. Whoever comes proves that it knows
the key on the listener's card (HMAC of a fresh number), or is sent away.

Standard library only, Python 3.9.

What the two members of a pair say to each other while they measure: short messages over connections of their doors.

Each message is its length and its bytes. A message that begins with `ECHO` is sent back as it came, at once: that is
what a round trip is measured by.

Standard library only, Python 3.9.

Round trips by TCP and lost datagrams by UDP between the two nodes of a pair, by our own sockets.

Round trips go over the connection on which both know each other already. The datagrams' echo answers only to whoever
knows the number that was told there, and with as many bytes as came.

Standard library only, Python 3.9.
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

from workflows.programs.fabric.meeting import Card, Folder
from workflows.programs.parsers.text import Parsed, Reading

GREETING_SECONDS = 5.0
"""Whoever does not greet so long is sent away."""
WELCOME = b"ok"
NONCE_BYTES = 16
HELLO = struct.Struct(">I32s")
"""Rank of who comes, and its proof."""
LOOK_SECONDS = 0.25
"""So often whoever waits for a connection looks whether the group is over."""
BACKLOG = 128
MOST_GUESTS = 64
"""At the door at the same time."""


class MemberLostError(ConnectionError):
    """A member did not come, ended or fell silent."""

    def __init__(self, rank: int, why: str) -> None:
        super().__init__(f"rank {rank} {why}")
        self.rank = rank


class Doors:
    """Listens on the address of each rail and keeps who came in."""

    def __init__(self, rank: int, folder: Folder, hosts: Sequence[str], until: float) -> None:
        self.rank, self.folder, self._until = rank, folder, until
        self.key = os.urandom(32)
        self._listeners = [socket.create_server((host, 0), backlog=BACKLOG) for host in hosts]
        self._came: Dict[Tuple[int, int], socket.socket] = {}
        self._made: Dict[Tuple[int, int], socket.socket] = {}
        self._news = threading.Condition()
        self._guests = threading.Semaphore(MOST_GUESTS)
        for rail, listener in enumerate(self._listeners):
            threading.Thread(target=self._keep_door, args=(rail, listener), daemon=True).start()

    @property
    def addresses(self) -> Tuple[Tuple[str, int], ...]:
        """Of each rail."""
        return tuple((str(name[0]), int(name[1])) for name in (one.getsockname() for one in self._listeners))

    def to(self, rank: int, rail: int) -> socket.socket:
        """The connection on which we send to a rank.

        Raises:
            PeerLostError: it does not take it.
        """
        known = self._made.get((rank, rail))
        if known is None:
            known = self._made[rank, rail] = self._knock(rank, rail)
        return known

    def coming(self, rank: int, rail: int) -> socket.socket:
        """The connection on which a rank sends to us; waits for it.

        Raises:
            PeerLostError: it does not come in time.
        """
        while True:
            left = self._until - time.monotonic()
            with self._news:
                if self._news.wait_for(lambda: (rank, rail) in self._came, max(0.0, min(LOOK_SECONDS, left))):
                    return self._came[rank, rail]
            if left <= 0:
                raise MemberLostError(rank, "did not connect")
            missed = self._missed()  # whoever waits for a third one will not connect either
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
            return self.folder.over()
        return None

    def _knock(self, rank: int, rail: int) -> socket.socket:
        try:
            card: Card = self.folder.card(rank)
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

    def _keep_door(self, rail: int, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                guest, _ = listener.accept()
                if self._guests.acquire(blocking=False):
                    threading.Thread(target=self._greet, args=(rail, guest), daemon=True).start()
                else:
                    guest.close()

    def _greet(self, rail: int, guest: socket.socket) -> None:
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


ECHO = b"echo"
SIZE = struct.Struct(">I")
MOST_BYTES = 1 << 16
"""A longer message is none of ours."""
LEAST_SECONDS = 0.01


class PartnerLine:
    """Both ways between us and our partner."""

    def __init__(self, doors: Doors, partner: int, until: float) -> None:
        """Connect both ways; waits for the partner.

        Args:
            doors: ours.
            partner: its rank.
            until: by the monotonic clock; whoever says nothing by then is lost.

        Raises:
            PeerLostError: it does not come.
        """
        self.partner, self._until = partner, until
        self._out, self._in = doors.to(partner, 0), doors.coming(partner, 0)

    def say(self, message: bytes) -> None:
        """Send a message.

        Raises:
            PeerLostError: the partner ended, or takes nothing more.
        """
        try:
            self._ready(self._out).sendall(SIZE.pack(len(message)) + message)
        except OSError as error:
            raise MemberLostError(self.partner, "ended") from error

    def hear(self) -> bytes:
        """The next message.

        Raises:
            PeerLostError: the partner ended, fell silent or says what is no message.
        """
        (size,) = SIZE.unpack(self._exactly(SIZE.size))
        if size > MOST_BYTES:
            raise MemberLostError(self.partner, f"says {size} bytes at once, which no member does")
        return self._exactly(size)

    def tell(self, **words: Any) -> None:
        """Send words as JSON; raises as `say`."""
        self.say(json.dumps(words).encode())

    def told(self) -> Dict[str, Any]:
        """The next message that is not to be echoed, as words; those before it are echoed.

        Raises:
            PeerLostError: as `hear`.
        """
        while (message := self.hear()).startswith(ECHO):
            self.say(message)
        try:
            words: Dict[str, Any] = dict(json.loads(message))
        except (ValueError, TypeError) as error:
            raise MemberLostError(self.partner, "says something that is no word of ours") from error
        return words

    def asked(self, **words: Any) -> Dict[str, Any]:
        """Send words and wait for the answer; raises as `hear`."""
        self.tell(**words)
        return self.told()

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
"""So long an echo may take; those that come later still count."""
SILENT_WINDOWS = 4
"""After so many windows without any echo nothing comes back at all, and the rest is not sent."""
TOKEN_BYTES = 16
NUMBER = struct.Struct(">I")


class Echo:
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
) -> Parsed:
    """What the way to our partner is like.

    Args:
        line: to it.
        address: where its echo listens.
        token: what the echo answers to.
        arguments: `round_trips` and `datagrams`, how many of each.
        until: by the monotonic clock.

    Raises:
        PeerLostError: it ended.
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
        said = f"{len(took)} round trips of {MESSAGE_BYTES} bytes by TCP: median {middle:.1f} us, p99 {late:.1f} us"
        readings.append(Reading("pair_round_trip", round(middle, 1), "us", line=said))
        readings.append(Reading("pair_round_trip_p99", round(late, 1), "us", line=said))
    if sent:
        said = f"{sent - back} of {sent} datagrams of {DATAGRAM_BYTES} bytes by UDP did not come back"
        readings.append(Reading("pair_lost_datagrams", round(100.0 * (sent - back) / sent, 3), "%", line=said))
    else:
        unknown = "; ".join(part for part in (unknown, "no datagram was sent in time") if part)
    return Parsed(tuple(readings), unknown)


def round_trips(line: PartnerLine, count: int, until: float) -> List[float]:
    """Microseconds of each round trip, ascending; fewer than `count` where the time is up."""
    message, took = ECHO.ljust(MESSAGE_BYTES, b"."), list[float]()
    for number in range(WARM_UPS + count):
        if time.monotonic() > until:
            break
        began = time.perf_counter()
        line.say(message)
        line.hear()
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
                # One that the own node cannot send is lost, too.
                with contextlib.suppress(OSError):
                    own.sendto((token + NUMBER.pack(number)).ljust(DATAGRAM_BYTES, b"."), address)
            sent = window.stop
            _gather(own, token, set(window), back)
            if not back and sent >= SILENT_WINDOWS * IN_FLIGHT:
                break
        _gather(own, token, set(range(sent)), back)
    return sent, len(back)


def _gather(own: socket.socket, token: bytes, wanted: Set[int], back: Set[int]) -> None:
    """Note which numbers come back, until all that are wanted have, or nothing comes any more."""
    while wanted - back and select.select([own], [], [], SILENT_SECONDS)[0]:
        with contextlib.suppress(OSError):
            data = own.recv(1 << 16)
            if data[:TOKEN_BYTES] == token and len(data) == DATAGRAM_BYTES:
                back.add(NUMBER.unpack_from(data, TOKEN_BYTES)[0])
