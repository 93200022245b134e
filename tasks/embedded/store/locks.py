"""Record locks as proof of life: who holds the lock of a keeper or of a pod is that keeper or supervisor, and is alive.

POSIX record locks belong to one process, are not inherited by fork, and vanish with their holder whatever ends it. The
kernel names the holder's pid, so no pid file can be stale and no re-used pid can be mistaken for the holder.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

_FLOCK = "hhqqi"  # struct flock of 64-bit Linux: type, whence, start, length, pid


def take(path: str) -> int | None:
    """The descriptor of the lock file with its lock held, or None where another process holds it.

    Never open the same file again in this process: closing any descriptor of it drops the lock.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return None
        raise
    return descriptor


def holder(path: str) -> int | None:
    """Pid of the living process that holds the lock, None where nobody does."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # who may only read may ask, too
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        request = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, request))
        return None if kind == fcntl.F_UNLCK else pid
    finally:
        os.close(descriptor)


def holder_descriptor(path: str) -> int | None:
    """A pidfd of the holder, None where nobody holds the lock.

    The pid is looked up again once the descriptor is open, so it cannot belong to a later process of the same number.
    """
    for _ in range(8):
        pid = holder(path)
        if pid is None or pid <= 0:
            return None
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        if holder(path) == pid:
            return descriptor
        os.close(descriptor)
    return None
