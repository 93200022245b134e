"""Measurements that need no vendor's tool: memory, processor, storage and loopback.

Standard library only, Python 3.9; numpy, where the image has it, makes the processor's figure that of its own library.
Each returns readings; the caller runs it in a process of its own and ends it where it hangs.
"""

from __future__ import annotations

import operator
import os
import socket
import time
from typing import Callable, Dict, List, Mapping, Tuple

from workflows.programs.readings import Parsed, Reading

MIB = 1 << 20
CHUNK = 1 << 18
ECHOES = 200
Arguments = Mapping[str, str]


class ArgumentError(ValueError):
    """An argument that cannot be measured with; the message names it."""


def number(arguments: Arguments, name: str, default: int, least: int = 1) -> int:
    """An argument as a whole number.

    Raises:
        ArgumentError: it is none, or too small.
    """
    text = arguments.get(name, str(default))
    try:
        value = int(text)
    except ValueError:
        raise ArgumentError(f"{name}: must be a whole number, got {text!r}") from None
    if value < least:
        raise ArgumentError(f"{name}: must be at least {least}, got {value}")
    return value


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


def memory_bandwidth(arguments: Arguments) -> Parsed:
    """Copying a block much larger than the caches: bytes read and written a second."""
    size = number(arguments, "bytes", 128 * MIB, least=MIB)
    source, target = bytearray(os.urandom(MIB) * (size // MIB)), bytearray(size // MIB * MIB)

    def copy() -> float:
        target[:] = source
        return 2.0 * len(source)

    rate = best_rate(copy, 5) / 1e9
    return Parsed((Reading("memory_bandwidth", rate, "GB/s", line=f"copied {size // MIB} MiB, read and written"),))


def cpu_gemm(arguments: Arguments) -> Parsed:
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


def _plain_gemm(size: int) -> Parsed:
    left = [[float((row * size + column) % 7) for column in range(size)] for row in range(size)]
    right = [[2.0 if row == column else 0.0 for row in range(size)] for column in range(size)]
    product: List[List[float]] = []

    def multiply() -> float:
        product[:] = [[sum(map(operator.mul, row, column)) for column in right] for row in left]
        return 2.0 * size**3

    rate = best_rate(multiply, 2) / 1e9
    wrong = sum(product[row][column] != 2.0 * left[row][column] for row in range(size) for column in range(size))
    return _gemm(rate, wrong, f"plain Python, {size} x {size}, fp64")


def _gemm(rate: float, wrong: int, line: str) -> Parsed:
    return Parsed(
        (Reading("cpu_gemm", rate, "GFLOP/s", line=line), Reading("cpu_gemm_wrong_values", wrong, "count", line=line))
    )


def storage(arguments: Arguments) -> Parsed:
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
    return Parsed(
        (
            Reading("storage_write_bandwidth", blocks * MIB / write_seconds / 1e9, "GB/s", line=line),
            Reading("storage_read_bandwidth", blocks * MIB / read_seconds / 1e9, "GB/s", line=line),
            Reading("storage_sync_time", sync_seconds * 1e3, "ms", line=line),
            Reading("storage_wrong_bytes", wrong, "count", line=line),
        )
    )


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


def loopback(arguments: Arguments) -> Parsed:
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
        return Parsed(unknown=f"only {received} of {size} bytes came through")
    line = f"{size // MIB} MiB by TCP"
    return Parsed(
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


MEASUREMENTS: Dict[str, Callable[[Arguments], Parsed]] = {
    "memory-bandwidth": memory_bandwidth,
    "cpu-gemm": cpu_gemm,
    "storage": storage,
    "loopback": loopback,
}
"""By name of the probe."""
