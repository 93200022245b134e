"""Following the log of a container while it is written."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import BinaryIO

from tasks.embedded.layout import PodFolder
from tasks.embedded.linux import drain, inotify
from tasks.embedded.objects import Object, entries, finished, section
from tasks.embedded.store import Store
from tasks.embedded.watch import ChangeReader
from tasks.embedded.watching import wait_with_keeper


def follow(store: Store, pod: Object, container: str, path: str, timeout_seconds: float) -> Iterator[str]:
    """Lines without their newline, until the container ended for good, the pod is gone, or the time is up."""
    deadline = time.monotonic() + timeout_seconds
    uid = pod["metadata"]["uid"]
    folder = PodFolder(store.root, uid).path
    os.makedirs(folder, mode=0o700, exist_ok=True)
    notifier = inotify(folder)
    reader = ChangeReader(store)
    file, rest = _Growing(path), b""
    try:
        while True:
            drain(notifier)
            reader.read()
            # Asked before the file is read: what was written before the end is then read for certain.
            over = _over(store, pod["metadata"]["name"], uid, container)
            *lines, rest = (rest + file.read()).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
            remaining = deadline - time.monotonic()
            if over or remaining <= 0:
                break
            wait_with_keeper(reader, store.root, remaining, notifier)
        if rest and over:
            yield rest.decode(errors="replace")
    finally:
        file.close()
        reader.close()
        os.close(notifier)


class _Growing:
    """A file that may not be there yet, and may be removed with its pod: once it was opened, all of it is read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def read(self) -> bytes:
        """What came since."""
        if self._file is None:
            try:
                self._file = open(self._path, "rb")  # noqa: SIM115 - closed by `close`
            except FileNotFoundError:
                return b""
        return self._file.read()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _over(store: Store, name: str, uid: str, container: str) -> bool:
    pod = store.get("Pod", name)
    if pod is None or pod["metadata"]["uid"] != uid or finished(pod):
        return True
    status = section(pod, "status")
    for entry in [*entries(status, "initContainerStatuses"), *entries(status, "containerStatuses")]:
        if entry["name"] == container:
            # A container that will be restarted waits or runs; only an end that stays is `terminated`.
            return "terminated" in entry["state"]
    return False
