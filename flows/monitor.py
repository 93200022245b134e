"""The monitor: what is wrong with the cluster, found and acted upon while nobody looks: nodes, and what was lost.

A pass lists, decides and acts once; the loop does the same at every change, and everything again every half a minute,
since a watch may lose an event. Beside the nodes it reconciles the ledger with the cluster. Each finding goes through
the ledger before anything is touched. A cluster or a ledger that does not answer is waited for: nothing is known
meanwhile, and nothing is done. The flow does the same once, as the second path, every minute.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import Event

from prefect import flow

from flows.after_tests import AfterTests
from flows.decisions.node_conditions import held
from flows.monitor_rounds import TURN_SECONDS, Beside, Looker
from flows.node_sentinel import Line, NodeReport, Sentinel, Tell
from flows.node_turns import Turns
from flows.reconcile import Reconciler, Round
from flows.sweep import Sweeper, read_sweep, sweep_of
from profiles.cluster import ClusterProfile
from profiles.errors import Conflict
from profiles.load import load_cluster
from profiles.vocabulary import Mode
from tasks.cluster import current, using
from tasks.clusters import open_cluster
from tasks.lease import driving
from tasks.node_actions import stream_nodes
from tasks.node_marks import Marker
from tasks.node_watch import Bell, NodeWatch
from tasks.opening import localised
from tasks.reconcile_notes import last_beat
from tasks.reconcile_sights import Scope
from tasks.services import Tries, revive
from tasks.session import at_hand
from tasks.settings import Settings
from tasks.sweeping import SweepSeen, looked_at, sweeps
from tasks.world import world
from workflows.node_sight import NodeSeen, beat_of, watcher_of

DEAD_SECONDS = 30.0
"""A loop that turns writes its heartbeat every 5 s."""
SECOND_PATH_SECONDS = 30.0
"""What a loop that lives has found it has also dealt with after so long."""
LOOK_SECONDS = 1.0
"""Between two looks at a sweep that a person asked for."""
LONGEST_SECONDS = 50.0
"""For one pass of reconciling: the next minute has its own."""


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
        sentinel.left_overs()
        sentinel.told(marker.wait())
        nodes = {node.name: node for node in stream_nodes(profile)}
        for _ in sentinel.judged(nodes.values(), report):
            continue
        report.faults += AfterTests(profile, report.lines.append).take(list(nodes.values()))
        report.settlement = sentinel.settle(report.faults, nodes.get)
        sentinel.told(marker.wait())
    return report


def glance(profile: ClusterProfile) -> NodeReport:
    """What is wrong with which node; nothing is written and nothing is done.

    Raises:
        Unavailable: the cluster does not answer.
        Refused: we may not read nodes.
    """
    report = NodeReport()
    for _ in Sentinel(profile, Mode.OBSERVE, Marker(current()), report.lines.append).judged(
        stream_nodes(profile), report
    ):
        continue
    return report


def keep_watch(
    profile: ClusterProfile,
    mode: Mode,
    tell: Tell,
    ended: Callable[[], bool],
    bell: Bell,
    hooks: Sequence[Callable[[], object]] = (),
) -> None:
    """Watch the nodes until `ended`, and reconcile beside it; whoever ends it rings the bell.

    Args:
        profile: of the cluster.
        mode: how far it may go.
        tell: gets each line; from several threads.
        ended: whether to end.
        bell: wakes the loop.
        hooks: called four times a second, one after the other, beside the watch; what one raises is told.

    Raises:
        Conflict: another monitor of this cluster lives.
        Fenced: another one has taken over.
    """
    with (
        driving(watcher_of(profile.name)),
        Marker(current(), wake=bell.ring) as marker,
        NodeWatch(current(), profile, world().now, bell.ring) as watch,
        Beside(Reconciler(profile, mode, tell), watch, tell, hooks, _lookers(profile, mode, tell), bell.ring) as beside,
    ):
        turns = Turns(Sentinel(profile, mode, marker, tell), watch)
        while not ended():
            turns.swept += beside.swept()
            bell.wait(min(turns.take(), TURN_SECONDS))
            beside.turned()
        turns.end()


def _lookers(profile: ClusterProfile, mode: Mode, tell: Tell) -> tuple[Looker, ...]:
    return Sweeper(profile, mode, tell).take, AfterTests(profile, tell).take


def look_around(profile: ClusterProfile, mode: Mode, tell: Tell, patience_seconds: float = 0.0) -> Round:
    """One round of reconciling; where something is too young for a judgement, once more when it is not.

    Args:
        profile: of the cluster.
        mode: how far it may go.
        tell: gets each line.
        patience_seconds: more time for a loop that does the same; then nodes are left to it.

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
    said, lines = list[str](), list[Line]()
    with at_hand(settings), using(open_cluster(profile, settings.home)):
        found = last_beat(beat_of(profile.name))
        lives = found is not None and world().now() - found.at < DEAD_SECONDS
        if started := revive(settings.home, Tries()):
            said.append(f"had died and started again: {', '.join(started)}")
        if not lives:
            since = "never turned" if found is None else f"has not turned for {world().now() - found.at:.0f} s"
            said.append(f"the loop {since}")
        around = look_around(profile, chosen, lines.append, SECOND_PATH_SECONDS if lives else 0.0)
        said += [in_words_around(around), *(f"{line.subject}: {line.why}" for line in lines if line.event == "mended")]
        if not lives:
            said.append(_look_once(profile, chosen))
        if nodes:
            said.append(_sweep_now(profile, chosen, nodes))
    return "; ".join(said)


def _look_once(profile: ClusterProfile, mode: Mode) -> str:
    """One pass over the nodes, unless somebody began to watch them a moment ago."""
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


def _read_alone(profile: ClusterProfile, mode: Mode, sweep: SweepSeen, nodes: Sequence[NodeSeen]) -> None:
    """Read a sweep and settle what it found, unless somebody else watches over this cluster."""
    known = {node.name: node for node in nodes}
    with suppress(Conflict), driving(watcher_of(profile.name)), Marker(current()) as marker:
        sentinel = Sentinel(profile, mode, marker, lambda _: None)
        swept = read_sweep(profile, sweep, nodes)
        sentinel.settle([item for item in swept.faults if not held(known[item.node])], known.get)
        sentinel.told(marker.wait())


def in_words_around(found: Round) -> str:
    """What reconciling found, in one line."""
    acted = sum(item.acted for item in found.dealt)
    away = f", not read: {', '.join(text.partition(':')[0] for text in found.away)}" if found.away else ""
    return f"{len(found.dealt)} findings beside nodes, {acted} acted upon{away}"


def in_words(report: NodeReport) -> str:
    """The report in one line."""
    quarantined = len(report.settlement.of("quarantine"))
    return (
        f"{report.nodes} nodes: {len(report.faults)} with a fault, {len(report.unknown)} not known, "
        f"{len(report.held)} out of service already; {quarantined} quarantined now"
    )
