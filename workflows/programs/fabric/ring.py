"""What a group measures by sockets: an all-reduce, an all-to-all, and each hop of the ring by itself.

Every result is checked: each rank begins with bytes that all others can compute. The sum is an exclusive-or of large
integers, the fastest reduction of the standard library, so figures are those of processes and sockets.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from typing import List, Tuple

from workflows.programs.fabric.transport import MemberLostError, RailConnections
from workflows.programs.probes.measure import pattern

CHUNK = 1 << 20
BLOCK = 256
"""After so many bytes the pattern of a rank repeats."""
SCHEDULER = "/proc/thread-self/schedstat"
"""Nanoseconds on a processor, and waiting for one, of this thread."""
WAITED = struct.Struct(">d")
"""A receiver's answer: the seconds that it waited for a processor meanwhile."""
LEAST_SHARE = 0.02
"""Share of a hop's time that always counts, since the clocks of two processes do not agree exactly."""
MOST_FOR_ALL_TO_ALL = 128
"""Largest group with an all-to-all, in which each member needs a connection to each other."""


class RingMember:
    """One rank on one rail: receives from the rank before, sends to the rank after."""

    def __init__(self, rank: int, ranks: int, doors: RailConnections, rail: int, until: float) -> None:
        self.rank, self.ranks, self.rail = rank, ranks, rail
        self.after, self.before = (rank + 1) % ranks, (rank - 1) % ranks
        self._doors, self._until = doors, until

    def barrier(self) -> None:
        """Return once all ranks have come here: a word goes around the ring twice.

        Raises:
            MemberLostError: a neighbour ended, or the time is up.
        """
        for _ in range(2):
            if self.rank == 0:
                self.exchange(self.after, -1, b"r", 0)
                self.exchange(-1, self.before, b"", 1)
            else:
                self.exchange(-1, self.before, b"", 1)
                self.exchange(self.after, -1, b"r", 0)

    def all_reduce(self, size: int) -> Tuple[float, int]:
        """Seconds of a reduction over `size` bytes, and how many of our parts are wrong.

        Raises:
            MemberLostError: a neighbour ended, or the time is up.
        """
        part = max(1, size // self.ranks)
        own = pattern(self.rank, part * self.ranks)
        parts = [int.from_bytes(own[index * part : (index + 1) * part], "little") for index in range(self.ranks)]
        self.barrier()
        began = time.perf_counter()
        for step in range(self.ranks - 1):
            index = (self.rank - step) % self.ranks
            parts[index - 1] ^= self._shift(parts[index], part)
        for step in range(self.ranks - 1):
            index = (self.rank + 1 - step) % self.ranks
            parts[index - 1] = self._shift(parts[index], part)
        seconds = time.perf_counter() - began
        whole = _sum_of_all(self.ranks, part * self.ranks)
        wanted = (whole[index * part : (index + 1) * part] for index in range(self.ranks))
        return seconds, sum(
            one.to_bytes(part, "little") != right
            for one, right in zip(parts, wanted)  # noqa: B905 - 3.10
        )

    def all_to_all(self, size: int) -> Tuple[float, int]:
        """Seconds in which each gave each other its part of `size` bytes, and how many parts came wrong.

        Raises:
            MemberLostError: somebody ended, or the time is up.
        """
        part, wrong = max(1, size // self.ranks), 0
        own = pattern(self.rank, part)
        for step in range(1, self.ranks):  # connections are made before the clock runs
            self._doors.connection_to((self.rank + step) % self.ranks, self.rail)
        self.barrier()
        got: List[Tuple[int, bytes]] = []
        began = time.perf_counter()
        for step in range(1, self.ranks):
            source = (self.rank - step) % self.ranks
            got.append((source, self.exchange((self.rank + step) % self.ranks, source, own, part)))
        seconds = time.perf_counter() - began
        for source, data in got:
            wrong += data != pattern(source, part)
        return seconds, wrong

    def hops(self, size: int, laps: int) -> float:
        """Median seconds of our hops of `size` bytes to the one after us, while nobody else sends.

        The turn goes around the ring: the rank that has received sends next. Time in which one of the two was ready to
        run but got no processor does not count, since other processes took it, not the link.

        Raises:
            MemberLostError: a neighbour ended, or the time is up.
        """
        data, took = bytes(size), list[float]()
        self.barrier()
        for _ in range(laps):
            if self.rank == 0:
                took.append(self._hop(data))
            waited = waited_seconds()
            self.exchange(-1, self.before, b"", size)
            self._word(self._doors.connection_from(self.before, self.rail), waited_seconds() - waited)
            if self.rank != 0:
                took.append(self._hop(data))
        self.barrier()
        return sorted(took)[laps // 2]

    def exchange(self, to: int, source: int, data: bytes, size: int) -> bytes:
        """Send `data` to one rank and receive `size` bytes of another at once; -1: nobody.

        Raises:
            MemberLostError: one of them ended, or the time is up.
        """
        out = self._doors.connection_to(to, self.rail) if to >= 0 else None
        into = self._doors.connection_from(source, self.rail) if source >= 0 else None
        got, sent, view = bytearray(), 0, memoryview(data)
        while (into is not None and len(got) < size) or (out is not None and sent < len(data)):
            givers = [into] if into is not None and len(got) < size else []
            takers = [out] if out is not None and sent < len(data) else []
            readable, writable, _ = select.select(givers, takers, [], max(0.0, self._until - time.monotonic()))
            if not readable and not writable:
                raise MemberLostError(source if givers else to, "fell silent")
            for one in readable:
                got += self._received(one, source, min(CHUNK, size - len(got)))
            for one in writable:
                sent += self._sent(one, to, view[sent : sent + CHUNK])
        return bytes(got)

    def _shift(self, value: int, part: int) -> int:
        return int.from_bytes(self.exchange(self.after, self.before, value.to_bytes(part, "little"), part), "little")

    def _hop(self, data: bytes) -> float:
        waited, began = waited_seconds(), time.perf_counter()
        self.exchange(self.after, -1, data, 0)
        connection = self._doors.connection_to(self.after, self.rail)
        answer = b""
        while len(answer) < WAITED.size:  # it comes once the other has everything
            if not select.select([connection], [], [], max(0.0, self._until - time.monotonic()))[0]:
                raise MemberLostError(self.after, "fell silent")
            answer += self._received(connection, self.after, WAITED.size - len(answer))
        (theirs,) = WAITED.unpack(answer)
        seconds, ours = time.perf_counter() - began, waited_seconds() - waited
        return max(seconds - max(ours, theirs), seconds * LEAST_SHARE)

    def _word(self, connection: socket.socket, waited: float) -> None:
        try:
            connection.sendall(WAITED.pack(waited))
        except OSError as error:
            raise MemberLostError(self.before, "ended") from error

    def _received(self, connection: socket.socket, rank: int, most: int) -> bytes:
        try:
            more = connection.recv(most)
        except OSError as error:
            raise MemberLostError(rank, "ended") from error
        if not more:
            raise MemberLostError(rank, "ended")
        return more

    def _sent(self, connection: socket.socket, rank: int, data: memoryview) -> int:
        try:
            return connection.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise MemberLostError(rank, "ended") from error


def waited_seconds() -> float:
    """Seconds in which this thread was ready to run but got no processor; 0 where the kernel does not count them."""
    try:
        with open(SCHEDULER, encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _sum_of_all(ranks: int, size: int) -> bytes:
    """The exclusive-or of all ranks' patterns, which repeats with each block."""
    block = 0
    for rank in range(ranks):
        block ^= int.from_bytes(pattern(rank, BLOCK), "little")
    return (block.to_bytes(BLOCK, "little") * (size // BLOCK + 1))[:size]
