"""Digests of files by two threads: hashing and reading leave the interpreter lock, so two files run side by side.

Checksums that a file carries inside (the members of a zip, as `torch.save` writes) are compared in the same pass, and
what they cover is not hashed again: the checksum that it came to stands for it.
"""

from __future__ import annotations

import hashlib
import os
import threading
import zlib
from dataclasses import dataclass
from io import FileIO
from queue import SimpleQueue
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

BLOCK_BYTES = 4 << 20
AHEAD_BLOCKS = 4
"""Buffers of a file that is read by a thread of its own."""
AHEAD_BYTES = 32 << 20
"""How far the kernel is told to read ahead of a thread."""
THREADS = 2


@dataclass(frozen=True)
class Digest:
    """Result of reading a whole file."""

    sha256: str
    """Hexadecimal, of the file with each part that was compared replaced by the checksum it came to; "" where the file
    could not be read to its end."""
    bytes: int
    """Bytes read."""
    why: str = ""
    """The read error, or the checksum inside the file that does not agree; "": none."""


@dataclass(frozen=True)
class Part:
    """A range of a file whose checksum the file itself states."""

    offset: int
    length: int
    crc32: int
    name: str


NO_PARTS: Mapping[str, Tuple[Part, ...]] = {}


def digest_files(
    paths: Sequence[str],
    *,
    from_storage: bool = False,
    threads: int = THREADS,
    parts: Mapping[str, Tuple[Part, ...]] = NO_PARTS,
) -> Dict[str, Digest]:
    """SHA-256 of each file, largest first, on `threads` threads.

    `parts` has, by path, the ranges to compare with the checksums that the file states. `from_storage` forgets first
    what the kernel has cached, so that what is proven is what was stored.
    """
    sizes = sorted((_size(path), path) for path in paths)
    waiting = [path for _, path in sizes]
    largest = sizes[-1][0] if sizes else 0
    ahead = len(paths) < threads and largest > AHEAD_BLOCKS * BLOCK_BYTES
    block_bytes = max(4096, min(BLOCK_BYTES, largest))
    lock = threading.Lock()
    found: Dict[str, Digest] = {}

    def work() -> None:
        buffers = [memoryview(bytearray(block_bytes)) for _ in range(AHEAD_BLOCKS if ahead else 1)]
        while True:
            with lock:
                if not waiting:
                    return
                path = waiting.pop()
            found[path] = digest_file(path, buffers, from_storage=from_storage, parts=parts.get(path, ()))

    _in_threads(work, min(threads, len(waiting)))
    return {path: found.get(path, Digest("", 0, "was not read: the thread that should have died")) for path in paths}


def digest_file(
    path: str, buffers: Sequence[memoryview], *, from_storage: bool = False, parts: Sequence[Part] = ()
) -> Digest:
    """SHA-256 of one file; a read error is part of the result, not an exception. Arguments as for `digest_files`.

    With several `buffers` a second thread reads ahead while this one hashes.
    """
    running = hashlib.sha256()
    checksums = Checksums(parts)
    position = 0
    try:
        with open(path, "rb", buffering=0) as file:
            descriptor = file.fileno()
            if from_storage:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
            for block in _blocks(file, buffers[0]) if len(buffers) == 1 else _blocks_read_ahead(file, buffers):
                for piece in checksums.update(position, block):
                    running.update(piece)
                position += len(block)
    except OSError as error:
        return Digest("", position, error.strerror or str(error))
    return Digest(running.hexdigest(), position, checksums.verdict())


def _blocks(file: FileIO, buffer: memoryview) -> Iterator[memoryview]:
    """The file's content; each block is overwritten by the next."""
    position = 0
    while True:
        os.posix_fadvise(file.fileno(), position + AHEAD_BYTES, BLOCK_BYTES, os.POSIX_FADV_WILLNEED)
        count = file.readinto(buffer)
        if not count:
            return
        position += count
        yield buffer[:count]


def _blocks_read_ahead(file: FileIO, buffers: Sequence[memoryview]) -> Iterator[memoryview]:
    """As `_blocks`, by another thread: one file alone would otherwise leave the second thread idle."""
    free: "SimpleQueue[memoryview]" = SimpleQueue()
    full: "SimpleQueue[Tuple[memoryview, int, Optional[OSError]]]" = SimpleQueue()
    for buffer in buffers:
        free.put(buffer)
    threading.Thread(target=_fill, args=(file, free, full), daemon=True).start()
    while True:
        buffer, count, error = full.get()
        if error is not None:
            raise error
        if count == 0:
            return
        yield buffer[:count]
        free.put(buffer)


def _fill(
    file: FileIO, free: "SimpleQueue[memoryview]", full: "SimpleQueue[Tuple[memoryview, int, Optional[OSError]]]"
) -> None:
    while True:
        buffer = free.get()
        try:
            count = file.readinto(buffer) or 0
        except OSError as error:
            full.put((buffer, 0, error))
            return
        full.put((buffer, count, None))
        if count == 0:
            return


class Checksums:
    """CRC-32 of ranges of a file that is fed in order; ranges may not overlap."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = sorted(parts, key=lambda part: part.offset)
        self._next = 0
        self._running = 0
        self._wrong: List[str] = []

    def update(self, position: int, block: memoryview) -> List["bytes | memoryview"]:
        """Take in the bytes from `position` on; returns what stands for them.

        That is those which belong to no range and, in place of each range that ended, its checksum: four bytes, big
        endian.
        """
        at, end = position, position + len(block)
        outside: List["bytes | memoryview"] = []
        while self._next < len(self._parts) and at <= end:
            part = self._parts[self._next]
            stop = part.offset + part.length
            first, last = max(part.offset, at), min(stop, end)
            outside.append(block[at - position : min(first, end) - position])
            if first < last:
                self._running = zlib.crc32(block[first - position : last - position], self._running)
            if stop > end:
                return outside
            at = max(first, last)
            outside.append(self._running.to_bytes(4, "big"))
            if self._running != part.crc32:
                self._wrong.append(part.name)
            self._running = 0
            self._next += 1
        outside.append(block[at - position :])
        return outside

    def verdict(self) -> str:
        """Which range did not agree; empty where all did."""
        if self._next < len(self._parts):
            return f"ends before its member {self._parts[self._next].name!r}"
        return f"the checksum of its member {self._wrong[0]!r} does not agree" if self._wrong else ""


def _in_threads(work: Callable[[], None], count: int) -> None:
    others: List[threading.Thread] = [threading.Thread(target=work, daemon=True) for _ in range(max(0, count - 1))]
    for thread in others:
        thread.start()
    work()
    for thread in others:
        thread.join()


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
