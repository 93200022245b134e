"""An all-reduce between processes of this node by sockets: a ring, as the libraries of GPUs do it.

Standard library only, Python 3.9. The sum is an exclusive-or of large integers, which is the fastest reduction that the
standard library has, so the figure is one of the node's processes and sockets, not of a GPU's fabric.
"""

from __future__ import annotations

import os
import select
import socket
import time
from typing import List, Mapping, Tuple

from workflows.programs.measure import MIB, in_child, number
from workflows.programs.readings import Parsed, Reading

PATIENCE_SECONDS = 20.0


def process_all_reduce(arguments: Mapping[str, str]) -> Parsed:
    """Bus bandwidth of the ring, and how many values are wrong in any process."""
    ranks = number(arguments, "processes", 4, least=2)
    part = number(arguments, "bytes", 16 * MIB, least=ranks) // ranks
    pairs = [socket.socketpair() for _ in range(ranks)]
    reading, writing = os.pipe()
    pids: List[int] = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            links = pairs[rank - 1][1], pairs[rank][0]
            _close(pairs, links)  # or nobody would notice that a neighbour ended
            in_child(lambda rank=rank, links=links: _tell(writing, _Ring(rank, ranks, part, links)))
        pids.append(child)
    os.close(writing)
    _close(pairs, ())
    with os.fdopen(reading, encoding="ascii") as lines:
        told = [line.split() for line in lines]
    codes = [os.waitpid(pid, 0)[1] for pid in pids]
    if any(codes) or len(told) < ranks:
        return Parsed(unknown=f"only {len(told)} of {ranks} processes came to the end")
    seconds = max(float(took) for took, _ in told)
    wrong = sum(int(count) for _, count in told)
    rate = 2.0 * (ranks - 1) * part / seconds / 1e9
    line = f"{ranks} processes, {ranks * part} bytes, slowest process {seconds:.4f} s"
    return Parsed(
        (
            Reading("process_all_reduce_bandwidth", rate, "GB/s", line=line),
            Reading("process_all_reduce_wrong_values", wrong, "count", line=line),
        )
    )


def _close(pairs: List[Tuple[socket.socket, socket.socket]], kept: Tuple[socket.socket, ...]) -> None:
    for ends in pairs:
        for end in ends:
            if end not in kept:
                end.close()


def pattern(rank: int, size: int) -> bytes:
    """What a rank begins with: no two ranks the same."""
    block = bytes((value * 31 + rank * 37) % 256 for value in range(256))
    return (block * (size // 256 + 1))[:size]


class _Ring:
    """One process of the ring: gets from the one before, gives to the one after."""

    def __init__(self, rank: int, ranks: int, part: int, links: Tuple[socket.socket, socket.socket]) -> None:
        self.rank, self.ranks, self.part = rank, ranks, part
        self.before, self.after = links
        own = pattern(rank, part * ranks)
        self.parts = [int.from_bytes(own[index * part : (index + 1) * part], "little") for index in range(ranks)]

    def run(self) -> float:
        """Reduce, then gather; the seconds of both."""
        self._turn(b"ready", 5)  # nobody counts the time in which another one starts
        began = time.perf_counter()
        for step in range(self.ranks - 1):
            index = (self.rank - step) % self.ranks
            self.parts[index - 1] ^= self._pass(self.parts[index])
        for step in range(self.ranks - 1):
            index = (self.rank + 1 - step) % self.ranks
            self.parts[index - 1] = self._pass(self.parts[index])
        return time.perf_counter() - began

    def wrong(self) -> int:
        """Parts that are not the reduction of all ranks' patterns."""
        size = self.part * self.ranks
        expected = 0
        for rank in range(self.ranks):
            expected ^= int.from_bytes(pattern(rank, size), "little")
        whole = expected.to_bytes(size, "little")
        wanted = [whole[index * self.part : (index + 1) * self.part] for index in range(self.ranks)]
        return sum(
            part.to_bytes(self.part, "little") != right
            for part, right in zip(self.parts, wanted)  # noqa: B905 - 3.10
        )

    def _pass(self, value: int) -> int:
        return int.from_bytes(self._turn(value.to_bytes(self.part, "little"), self.part), "little")

    def _turn(self, data: bytes, size: int) -> bytes:
        """Send and receive at once: both neighbours do the same, and a full buffer must not stop either."""
        got, sent, view = bytearray(), 0, memoryview(data)
        deadline = time.monotonic() + PATIENCE_SECONDS
        self.after.setblocking(False)
        self.before.setblocking(False)
        while len(got) < size or sent < len(data):
            givers = [self.before] if len(got) < size else []
            takers = [self.after] if sent < len(data) else []
            readable, writable, _ = select.select(givers, takers, [], 1.0)
            if time.monotonic() > deadline:
                raise TimeoutError("a neighbour does not answer")
            if readable:
                more = self.before.recv(min(1 << 20, size - len(got)))
                if not more:
                    raise ConnectionError("a neighbour ended")
                got += more
            if writable:
                sent += self.after.send(view[sent : sent + (1 << 20)])
        return bytes(got)


def _tell(writing: int, ring: _Ring) -> None:
    seconds = ring.run()
    os.write(writing, f"{seconds:.9f} {ring.wrong()}\n".encode("ascii"))
