"""The monitor: what is wrong with the cluster, found and acted upon while nobody looks. Its first organ watches nodes.

A pass lists, decides and acts once; the loop does the same at every change, and everything again every half a minute,
since a watch may lose an event. Each finding goes through the ledger before a node is touched. A cluster or a ledger
that does not answer is waited for: nothing is known meanwhile, and nothing is done.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from prefect import flow

from flows.node_sentinel import NodeReport, Sentinel, Tell
from flows.node_turns import Turns
from profiles.cluster import ClusterProfile
from profiles.load import load_cluster
from profiles.vocabulary import Mode
from tasks.cluster import current, using
from tasks.clusters import open_cluster
from tasks.lease import driving
from tasks.node_actions import stream_nodes
from tasks.node_marks import Marker
from tasks.node_watch import Bell, NodeWatch
from tasks.opening import localised
from tasks.session import at_hand
from tasks.settings import Settings
from tasks.world import world
from workflows.node_sight import watcher_of


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
        seen = {node.name: node for node in sentinel.judged(stream_nodes(profile), report)}
        report.settlement = sentinel.settle(report.faults, seen.get)
        sentinel.told(marker.wait())
    return report


def keep_watch(profile: ClusterProfile, mode: Mode, tell: Tell, ended: Callable[[], bool], bell: Bell) -> None:
    """Watch the nodes until `ended`; whoever ends it rings the bell.

    Raises:
        Conflict: another monitor of this cluster lives.
        Fenced: another one has taken over.
    """
    with (
        driving(watcher_of(profile.name)),
        Marker(current(), wake=bell.ring) as marker,
        NodeWatch(current(), profile, world().now, bell.ring) as watch,
    ):
        turns = Turns(Sentinel(profile, mode, marker, tell), watch)
        while not ended():
            bell.wait(turns.take())
        turns.end()


@flow(name="monitor", flow_run_name="monitor {cluster}")
async def monitor(cluster: str = "", mode: str = "") -> str:
    """One pass over a cluster's nodes.

    Args:
        cluster: name or path of its profile; "": the environment's.
        mode: `observe`, `ask` or `act`; "": the profile's.

    Returns:
        What was found, in words.
    """
    settings = Settings.from_environment(os.environ)
    profile = localised(load_cluster(cluster or settings.cluster), settings.home)
    with at_hand(settings), using(open_cluster(profile, settings.home)):
        return in_words(look(profile, Mode(mode) if mode else profile.monitor.mode))


def in_words(report: NodeReport) -> str:
    """The report in one line."""
    quarantined = len(report.settlement.of("quarantine"))
    return (
        f"{report.nodes} nodes: {len(report.faults)} with a fault, {len(report.unknown)} not known, "
        f"{len(report.held)} out of service already; {quarantined} quarantined now"
    )
