"""Sweeps of nodes: begun when due, read when ended; a bad node is dealt with as any other finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flows.decisions.node_tests.sweep import FIRST_SECONDS, SweepResult, is_ready, judge, next_nodes, pause_seconds
from flows.watching.nodes import NodeNotice, TellNode
from profiles.cluster import ClusterProfile
from profiles.vocabulary import Mode
from tasks.context import world
from tasks.nodes.sweep import (
    SweepSeen,
    begin_sweep,
    begun_at,
    count_sweep,
    forget_sweep,
    keep_reports,
    last_looks,
    sweeps,
)
from workflows.model.nodes import Node, NodeFinding


@dataclass
class Sweeper:
    """Looks after the sweeps of one cluster, a moment at a time."""

    profile: ClusterProfile
    mode: Mode
    tell: TellNode

    def __post_init__(self) -> None:
        self._next_at: float | None = None

    def take(self, nodes: Sequence[Node]) -> list[NodeFinding]:
        """Read what ended, begin what is due; the faults that were found.

        In mode observe, and while everything is paused, none is begun.

        Raises:
            Unavailable, Refused.
        """
        found, running = list[NodeFinding](), False
        for sweep in sweeps():
            if sweep.ended or sweep.late:
                found += self.harvest(sweep, nodes)
            else:
                running = True
        if not running and self._is_due(nodes):
            self._begin(nodes)
        return found

    def harvest(self, sweep: SweepSeen, nodes: Sequence[Node]) -> list[NodeFinding]:
        """Judge a sweep's reports, keep them and delete the workflow; the faults that were found."""
        swept = read_sweep(self.profile, sweep, nodes)
        now = world().now()
        for node, what in swept.notes:
            self.tell(NodeNotice(now, "swept", node, what))
        for what in swept.shared:
            self.tell(NodeNotice(now, "swept", "", what, subject=sweep.name))
        silent = len(set(sweep.nodes) - {report.node for report in sweep.reports if report.at})
        if silent:
            why = f"{silent} of {len(sweep.nodes)} nodes did not answer: their state is unknown; {sweep.message}"
            self.tell(NodeNotice(now, "swept", "", why.strip("; "), subject=sweep.name))
        return list(swept.faults)

    def _is_due(self, nodes: Sequence[Node]) -> bool:
        if not nodes or not self.profile.monitor.sweep_seconds or self.mode is Mode.OBSERVE:
            return False
        if world().ledger.everything_paused() is not None:
            return False
        now = world().now()
        if self._next_at is None:
            # A loop that was started a moment ago waits its turn like any other.
            last = begun_at(self.profile.name)
            self._next_at = (now if last is None else last) + self.profile.monitor.sweep_seconds
        return now >= self._next_at

    def _begin(self, nodes: Sequence[Node]) -> None:
        monitor, now = self.profile.monitor, world().now()
        looked_at = last_looks(self.profile.name)
        chosen = next_nodes(nodes, looked_at, monitor)
        self._next_at = now + pause_seconds(len(chosen), len(nodes), monitor)
        if chosen:
            since = min(looked_at.get(node.name, now - FIRST_SECONDS) for node in chosen)
            begin_sweep(self.profile, chosen, count_sweep(self.profile.name), since)


def read_sweep(profile: ClusterProfile, sweep: SweepSeen, nodes: Sequence[Node]) -> SweepResult:
    """What a sweep found; kept in the ledger, and its workflow deleted. Safe to repeat until that.

    Raises:
        Unavailable, Refused.
    """
    answered = [report for report in sweep.reports if report.at]
    swept = judge(answered, {node.name: node.pool for node in nodes}, last_looks(profile.name))
    keep_reports(profile.name, sweep.reports, sweep.name)
    forget_sweep(sweep.name)
    return swept


def sweep_of(profile: ClusterProfile, names: Sequence[str], nodes: Sequence[Node]) -> str:
    """Begin a sweep of these nodes now; the name of its workflow.

    Raises:
        ValueError: a name that is no ready node of the cluster's pools.
        Unavailable, Refused.
    """
    known = {node.name: node for node in nodes}
    missing = [name for name in names if name not in known or not is_ready(known[name])]
    if missing:
        raise ValueError(f"nodes: {', '.join(missing)}: no such node of {profile.name} is ready")
    now, looked_at = world().now(), last_looks(profile.name)
    since = min(looked_at.get(name, now - FIRST_SECONDS) for name in names)
    return begin_sweep(profile, [known[name] for name in names], int(now), since)
