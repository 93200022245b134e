"""A host's disks: room where Kubernetes keeps its things, and how fast one write is safe where etcd will live."""

from __future__ import annotations

import math
import os
import tempfile
import time
from typing import Any, Callable, Dict, List, Tuple

from workflows.programs.hosts.items import CannotReadError, read
from workflows.programs.hosts.options import Options

WRITES = 100
WRITE_BYTES = 2300
"""What etcd's own test of a disk writes before each fdatasync (fio --bs=2300, etcd's FAQ on slow disks)."""
FSYNC_SECONDS = 10.0
"""A disk that has not done all by then is judged by what it did, however little."""


def works(asked: Options) -> Dict[str, Callable[[], Any]]:
    """Item -> how it is read."""
    found: Dict[str, Callable[[], Any]] = {"disks": lambda: [_disk(asked.root, folder) for folder in asked.folders]}
    return found


def _disk(root: str, folder: str) -> Dict[str, Any]:
    place = present(root, folder)
    found = os.statvfs(place)
    device, kind = _mount(root, os.path.realpath(place))
    return {
        "folder": folder,
        "device": device,
        "kind": kind,
        "total_bytes": found.f_blocks * found.f_frsize,
        "free_bytes": found.f_bavail * found.f_frsize,
        "free_files": found.f_favail if found.f_files else -1,
    }


def present(root: str, folder: str) -> str:
    """The folder itself, or the nearest one above it that is there."""
    path: str = os.path.join(root, folder.lstrip("/"))
    while not os.path.isdir(path) and path not in ("", "/"):
        path = os.path.dirname(path)
    return path or "/"


def _mount(root: str, path: str) -> Tuple[str, str]:
    """Device and kind of the file system on which it lies."""
    best = ("", "", "")
    for line in read(root, "/proc/mounts").splitlines():
        words = line.split()
        if len(words) > 2:
            point = words[1].replace("\\040", " ")
            if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(best[0]):
                best = (point, words[0], words[2])
    return best[1], best[2]


def fsync_latency(root: str, folder: str) -> Dict[str, Any]:
    """Latencies of a small write that is made safe, in a file without a name: nothing is left, whatever happens.

    Raises:
        CannotReadError: there is no place to write.
    """
    place = present(root, folder)
    try:
        handle, block, took = _nameless(place), os.urandom(WRITE_BYTES), []
        try:
            took = _writes(handle, block)
        finally:
            os.close(handle)
    except OSError as error:
        raise CannotReadError(f"nothing can be written in {place}: {error.strerror or error}") from error
    took.sort()
    rank = math.ceil(0.99 * len(took)) - 1
    return {"folder": place, "p99_ms": 1e3 * took[rank], "median_ms": 1e3 * took[len(took) // 2], "writes": len(took)}


def _nameless(folder: str) -> int:
    flag = getattr(os, "O_TMPFILE", 0)
    if flag:
        try:
            return os.open(folder, os.O_WRONLY | flag, 0o600)
        except OSError:  # a file system that has no such files
            pass
    handle, path = tempfile.mkstemp(dir=folder, prefix=".primus-fsync-")
    os.unlink(path)
    return handle


def _writes(handle: int, block: bytes) -> List[float]:
    took: List[float] = []
    deadline = time.monotonic() + FSYNC_SECONDS
    while len(took) < WRITES and (not took or time.monotonic() < deadline):
        began = time.monotonic()
        os.write(handle, block)
        os.fdatasync(handle)
        took.append(time.monotonic() - began)
    return took
