"""Files and descriptors written in the background, so that a hanging or full storage never stops a program.

Memory is bounded: what does not fit in the queue is dropped and counted, and the count is written instead. A descriptor
that another process reads keeps its flags: it may be shared with programs that expect it to block. Also files that
appear whole or not at all, and the paths of these programs and of the termination message.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

APPEND_QUEUE_BYTES = 16 * 1024 * 1024
"""Bytes that wait for the storage at most."""
REST_SECONDS = 0.05
"""A launcher's, whose lines come in bundles as they are."""
GENERATIONS = 2
"""Rotated files that are kept beside the current one: `.1` is newer than `.2`."""

PRINT_QUEUE_BYTES = 4 * 1024 * 1024
"""Bytes that wait for the reader at most."""
RELAYED_SHARE = 0.5
"""Of the queue, for what can be read elsewhere too: the rest is kept for what the program itself has to say."""

PROGRAMS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""Their folder; in the archive where they run from one, from which Python can import all the same."""
_ROOT = os.path.dirname(os.path.dirname(PROGRAMS))

TERMINATION_LOG = "/dev/termination-log"
"""Kubernetes puts a file there; outside of a pod there is none, and none is made."""


class _Part(NamedTuple):
    path: str
    data: bytes
    sync: bool


class Appender:
    """Appends to files in a thread of its own; paths may be any, folders are made.

    Args:
        limit_bytes: size at which a file is rotated; 0: never.
        queue_bytes: most bytes that wait for the storage.
        sync: brings the data of an open file to the storage.
        rest_seconds: pause after each write, so that frequent data is written in bundles; `flush` ends it.
    """

    def __init__(
        self,
        limit_bytes: int = 0,
        queue_bytes: int = APPEND_QUEUE_BYTES,
        sync: Callable[[int], None] = os.fdatasync,
        rest_seconds: float = 0.0,
    ) -> None:
        self._limit_bytes = limit_bytes
        self._queue_bytes = queue_bytes
        self._sync = sync
        self._rest_seconds = rest_seconds
        self._waiting: List[_Part] = []
        self._waiting_bytes = 0
        self._dropped: Dict[str, int] = {}
        self._files: Dict[str, _File] = {}
        self._changed = threading.Condition()
        self._busy = False
        self._syncing = False
        self._idle = False
        self._hurried = False
        self._closing = False
        self.last_error = ""
        """What the storage said last; "" while all is well."""
        self._thread = threading.Thread(target=self._run, name="appender", daemon=True)
        self._thread.start()

    def append(self, path: str, data: bytes, sync: bool = False) -> None:
        """Write `data` at the end of `path`, soon; with `sync` it and all before it then outlives the machine."""
        with self._changed:
            if self._waiting_bytes + len(data) > self._queue_bytes:
                self._dropped[path] = self._dropped.get(path, 0) + len(data)
                return
            if path in self._dropped:
                missing = self._dropped.pop(path)
                data = b"... %d bytes are missing here: the storage was slow or refused them\n" % missing + data
            self._waiting.append(_Part(path, data, sync))
            self._waiting_bytes += len(data)
            if self._idle:
                self._changed.notify_all()

    def flush(self, timeout_seconds: float, synced: bool = True) -> bool:
        """Wait until everything is written, and synced if `synced`; False where that exceeds `timeout_seconds`."""
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            self._hurried = True
            self._changed.notify_all()
            while self._waiting or (self._busy and (synced or not self._syncing)):
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def close(self, timeout_seconds: float) -> bool:
        """`flush`, then end the thread; it is not waited for when the storage hangs."""
        done = self.flush(timeout_seconds)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        return done

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = self._syncing = False
                self._changed.notify_all()
                self._rest()
                self._idle = True
                while not self._waiting and not self._closing:
                    self._changed.wait()
                self._idle = False
                if not self._waiting:
                    break
                batch, self._waiting, self._waiting_bytes = self._waiting, [], 0
                self._busy = True
            self._write(batch)
        for file in self._files.values():
            file.close()

    def _rest(self) -> None:
        end = time.monotonic() + self._rest_seconds
        while not self._hurried and not self._closing:
            left = end - time.monotonic()
            if left <= 0:
                break
            self._changed.wait(left)
        self._hurried = False

    def _write(self, batch: List[_Part]) -> None:
        by_path: Dict[str, List[bytes]] = {}
        for part in batch:
            by_path.setdefault(part.path, []).append(part.data)
        wanted = {part.path for part in batch if part.sync}
        written: List[_File] = []
        for path, parts in by_path.items():
            file = self._files.setdefault(path, _File(path, self._limit_bytes))
            try:
                file.write(parts)
                self.last_error = ""
            except OSError as error:
                file.close()
                self.last_error = f"{path}: {error.strerror or error}"
                with self._changed:
                    self._dropped[path] = self._dropped.get(path, 0) + sum(len(part) for part in parts)
                continue
            written += [file] if path in wanted else []
        self._sync_all(written)

    def _sync_all(self, files: List[_File]) -> None:
        with self._changed:
            self._syncing = True
            self._changed.notify_all()
        for file in files:
            try:
                file.sync(self._sync)
            except OSError as error:  # it is written all the same
                self.last_error = f"{file.path}: not synced: {error.strerror or error}"


class _File:
    def __init__(self, path: str, limit_bytes: int) -> None:
        self.path = path
        self._limit_bytes = limit_bytes
        self._fd: Optional[int] = None
        self._size = 0
        self._named = False
        """Its name is on the storage as well."""

    def write(self, parts: List[bytes]) -> None:
        """Append `parts`; rotation falls between two of them, or inside a part that is larger than the limit."""
        for part in parts:
            view = memoryview(part)
            while view:
                fd = self._open()
                room = len(view)
                if self._limit_bytes:
                    if self._size and self._size + len(view) > self._limit_bytes:
                        self._rotate()
                        continue
                    room = min(room, self._limit_bytes)
                written = os.write(fd, view[:room])
                self._size += written
                view = view[written:]

    def sync(self, sync: Callable[[int], None]) -> None:
        """Bring what was written to the storage, and the file's name with the first of it."""
        sync(self._open())
        if not self._named:
            folder = os.open(os.path.dirname(self.path) or ".", os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
            self._named = True

    def close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    def _open(self) -> int:
        if self._fd is None:
            os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self._size = os.fstat(self._fd).st_size
        return self._fd

    def _rotate(self) -> None:
        self.close()
        for number in range(GENERATIONS, 0, -1):
            older = f"{self.path}.{number}"
            newer = f"{self.path}.{number - 1}" if number > 1 else self.path
            if os.path.exists(newer):
                os.replace(newer, older)


class Printer:
    """Writes to `fd` in a thread of its own; output beyond `queue_bytes` is dropped, and its count written instead."""

    def __init__(self, fd: int, queue_bytes: int = PRINT_QUEUE_BYTES) -> None:
        self._fd = fd
        self._queue_bytes = queue_bytes
        self._waiting: List[bytes] = []
        self._waiting_bytes = 0
        self._dropped = 0
        self._changed = threading.Condition()
        self._idle = False
        self._busy = False
        self._ending = threading.Event()
        threading.Thread(target=self._run, name="printer", daemon=True).start()

    def print(self, data: bytes, share: float = 1.0) -> None:
        """Queue `data`, whole lines, unless the queue is filled beyond `share` by it."""
        with self._changed:
            if self._waiting_bytes + len(data) > self._queue_bytes * share:
                self._dropped += data.count(b"\n")
                return
            if self._dropped:
                self._mark()
            self._waiting.append(data)
            self._waiting_bytes += len(data)
            if self._idle:
                self._changed.notify_all()

    def close(self, timeout_seconds: float) -> bool:
        """Wait until everything is written; False where nobody read it in time, and it is left."""
        deadline = time.monotonic() + timeout_seconds
        self._ending.set()
        with self._changed:
            if self._dropped:
                self._mark()
            self._changed.notify_all()
            while self._waiting or self._busy:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def _mark(self) -> None:
        mark = b"... %d lines are missing here: this output was not read in time\n" % self._dropped
        self._waiting.append(mark)
        self._waiting_bytes += len(mark)
        self._dropped = 0

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._idle = True
                while not self._waiting:
                    self._changed.wait()
                self._idle = False
                data = b"".join(self._waiting)
                self._waiting, self._waiting_bytes = [], 0
                self._busy = True
            self._write(data)
            self._ending.wait(REST_SECONDS)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                try:
                    view = view[os.write(self._fd, view) :]
                except BlockingIOError:  # somebody else has made it so
                    select.select([], [self._fd], [])
        except (OSError, ValueError):
            return  # nobody will read it, or the disk is full: the training goes on, and the run's folder has it all


def write_atomically(path: str, data: bytes) -> None:
    """Write `path` so that a reader sees the old or the new content, also after a power cut.

    Raises:
        OSError: the storage refused.
    """
    folder, name = os.path.split(path)
    # The node's name as well: many containers call their first process 1, and may share the storage.
    unfinished = os.path.join(folder, f".{name}.{os.uname().nodename}.{os.getpid()}.unfinished")
    try:
        with open(unfinished, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except OSError:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
        raise


def write_outputs(program: str, folder: str, outputs: Mapping[str, str]) -> int:
    """Write the output parameters of a workflow's step, a file each; no folder: nobody wants them.

    The exit code is 0, or 3 where the folder cannot be written, which is said on standard error.
    """
    try:
        if folder:
            os.makedirs(folder, exist_ok=True)
        for name, text in outputs.items() if folder else ():
            write_atomically(os.path.join(folder, name), text.encode())
    except OSError as error:
        print(f"{program}: cannot write {folder}: {error}", file=sys.stderr, flush=True)
        return 3
    return 0


def signal_pipe(numbers: Sequence[int]) -> int:
    """A descriptor from which the numbers of these signals are read as they arrive; nothing else happens at them."""
    read, write = os.pipe()
    for fd in (read, write):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda _number, _frame: None)
    return read


def termination_log(environment: Mapping[str, str]) -> str:
    """Path of the termination message; "": nobody reads one."""
    return environment.get("PRIMUS_TERMINATION_LOG", "") or (TERMINATION_LOG if os.path.exists(TERMINATION_LOG) else "")


def archive_path() -> str:
    """The archive that this program was started from; "" where it runs from folders."""
    return _ROOT if os.path.isfile(_ROOT) else ""


def command(subcommand: str) -> List[str]:
    """Arguments that start a subcommand of the same programs with the same Python, apart from the environment's."""
    return [sys.executable, "-I", "-S", entry_path(), subcommand]


def entry_path() -> str:
    """What Python runs to start these programs: their archive, or the file that stands for it in the folders."""
    return archive_path() or os.path.join(_ROOT, "workflows", "programs", "main.py")
