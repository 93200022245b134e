"""Lines of the log of changes, and finding one's way in it."""

from __future__ import annotations

import os

from profiles.errors import Unavailable


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
