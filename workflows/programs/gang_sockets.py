"""Round trips by TCP and lost datagrams by UDP between the two nodes of a pair, by our own sockets.

Round trips go over the connection on which both know each other already. The datagrams' echo answers only to whoever
knows the number that was told there, and with as many bytes as came.

Standard library only, Python 3.9.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
from typing import List, Mapping, Set, Tuple

from workflows.programs.gang_line import ECHO, Line
from workflows.programs.readings import Parsed, Reading

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


def measure(line: Line, address: Tuple[str, int], token: bytes, arguments: Mapping[str, str], until: float) -> Parsed:
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


def round_trips(line: Line, count: int, until: float) -> List[float]:
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
