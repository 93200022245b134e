"""The process that moves a cluster forward: one per cluster, there only while something is pending.

It sleeps on the log of changes, on the supervisors' pidfds and on its next timer. Everything it knows stands in files,
so it may be killed at any moment: the next keeper reads them and goes on.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import sys
import time

from tasks.embedded import linux, locks
from tasks.embedded.launch import busy_mark, keeper_command, keeper_environment, keeper_lock
from tasks.embedded.store import Store, read_json
from tasks.embedded.zygote import Zygote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tasks.embedded.reconcile import Reconciler

CRASH_MEMORY_SECONDS = 60.0
"""A keeper that breaks again within this time waits longer and longer before it goes on, at most half of it."""


def main(root: str) -> int:
    """Keep the cluster under `root` until nothing is pending; returns at once where another keeper lives."""
    lock = locks.take(keeper_lock(root))
    if lock is None:
        return 0
    os.close(os.open(busy_mark(root), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    linux.set_process_name("primus-keeper")
    settings = read_json(os.path.join(root, "cluster.json"))
    if settings is None:
        return 1
    # The zygote is forked before anything large is imported: every supervisor is a copy of it.
    zygote = Zygote(root, settings["namespaces"])
    from tasks.embedded.reconcile import Reconciler  # noqa: PLC0415 - see above

    gc.freeze()
    _rest_after_crashes(root)
    try:
        keeper = Keeper(root, zygote, Reconciler(Store(root), zygote, settings), settings["keeper_linger_seconds"])
        done = keeper.run(lock)
    except Exception:
        _count_crash(root)
        raise
    if done:
        return 0
    # The zygote is gone; a fresh process has a small one to fork. The lock closes with exec.
    command = keeper_command(root)
    os.execve(command[0], command, keeper_environment(root))  # noqa: S606 - itself


def _crashes(root: str) -> tuple[str, int]:
    path = os.path.join(root, "keeper.crashes")
    try:
        recent = time.time() - os.stat(path).st_mtime < CRASH_MEMORY_SECONDS
        return path, os.stat(path).st_size if recent else 0
    except FileNotFoundError:
        return path, 0


def _count_crash(root: str) -> None:
    """One byte for each crash that came soon after another; being killed is no crash."""
    path, count = _crashes(root)
    with open(path, "wb") as file:
        file.write(b"x" * (count + 1))


def _rest_after_crashes(root: str) -> None:
    _, count = _crashes(root)
    if count:
        time.sleep(min(CRASH_MEMORY_SECONDS / 2, 0.1 * 2 ** min(count, 20)))


class Keeper:
    """The loop around the reconciler."""

    def __init__(self, root: str, zygote: Zygote, reconciler: Reconciler, linger_seconds: float) -> None:
        self._root = root
        self._zygote = zygote
        self._reconciler = reconciler
        self._linger_seconds = linger_seconds
        self._idle_since: float | None = None

    def run(self, lock: int) -> bool:
        """Go on until nothing is pending (True) or the zygote is gone (False)."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while True:
            self._reconciler.run()
            if self._reconciler.pending():
                self._idle_since = None
            elif self._idle_since is None:
                self._idle_since = time.monotonic()
            elif time.monotonic() - self._idle_since >= self._linger_seconds and self._leave(lock):
                return True
            if not self._sleep():
                return False

    def _sleep(self) -> bool:
        poller = select.poll()
        lives = set(self._reconciler.lives.descriptors)
        for descriptor in (self._reconciler.cache.reader.notifier, self._zygote.answers, *lives):
            poller.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in poller.poll(self._timeout_milliseconds())]
        zygote_lives = self._reconciler.lives.answers() if self._zygote.answers in ready else True
        for descriptor in ready:
            if descriptor in lives:
                self._reconciler.lives.ended(descriptor)
        return zygote_lives

    def _timeout_milliseconds(self) -> float | None:
        moments = [self._reconciler.wake_at()]
        if self._idle_since is not None:
            moments.append(self._idle_since + self._linger_seconds)
        known = [moment for moment in moments if moment is not None]
        # One millisecond more, so that a timer is due when poll returns.
        return max(0.0, min(known) - time.monotonic()) * 1000 + 1 if known else None

    def _leave(self, lock: int) -> bool:
        """Give up the lock while nobody can write: whoever writes afterwards sees that no keeper lives."""
        with self._reconciler.cache.store.transaction():
            if self._reconciler.cache.refresh():
                return False
            with contextlib.suppress(FileNotFoundError):
                os.unlink(busy_mark(self._root))
            os.close(lock)
        return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
