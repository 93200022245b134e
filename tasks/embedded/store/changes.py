"""The log of changes, and its readers: the keeper (every kind) and watches of the API (one kind).

A reader holds the log open, so it still reads to the end of one that was rotated away, and notices by a gap in the
versions when it missed a whole log.
"""

from __future__ import annotations

import contextlib
import os
import select

from profiles.errors import Unavailable
from tasks.embedded.linux import drain, inotify


class Change:
    """One line of the log: `type` is ADDED, MODIFIED or DELETED; `payload` the last object of a deletion as JSON."""

    __slots__ = ("kind", "name", "payload", "type", "version")

    def __init__(self, version: int, event: str, kind: str, name: str, payload: str = "") -> None:
        self.version = version
        self.type = event
        self.kind = kind
        self.name = name
        self.payload = payload

    def line(self) -> bytes:
        """The line as it stands in the log."""
        return f"{self.version}\t{self.type}\t{self.kind}\t{self.name}\t{self.payload}\n".encode()


def parse_change(line: bytes) -> Change:
    """The change of one complete line.

    Raises:
        ValueError: it is none.
    """
    version, event, kind, name, payload = line.decode().rstrip("\n").split("\t", 4)
    return Change(int(version), event, kind, name, payload)


def whole_size(log: int) -> int:
    """Size of an open log up to its last complete line: a writer may be in the middle of the next one."""
    size = os.fstat(log).st_size
    window = 4096
    while size:
        start = max(0, size - window)
        cut = os.pread(log, size - start, start).rfind(b"\n")
        if cut >= 0 or start == 0:
            return start + cut + 1
        window *= 8
    return 0


def last_version(log: int, size: int) -> int:
    """Version in the last line of an open log of which `size` bytes are complete lines, 0 in an empty one."""
    window = 4096
    while size:
        start = max(0, size - window)
        tail = os.pread(log, size - start, start)
        cut = tail.rfind(b"\n", 0, len(tail) - 1)
        if cut >= 0 or start == 0:
            return _version_of(tail[cut + 1 :])
        window *= 8
    return 0


def _version_of(line: bytes) -> int:
    try:
        return int(line.split(b"\t", 1)[0])
    except ValueError as error:
        raise Unavailable(f"the last line of the cluster's changes/log is no change: {error}") from error


class ChangeReader:
    """Changes after the version `since` (None: after the newest), in order.

    Args:
        log_path: of the store's log (`Store.log_path`); made where it is missing.
        since: the version that is known already.
    """

    def __init__(self, log_path: str, since: int | None = None) -> None:
        self._log_path = log_path
        self.notifier = inotify(os.path.dirname(log_path))
        self._rest = b""
        self._log = self._open()
        end = whole_size(self._log)
        newest = last_version(self._log, end)
        self.version = newest if since is None else since
        if since is None:
            os.lseek(self._log, end, os.SEEK_SET)
        self._ahead = since is not None and since > newest

    def close(self) -> None:
        """Give back the descriptors."""
        os.close(self._log)
        os.close(self.notifier)

    def _open(self) -> int:
        return os.open(self._log_path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> list[Change] | None:
        """What was appended since the last call; None where changes were missed and the caller must list again."""
        drain(self.notifier)
        changes = self._drain_log()
        while self._rotated():
            os.close(self._log)
            self._log, self._rest = self._open(), b""
            changes += self._drain_log()
        missed, self._ahead = self._ahead, False
        if missed and changes:
            self.version = changes[-1].version
            return None
        fresh: list[Change] = []
        for change in changes:
            # A new log repeats the last line of the one before it.
            if change.version > self.version:
                missed = missed or change.version != self.version + 1
                self.version = change.version
                fresh.append(change)
        return None if missed else fresh

    def wait(self, timeout_seconds: float, *others: int) -> bool:
        """Sleep until the log or another descriptor is readable; whether one is."""
        poller = select.poll()
        for descriptor in (self.notifier, *others):
            poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(max(0.0, timeout_seconds) * 1000))

    def _drain_log(self) -> list[Change]:
        pieces = [self._rest]
        while piece := os.read(self._log, 1 << 20):
            pieces.append(piece)
        lines = b"".join(pieces).split(b"\n")
        self._rest = lines.pop()
        found: list[Change] = []
        for line in lines:
            # What is no change leaves a gap in the versions: the caller lists again.
            with contextlib.suppress(ValueError):
                found.append(parse_change(line))
        return found

    def _rotated(self) -> bool:
        try:
            return os.stat(self._log_path).st_ino != os.fstat(self._log).st_ino
        except FileNotFoundError:
            return False


def newest_version(log_path: str) -> str:
    """Version of the newest change, for a watch that goes on after it."""
    reader = ChangeReader(log_path)
    reader.close()
    return str(reader.version)
