"""Measurements that need no vendor's tool: memory, processor, storage, loopback, an all-reduce of processes, a volume.

numpy, where the image has it, makes the processor's figure that of its own library. Each returns readings; the caller
runs it in a process of its own and ends it where it hangs.

The all-reduce goes by sockets around a ring, as in the libraries of GPUs. Its sum is an exclusive-or of large integers,
the fastest reduction of the standard library, so the figure is one of the node's processes and sockets. A volume that
was made for the test must give back what is written to it; the flow that claimed it checks that it is deleted.
"""

from __future__ import annotations

import errno
import operator
import os
import select
import socket
import time
from typing import Callable, Dict, List, Mapping, Tuple

from workflows.programs.parsers.text import ParsedOutput, Reading
from workflows.programs.probes.node import STORAGE_VARIABLE, Arguments, number

MIB = 1 << 20
CHUNK = 1 << 18
ECHOES = 200


def best_rate(work: Callable[[], float], rounds: int) -> float:
    """The best of some rounds, each of which tells an amount: amount a second. The first one warms up."""
    best = 0.0
    for turn in range(rounds + 1):
        began = time.perf_counter()
        amount = work()
        seconds = time.perf_counter() - began
        if turn:
            best = max(best, amount / seconds)
    return best


def memory_bandwidth(arguments: Arguments) -> ParsedOutput:
    """Copying a block much larger than the caches: bytes read and written a second."""
    size = number(arguments, "bytes", 128 * MIB, least=MIB)
    source, target = bytearray(os.urandom(MIB) * (size // MIB)), bytearray(size // MIB * MIB)

    def copy() -> float:
        target[:] = source
        return 2.0 * len(source)

    rate = best_rate(copy, 5) / 1e9
    return ParsedOutput(
        (Reading("memory_bandwidth", rate, "GB/s", line=f"copied {size // MIB} MiB, read and written"),)
    )


def cpu_gemm(arguments: Arguments) -> ParsedOutput:
    """A product of two matrices, checked: numpy's where there is one, else a small one in plain Python."""
    try:
        import numpy as np  # pyright: ignore[reportMissingImports]  # the image may have none
    except ImportError:
        return _plain_gemm(min(96, number(arguments, "size", 96, least=2)))
    size = number(arguments, "size", 1024, least=2)
    left = np.arange(size * size, dtype=np.float32).reshape(size, size) % 7.0
    right = np.eye(size, dtype=np.float32) * 2.0
    product = left @ right
    flops = 2.0 * size**3

    def multiply() -> float:
        np.matmul(left, right, out=product)
        return flops

    rate = best_rate(multiply, 5) / 1e9
    wrong = int(np.count_nonzero(product != left * 2.0))
    return _gemm(rate, wrong, f"numpy {np.__version__}, {size} x {size}, fp32")


def _plain_gemm(size: int) -> ParsedOutput:
    left = [[float((row * size + column) % 7) for column in range(size)] for row in range(size)]
    right = [[2.0 if row == column else 0.0 for row in range(size)] for column in range(size)]
    product: List[List[float]] = []

    def multiply() -> float:
        product[:] = [[sum(map(operator.mul, row, column)) for column in right] for row in left]
        return 2.0 * size**3

    rate = best_rate(multiply, 2) / 1e9
    wrong = sum(product[row][column] != 2.0 * left[row][column] for row in range(size) for column in range(size))
    return _gemm(rate, wrong, f"plain Python, {size} x {size}, fp64")


def _gemm(rate: float, wrong: int, line: str) -> ParsedOutput:
    return ParsedOutput(
        (Reading("cpu_gemm", rate, "GFLOP/s", line=line), Reading("cpu_gemm_wrong_values", wrong, "count", line=line))
    )


def storage(arguments: Arguments) -> ParsedOutput:
    """Writing a file, making it durable, and reading it back from the device, past the cache.

    Raises:
        OSError: the folder cannot be written.
    """
    folder, size = arguments.get("path", "."), number(arguments, "bytes", 64 * MIB, least=MIB)
    block, blocks = os.urandom(MIB), size // MIB
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f".probe-{os.uname().nodename}-{os.getpid()}")
    try:
        write_seconds, sync_seconds = _write(path, block, blocks)
        read_seconds, wrong = _read(path, block, blocks)
    finally:
        if os.path.exists(path):
            os.unlink(path)
    line = f"{blocks} MiB in {os.path.dirname(folder) or folder}"
    return ParsedOutput(
        (
            Reading("storage_write_bandwidth", blocks * MIB / write_seconds / 1e9, "GB/s", line=line),
            Reading("storage_read_bandwidth", blocks * MIB / read_seconds / 1e9, "GB/s", line=line),
            Reading("storage_sync_time", sync_seconds * 1e3, "ms", line=line),
            Reading("storage_wrong_bytes", wrong, "count", line=line),
        )
    )


def storage_times(folder: str) -> Tuple[float, float, float]:
    """This node's time (Unix seconds) before and after it wrote a small file, and the time that the storage gave it.

    Raises:
        OSError: the folder cannot be written.
    """
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f".clock-{os.uname().nodename}-{os.getpid()}-{time.monotonic_ns()}")
    before = time.time()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, b"x")
        os.fsync(handle)
        return before, time.time(), os.fstat(handle).st_mtime
    finally:
        os.close(handle)
        os.unlink(path)


