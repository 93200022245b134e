"""What the monitor's loop does beside its node watch, in threads of its own: rounds of reconciling, hooks, heartbeat.

A bad node must not wait for any of them, nor they for each other. What goes wrong in one is told and tried again.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from types import TracebackType

from flows.node_sentinel import Line, Tell
from flows.reconcile import Reconciler
from profiles.errors import Fenced, Transient
from tasks.cluster import current
from tasks.node_watch import NodeWatch
from tasks.reconcile_notes import beat
from tasks.reconcile_sights import Scope
from tasks.reconcile_watch import JobSetWatch
from tasks.world import world
from workflows.node_sight import NodeFinding, NodeSeen, beat_of

ROUND_SECONDS = 5.0
"""Between two rounds of reconciling."""
SHARE = 10.0
"""A round rests at least so many times as long as it took: at most a tenth of a core."""
WIDE_SECONDS = 60.0
"""Workflows and nodes are looked at so often."""
PODS_SECONDS = 600.0
"""Training pods are: a large cluster has tens of thousands, and their JobSet speaks for them in between."""
HOOK_SECONDS = 0.25
"""So an event is on the server within a second of what it tells of: the server waits half a second of its own."""
FIRST_SECONDS = 1.0
TURN_SECONDS = 5.0
"""The node watch takes a turn at least so often, and tells."""
STUCK_SECONDS = 60.0
"""A node watch that took no turn for so long is stuck: no heartbeat is written for it."""
END_SECONDS = 10.0
Looker = Callable[[Sequence[NodeSeen]], Sequence[NodeFinding]]
"""From the nodes as they are to what is wrong with some of them."""


@dataclass
class Beside:
    """The threads. Use it in a `with` block, which ends them."""

    reconciler: Reconciler
    watch: NodeWatch
    tell: Tell
    hooks: Sequence[Callable[[], object]] = ()
    lookers: Sequence[Looker] = ()
    """Sweeps, and what tests left behind: what each finds goes the way of all findings."""
    wake: Callable[[], None] = lambda: None
    """Called when one of them found something."""
    fenced: list[Fenced] = field(default_factory=list[Fenced])
    """Another monitor has taken over: the loop must end."""

    def __post_init__(self) -> None:
        self._ended = threading.Event()
        self._turned_at = world().now()
        self._swept = SimpleQueue[NodeFinding]()
        self._threads = [self._thread("reconcile", self._reconcile), self._thread("hooks", self._run_hooks)]

    def __enter__(self) -> Beside:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(END_SECONDS)  # one that hangs is a daemon: it ends with the process

    def turned(self) -> None:
        """The node watch took a turn.

        Raises:
            Fenced: another monitor has taken over.
        """
        self._turned_at = world().now()
        for error in self.fenced:
            raise error

    def swept(self) -> list[NodeFinding]:
        """What was found beside the watch since the last call."""
        found = list[NodeFinding]()
        while True:
            try:
                found.append(self._swept.get_nowait())
            except Empty:
                return found

    def _thread(self, name: str, work: Callable[[], None]) -> threading.Thread:
        # Cluster, ledger and lease are found by context.
        return threading.Thread(target=contextvars.copy_context().run, args=(work,), name=name, daemon=True)

    def _reconcile(self) -> None:
        with JobSetWatch(current(), world().now) as jobsets:
            self._take_rounds(Rounds(self.reconciler, self.watch, jobsets))

    def _take_rounds(self, turn: Rounds) -> None:
        trouble = ""
        self._ended.wait(FIRST_SECONDS)  # the first lists are read meanwhile
        while not self._ended.is_set():
            began, rest = world().now(), ROUND_SECONDS
            try:
                turn.take()
                self._sweep()
                trouble = self._told("reconcile", trouble, "")
            except Fenced as error:
                self.fenced.append(error)
                return
            except Transient as error:
                trouble = self._told("reconcile", trouble, f"{error}; nothing is reconciled meanwhile")
                rest = max(rest, error.retry_after_seconds)
            except Exception as error:  # a mistake of ours must not end what watches over everything
                trouble = self._told("reconcile", trouble, f"{type(error).__name__}: {error}; the next round follows")
            self._ended.wait(max(rest, SHARE * (world().now() - began)))

    def _sweep(self) -> None:
        # Nodes of which nothing was heard for a while are not known to be there.
        nodes = [] if self.watch.away else self.watch.all()
        for looker in self.lookers:
            for finding in looker(nodes):
                self._swept.put(finding)
                self.wake()

    def _run_hooks(self) -> None:
        said: dict[int, str] = {}
        beaten_at = 0.0
        while not self._ended.is_set():
            now = world().now()
            if now - beaten_at >= TURN_SECONDS and now - self._turned_at < STUCK_SECONDS:
                beaten_at = now
                with suppress(Transient):  # a ledger that is away is told by those who need more of it
                    beat(beat_of(self.reconciler.profile.name))
            for number, hook in enumerate(self.hooks):
                said[number] = self._hooked(hook, said.get(number, ""))
            self._ended.wait(HOOK_SECONDS)

    def _hooked(self, hook: Callable[[], object], said: str) -> str:
        try:
            hook()
        except Exception as error:  # told, and the loop goes on
            return self._told("hook", said, f"{type(error).__name__}: {error}")
        return self._told("hook", said, "")

    def _told(self, who: str, before: str, now: str) -> str:
        """Tell trouble once, and once that it is over."""
        if now and now != before:
            self.tell(Line(world().now(), "away", "", now, subject=who))
        elif before and not now:
            self.tell(Line(world().now(), "back", "", f"over: {before}", subject=who))
        return now


@dataclass
class Rounds:
    """Which parts are due in which round."""

    reconciler: Reconciler
    watch: NodeWatch
    jobsets: JobSetWatch
    wide_at: float = 0.0
    pods_at: float = 0.0

    def take(self) -> None:
        """One round.

        Raises:
            Unavailable, Fenced.
        """
        now = world().now()
        wide, pods = now - self.wide_at >= WIDE_SECONDS, now - self.pods_at >= PODS_SECONDS
        known = wide and self.watch.away is None and bool(self.watch.names())
        self.reconciler.take(Scope(wide, pods, self.jobsets.all, self.watch.all if known else None))
        self.wide_at, self.pods_at = (now if wide else self.wide_at), (now if pods else self.pods_at)
