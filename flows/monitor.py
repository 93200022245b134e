"""The monitor: finds what is wrong with nodes, runs and objects of a cluster, and acts on it without a person.

A pass lists, decides and acts once; the loop does so at every change, and over everything each half minute, since a
watch may lose an event. Each finding goes through the ledger before anything is touched. While a cluster or a ledger
does not answer, nothing is known and nothing is done. Rounds of reconciling, hooks and the heartbeat run in threads
beside the node watch, so that none waits for another. The `monitor` flow runs once a minute as the second path, for
where no loop lives.
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event
from types import TracebackType

from prefect import flow

from flows.decisions.monitoring.node_conditions import out_of_service
from flows.testing.due import AfterTests
from flows.watching.nodes import NodeNotice, NodeReport, Sentinel, TellNode, WatchRounds
from flows.watching.reconcile import Reconciler, Round
from flows.watching.sweep import Sweeper, read_sweep, sweep_of
from profiles.cluster import ClusterProfile, Retention
from profiles.errors import Conflict, Fenced, Transient, Unavailable
from profiles.loading.load import load_cluster
from profiles.vocabulary import Mode
from tasks.cluster import current, using
from tasks.clusters import open_cluster
from tasks.context import at_hand, world
from tasks.lease import driving
from tasks.nodes.marks import Marker
from tasks.nodes.reconcile import beat, last_beat
from tasks.nodes.sweep import SweepSeen, looked_at, sweeps
from tasks.observe.nodes import stream_nodes
from tasks.observe.reconcile import Scope
from tasks.observe.reflector import Bell, JobSetWatch, NodeWatch
from tasks.prefect.automations import asked_by
from tasks.prefect.services import Tries, revive
from tasks.runs.housekeeping import clean_up, why_blind
from tasks.settings import Settings, localised
from workflows.model.nodes import Node, NodeFinding, beat_of, people_of, watcher_of
from workflows.model.records import one_line

ROUND_SECONDS = 5.0
"""Between two rounds of reconciling."""
SHARE = 10.0
"""A round rests at least so many times as long as it took: at most a tenth of a core."""
WIDE_SECONDS = 60.0
"""Workflows and nodes are looked at so often."""
PODS_SECONDS = 600.0
"""Training pods are: a large cluster has tens of thousands, and their JobSet speaks for them in between."""
HOOK_SECONDS = 0.25
"""So an event is on the server within a second of what it reports: the server waits half a second of its own."""
FIRST_SECONDS = 1.0
HOUSE_SECONDS = 600.0
"""Between two looks for what ended runs have left behind."""
TURN_SECONDS = 5.0
"""The node watch takes a turn at least so often, and reports it."""
STUCK_SECONDS = 60.0
"""A node watch that took no turn for so long is stuck: no heartbeat is written for it."""
END_SECONDS = 10.0
Looker = Callable[[Sequence[Node]], Sequence[NodeFinding]]
"""From the nodes as they are to what is wrong with some of them."""

DEAD_SECONDS = 30.0
"""A loop that turns writes its heartbeat every 5 s."""
SECOND_PATH_SECONDS = 30.0
"""What a loop that lives has found it has also dealt with after so long."""
LOOK_SECONDS = 1.0
"""Between two looks at a sweep that a person asked for."""
LONGEST_SECONDS = 50.0
"""For one pass of reconciling: the next minute has its own."""


def keep_watch(
    profile: ClusterProfile,
    mode: Mode,
    tell: TellNode,
    ended: Callable[[], bool],
    bell: Bell,
    hooks: Sequence[Callable[[], object]] = (),
) -> None:
    """Watch the nodes until `ended`, and reconcile beside it; to end it early, ring the bell.

    `tell` gets lines from several threads; `bell` wakes the loop; `hooks` are called four times a second beside the
    watch, and what one raises is reported.

    Raises:
        Conflict: another monitor of this cluster lives.
        Fenced: another one has taken over.
    """
    lookers = (Sweeper(profile, mode, tell).take, AfterTests(profile, tell).take)
    with (
        driving(watcher_of(profile.name)),
        Marker(current(), wake=bell.ring) as marker,
        NodeWatch(current(), profile, world().now, bell.ring) as watch,
        BackgroundRounds(Reconciler(profile, mode, tell), watch, tell, hooks, lookers, bell.ring) as beside,
    ):
        turns = WatchRounds(Sentinel(profile, mode, marker, tell), watch)
        while not ended():
            turns.queue_swept += beside.swept_findings()
            bell.wait(min(turns.take(), TURN_SECONDS))
            beside.mark_turn()
        turns.end()


def keep_house(profile: ClusterProfile, mode: Mode, tell: TellNode) -> None:
    """Remove of ended runs what the profiles ask for, and report it.

    Nothing in mode `observe`, and nothing while everything is paused.

    Raises:
        Unavailable: the ledger does not answer, or a storage cannot be read.
    """
    if mode is Mode.OBSERVE or world().ledger.everything_paused() is not None:
        return
    if profile.retention != Retention() and (blind := why_blind(profile)):
        raise Unavailable(f"{blind}: nothing of ended runs is removed")
    for run, what in clean_up(profile):
        tell(NodeNotice(world().now(), "removed", "", what, subject=run or profile.name))


def look(profile: ClusterProfile, mode: Mode) -> NodeReport:
    """One pass over all nodes: list, decide, act, wait until it is done.

    Raises:
        Conflict: a monitor of this cluster lives.
        Unavailable: the cluster or the ledger does not answer.
        Refused: we may not read nodes.
    """
    report = NodeReport()
    with driving(watcher_of(profile.name)), Marker(current()) as marker:
        sentinel = Sentinel(profile, mode, marker, report.lines.append)
        sentinel.carry_out_left_overs()
        sentinel.record_marks(marker.wait())
        nodes = {node.name: node for node in stream_nodes(profile)}
        for _ in sentinel.nodes_with_findings(nodes.values(), report):
            continue
        report.faults += AfterTests(profile, report.lines.append).take(list(nodes.values()))
        report.settlement = sentinel.settle(report.faults, nodes.get)
        sentinel.record_marks(marker.wait())
    return report


def glance(profile: ClusterProfile) -> NodeReport:
    """What is wrong with which node; nothing is written and nothing is done.

    Raises:
        Unavailable: the cluster does not answer.
        Refused: we may not read nodes.
    """
    report = NodeReport()
    for _ in Sentinel(profile, Mode.OBSERVE, Marker(current()), report.lines.append).nodes_with_findings(
        stream_nodes(profile), report
    ):
        continue
    return report


def look_around(profile: ClusterProfile, mode: Mode, tell: TellNode, patience_seconds: float = 0.0) -> Round:
    """One round of reconciling; where something is too young for a judgement, once more when it is not.

    `patience_seconds`: more time for a loop that does the same; then nodes are left to it.

    Raises:
        Unavailable: the ledger does not answer.
    """
    reconciler = Reconciler(profile, mode, tell, patience_seconds)
    scope = Scope(nodes=None if patience_seconds else partial(stream_nodes, profile))
    found, until = reconciler.take(scope), world().now() + LONGEST_SECONDS
    while found.ripe_at is not None and found.ripe_at < until:
        Event().wait(max(0.0, found.ripe_at - world().now()))
        found = reconciler.take(scope)
    return found


@flow(name="monitor", flow_run_name="monitor {cluster}")
async def monitor(cluster: str = "", mode: str = "", nodes: list[str] | None = None) -> str:
    """The second path: reconcile a cluster, and watch its nodes where no loop does.

    Args:
        cluster: name or path of its profile; "": the environment's.
        mode: `observe`, `ask` or `act`; "": the profile's.
        nodes: names of nodes that are to be swept now.

    Returns:
        What was found, in words.
    """
    settings = Settings.from_environment(os.environ)
    profile = localised(load_cluster(cluster or settings.cluster), settings.home)
    chosen = Mode(mode) if mode else profile.monitor.mode
    said, lines = list[str](), list[NodeNotice]()
    with at_hand(settings), using(open_cluster(profile, settings.home)):
        if (by := asked_by()) is not None:
            asked = f"mode {chosen}" + (f", a sweep of {one_line(', '.join(nodes))}" if nodes else "")
            world().ledger.act(people_of(profile.name), "monitor", asked, by)
        found = last_beat(beat_of(profile.name))
        lives = found is not None and world().now() - found.at < DEAD_SECONDS
        said += revive(settings.home, Tries(settings.home))
        if not lives:
            since = "yet" if found is None else f"for {world().now() - found.at:.0f} s"
            said.append(f"the loop has completed no round {since}")
        around = look_around(profile, chosen, lines.append, SECOND_PATH_SECONDS if lives else 0.0)
        said += [in_words_around(around), *(f"{line.subject}: {line.why}" for line in lines if line.event == "mended")]
        if not lives:
            said.append(_look_once(profile, chosen))
        if nodes:
            said.append(_sweep_now(profile, chosen, nodes))
    return "; ".join(said)


def _look_once(profile: ClusterProfile, mode: Mode) -> str:
    """One pass over the nodes, unless another process began to watch them a moment ago."""
    try:
        return in_words(look(profile, mode))
    except Conflict as error:
        return f"nodes are left alone: {error}"


def _sweep_now(profile: ClusterProfile, mode: Mode, names: Sequence[str]) -> str:
    """Sweep nodes that a person named, and wait for the end; where a loop lives it reads what was found.

    Raises:
        ValueError: a name that is no ready node.
    """
    nodes, began = list(stream_nodes(profile)), world().now()
    name = sweep_of(profile, names, nodes)
    while (sweep := next((item for item in sweeps() if item.name == name), None)) is not None:
        if sweep.ended or sweep.late:
            _read_alone(profile, mode, sweep, nodes)
        Event().wait(LOOK_SECONDS)
    words = looked_at(profile.name, names, began)
    return "swept " + ", ".join(f"{node}: {words.get(node, 'unknown')}" for node in names)


def _read_alone(profile: ClusterProfile, mode: Mode, sweep: SweepSeen, nodes: Sequence[Node]) -> None:
    """Read a sweep and settle what it found, unless another process watches this cluster."""
    known = {node.name: node for node in nodes}
    with suppress(Conflict), driving(watcher_of(profile.name)), Marker(current()) as marker:
        sentinel = Sentinel(profile, mode, marker, lambda _: None)
        swept = read_sweep(profile, sweep, nodes)
        sentinel.settle([item for item in swept.faults if not out_of_service(known[item.node])], known.get)
        sentinel.record_marks(marker.wait())


def in_words_around(found: Round) -> str:
    """What reconciling found, in one line."""
    acted = sum(item.acted for item in found.handled)
    away = f", not read: {', '.join(text.partition(':')[0] for text in found.away)}" if found.away else ""
    return f"{len(found.handled)} other findings, {acted} acted on{away}"


def in_words(report: NodeReport) -> str:
    """The report in one line."""
    quarantined = len(report.settlement.of("quarantine"))
    return (
        f"{report.nodes} nodes: {len(report.faults)} with a fault, {len(report.unknown)} not known, "
        f"{len(report.held)} out of service already; {quarantined} quarantined now"
    )


@dataclass
class BackgroundRounds:
    """The threads beside the node watch. Use it in a `with` block, which ends them."""

    reconciler: Reconciler
    watch: NodeWatch
    tell: TellNode
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
        works = (("reconcile", self._reconcile), ("hooks", self._run_hooks), ("house", self._keep_house))
        self._threads = [self._thread(name, work) for name, work in works]

    def __enter__(self) -> BackgroundRounds:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(END_SECONDS)  # one that hangs is a daemon: it ends with the process

    def mark_turn(self) -> None:
        """Record that the node watch took a turn.

        Raises:
            Fenced: another monitor has taken over.
        """
        self._turned_at = world().now()
        for error in self.fenced:
            raise error

    def swept_findings(self) -> list[NodeFinding]:
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
                trouble = self._tell_change("reconcile", trouble, "")
            except Fenced as error:
                self.fenced.append(error)
                return
            except Transient as error:
                trouble = self._tell_change("reconcile", trouble, f"{error}; nothing is reconciled meanwhile")
                rest = max(rest, error.retry_after_seconds)
            except Exception as error:  # a mistake of ours must not end what watches over everything
                trouble = self._tell_change(
                    "reconcile", trouble, f"{type(error).__name__}: {error}; the next round follows"
                )
            self._ended.wait(max(rest, SHARE * (world().now() - began)))

    def _sweep(self) -> None:
        # Nodes without news for a while are not known to exist.
        nodes = [] if self.watch.away else self.watch.all()
        for looker in self.lookers:
            for finding in looker(nodes):
                self._swept.put(finding)
                self.wake()

    def _keep_house(self) -> None:
        outcome, known = "", self.reconciler
        while not self._ended.wait(HOUSE_SECONDS):
            outcome = self._hooked(partial(keep_house, known.profile, known.mode, self.tell), outcome, "housekeeping")

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

    def _hooked(self, hook: Callable[[], object], outcome: str, who: str = "hook") -> str:
        try:
            hook()
        except Exception as error:  # told, and the loop goes on
            return self._tell_change(who, outcome, f"{type(error).__name__}: {error}")
        return self._tell_change(who, outcome, "")

    def _tell_change(self, who: str, before: str, now: str) -> str:
        """Report trouble once, and once that it is over."""
        if now and now != before:
            self.tell(NodeNotice(world().now(), "away", "", now, subject=who))
        elif before and not now:
            self.tell(NodeNotice(world().now(), "back", "", f"over: {before}", subject=who))
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