def _write(path: str, block: bytes, blocks: int) -> Tuple[float, float]:
    """Seconds for all of it, and of these for making it durable."""
    began = time.perf_counter()
    with open(path, "wb", buffering=0) as file:
        for _ in range(blocks):
            file.write(block)
        written = time.perf_counter()
        os.fsync(file.fileno())
    ended = time.perf_counter()
    return ended - began, ended - written


def _read(path: str, block: bytes, blocks: int) -> Tuple[float, int]:
    """Seconds, and how many bytes are not what was written."""
    wrong = 0
    with open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        began = time.perf_counter()
        for _ in range(blocks):
            found = file.read(MIB)
            if found != block:
                same = sum(map(operator.eq, found, block))
                wrong += len(block) - same
        return time.perf_counter() - began, wrong


def loopback(arguments: Arguments) -> ParsedOutput:
    """A TCP connection from one process to another on this machine: how much, and how soon one byte comes back."""
    size = number(arguments, "bytes", 256 * MIB, least=CHUNK)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10.0)
        child = os.fork()
        if child == 0:
            in_child(lambda: _send(server.getsockname(), size))
        connection, _ = server.accept()
        with connection:
            connection.settimeout(10.0)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            latency = _echo_seconds(connection)
            received, seconds = _receive(connection, size // CHUNK * CHUNK)
    os.waitpid(child, 0)
    if received < size // CHUNK * CHUNK:
        return ParsedOutput(unknown=f"only {received} of {size} bytes came through")
    line = f"{size // MIB} MiB by TCP"
    return ParsedOutput(
        (
            Reading("loopback_bandwidth", received / seconds / 1e9, "GB/s", line=line),
            Reading("loopback_latency", latency * 1e6, "us", line=f"median of {ECHOES}, there and back, halved"),
        )
    )


def _echo_seconds(connection: socket.socket) -> float:
    """One way, half of the median time there and back."""
    took: List[float] = []
    for _ in range(ECHOES):
        began = time.perf_counter()
        connection.sendall(b"x")
        connection.recv(1)
        took.append(time.perf_counter() - began)
    return sorted(took)[ECHOES // 2] / 2.0


def _receive(connection: socket.socket, size: int) -> Tuple[int, float]:
    received, target, began = 0, bytearray(CHUNK), time.perf_counter()
    while received < size:
        got = connection.recv_into(target)
        if not got:
            break
        received += got
    return received, time.perf_counter() - began


def _send(address: Tuple[str, int], size: int) -> None:
    """The other end: gives back what it gets, then sends."""
    block = b"\0" * CHUNK
    with socket.create_connection(address, timeout=10.0) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(ECHOES):
            connection.sendall(connection.recv(1))
        for _ in range(size // CHUNK):
            connection.sendall(block)


def in_child(work: Callable[[], None]) -> None:
    """Do it and end, whatever comes: a forked child must not go on as its parent would."""
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


PATIENCE_SECONDS = 20.0


def process_all_reduce(arguments: Mapping[str, str]) -> ParsedOutput:
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
            in_child(lambda rank=rank, links=links: _tell(writing, ExclusiveOrRing(rank, ranks, part, links)))
        pids.append(child)
    os.close(writing)
    _close(pairs, ())
    with os.fdopen(reading, encoding="ascii") as lines:
        results = [line.split() for line in lines]
    codes = [os.waitpid(pid, 0)[1] for pid in pids]
    if any(codes) or len(results) < ranks:
        return ParsedOutput(unknown=f"only {len(results)} of {ranks} processes came to the end")
    seconds = max(float(took) for took, _ in results)
    wrong = sum(int(count) for _, count in results)
    rate = 2.0 * (ranks - 1) * part / seconds / 1e9
    line = f"{ranks} processes, {ranks * part} bytes, slowest process {seconds:.4f} s"
    return ParsedOutput(
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


class ExclusiveOrRing:
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
            self.parts[index - 1] ^= self.pass_on(self.parts[index])
        for step in range(self.ranks - 1):
            index = (self.rank + 1 - step) % self.ranks
            self.parts[index - 1] = self.pass_on(self.parts[index])
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

    def pass_on(self, value: int) -> int:
        """Give a value to the next process; the one that came from the process before."""
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


def _tell(writing: int, ring: ExclusiveOrRing) -> None:
    seconds = ring.run()
    os.write(writing, f"{seconds:.9f} {ring.wrong()}\n".encode("ascii"))


FAULTS: Mapping[int, str] = {
    errno.EROFS: "it is mounted read-only",
    errno.ENOSPC: "it is full",
    errno.EDQUOT: "its quota is used up",
    errno.EIO: "its device fails",
    errno.ESTALE: "its mount is stale",
}
"""What a new volume must not answer; anything else leaves the check unknown."""


def volume(arguments: Mapping[str, str]) -> ParsedOutput:
    """What is wrong with the volume, as a count of faults: 0 or 1.

    Raises:
        OSError: it could not be tried, and that is no fault of the volume.
        ArgumentError: `bytes` is no size.
    """
    folder = os.environ.get(STORAGE_VARIABLE, "")
    if not folder:
        return ParsedOutput(unknown="no folder of a volume was given")
    try:
        results = storage({**arguments, "path": folder})
    except OSError as error:
        what = FAULTS.get(error.errno or 0)
        if what is None:
            raise
        return _fault(f"{what}: {error.strerror}")
    figures = {one.quantity: one.value or 0.0 for one in results.readings}
    if figures["storage_wrong_bytes"]:
        return _fault(f"{figures['storage_wrong_bytes']:g} bytes came back wrong")
    rates = f"{figures['storage_write_bandwidth']:.2g} GB/s, read at {figures['storage_read_bandwidth']:.2g} GB/s"
    line = f"{results.readings[0].line.partition(' in ')[0]} written at {rates}, all as written"
    return ParsedOutput((Reading("volume_faults", 0.0, "count", line=line),))


def _fault(line: str) -> ParsedOutput:
    return ParsedOutput((Reading("volume_faults", 1.0, "count", line=line),))


PROBES: Dict[str, Callable[[Arguments], ParsedOutput]] = {
    "memory-bandwidth": memory_bandwidth,
    "cpu-gemm": cpu_gemm,
    "storage": storage,
    "loopback": loopback,
    "process-all-reduce": process_all_reduce,
    "volume": volume,
}
"""By the names of `profiles/checks/catalogue.py`."""
