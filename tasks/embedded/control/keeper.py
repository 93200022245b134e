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

from tasks.embedded import linux
from tasks.embedded.objects import BREAKS
from tasks.embedded.runtime.inherited import reset_inherited
from tasks.embedded.runtime.supervisor import Zygote
from tasks.embedded.start_keeper import (
    SETTLED_SECONDS,
    busy_mark,
    forget_failures,
    keeper_command,
    keeper_environment,
    keeper_lock,
    look_mark,
    look_mark_taken,
    read_failures,
    start_mark,
    write_failure,
)
from tasks.embedded.store import locks
from tasks.embedded.store.store import BrokenObjectError, Store, read_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tasks.embedded.control.reconcile import Reconciler


MOST_BROKEN_ROUNDS = 100
"""A keeper that only ever puts objects aside makes no progress: then it ends, and the next one is started later."""


def main(root: str) -> int:
    """Keep the cluster under `root` until nothing is pending; returns at once where another keeper lives."""
    lock = locks.take(keeper_lock(root))
    if lock is None:
        return 0
    os.close(os.open(busy_mark(root), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    linux.set_process_name("primus-keeper")
    # Before the zygote is forked: every container has all this from here.
    if kept := reset_inherited():
        sys.stderr.write(f"whoever started the cluster left every container with {', '.join(kept)}\n")
    settings = read_json(os.path.join(root, "cluster.json"))
    if settings is None:
        raise SystemExit(f"{root} has no cluster.json: no process of primus has opened this cluster yet")
    # The zygote is forked before anything large is imported: every supervisor is a copy of it.
    zygote = Zygote(root, settings["namespaces"])
    from tasks.embedded.control.reconcile import Reconciler  # noqa: PLC0415 - see above

    gc.freeze()
    started = time.monotonic()
    keeper = Keeper(root, zygote, Reconciler(Store(root), zygote, settings), settings["keeper_linger_seconds"])
    if keeper.run(lock):
        return 0
    if time.monotonic() - started < SETTLED_SECONDS:
        _rest_after_zygotes(root)
    # The zygote is gone; a fresh process has a small one to fork. The lock closes with exec.
    command = keeper_command(root)
    os.execve(command[0], command, keeper_environment(root))  # noqa: S606 - itself


def _rest_after_zygotes(root: str) -> None:
    """A zygote that ends at once again and again is a failure like any other."""
    write_failure(root, "zygote ended")
    failures = read_failures(root)
    time.sleep(failures.wait_seconds(time.time()) if failures else 0.0)


class Keeper:
    """The loop around the reconciler."""

    def __init__(self, root: str, zygote: Zygote, reconciler: Reconciler, linger_seconds: float) -> None:
        self._root = root
        self._zygote = zygote
        self._reconciler = reconciler
        self._linger_seconds = linger_seconds
        self._idle_since: float | None = None
        self._settles_at = time.monotonic() + SETTLED_SECONDS if read_failures(root) else None

    def run(self, lock: int) -> bool:
        """Go on until nothing is pending (True) or the zygote is gone (False).

        What breaks on one object puts that object aside; what breaks on none ends this keeper.
        """
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        broken = 0
        while True:
            try:
                over = self._round(lock)
            except (BrokenObjectError, *BREAKS) as error:
                broken += 1
                if broken > MOST_BROKEN_ROUNDS:
                    raise
                self._reconciler.pass_over(error)
                continue
            broken = 0
            if over is not None:
                return over

    def _round(self, lock: int) -> bool | None:
        """One round, and a sleep until the next one is due; None while there is one."""
        if look_mark_taken(self._root):
            self._reconciler.look_again()
        self._reconciler.run()
        if self._reconciler.pending():
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = time.monotonic()
        elif time.monotonic() - self._idle_since >= self._linger_seconds and self._leave(lock):
            return True
        if self._settles_at is not None and time.monotonic() >= self._settles_at:
            self._settles_at = None
            forget_failures(self._root)
        # A wish of this moment may have woken us while the round was read; the next one wakes us from the sleep.
        return None if os.path.exists(look_mark(self._root)) or self._sleep() else False

    def _sleep(self) -> bool:
        poller = select.poll()
        lives = set(self._reconciler.lives.descriptors)
        for descriptor in (self._reconciler.cache.reader.notifier, self._zygote.answers, *lives):
            poller.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in poller.poll(self._timeout_milliseconds())]
        zygote_lives = self._reconciler.lives.answers() if self._zygote.answers in ready else True
        for descriptor in ready:
            if descriptor in lives:
                self._reconciler.lives.after_end(descriptor)
        return zygote_lives

    def _timeout_milliseconds(self) -> float | None:
        moments = [self._reconciler.wake_at(), self._settles_at]
        if self._idle_since is not None:
            moments.append(self._idle_since + self._linger_seconds)
        known = [moment for moment in moments if moment is not None]
        # One millisecond more, so that a timer is due when poll returns.
        return max(0.0, min(known) - time.monotonic()) * 1000 + 1 if known else None

    def _leave(self, lock: int) -> bool:
        """Give up the lock while nobody can write: a later writer then sees that no keeper lives."""
        with self._reconciler.cache.store.transaction():
            if self._reconciler.cache.refresh():
                return False
            for mark in (busy_mark(self._root), start_mark(self._root)):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(mark)
            forget_failures(self._root)
            os.close(lock)
        return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
