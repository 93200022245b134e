"""What a decision about nodes needs to know: the pool's nodes, and where the brake stands."""

from __future__ import annotations

from dataclasses import replace

from profiles.errors import PrimusError
from profiles.resolve import Resolved
from tasks.cluster import current
from tasks.facts import node_candidate, pool_selector
from tasks.nodes import busy_nodes
from tasks.streaming import each
from tasks.world import patient, world
from workflows.evidence import AttemptView
from workflows.fleet import BrakeState, NodeCandidate
from workflows.records import AttemptRecord

ROOM_SECONDS = 2.0
"""Between two looks at the pool for a gang that is to move: each lists the namespace's pods."""
SLOW_ROOM_SECONDS = 15.0
"""The same for a gang with a slow rank, which is in no hurry."""


@patient
def node_candidates(resolved: Resolved, run: str, attempt: int) -> list[NodeCandidate]:
    """Every node of the run's pool with what the cluster and the ledger know of it."""
    return _now(resolved, run, attempt)


class Room:
    """What the pool has for an attempt of which somebody wants a node empty.

    Args:
        resolved: the run's profile.
        attempt: which.
    """

    def __init__(self, resolved: Resolved, attempt: AttemptRecord) -> None:
        self._resolved, self._attempt = resolved, attempt
        self._asked_at = -ROOM_SECONDS
        self._pool: tuple[NodeCandidate, ...] | None = None

    def look(self, view: AttemptView) -> AttemptView:
        """The view with the pool, where a node of the gang is cordoned or slow; who does not answer is asked later."""
        cordoned = any(node.unschedulable for node in view.nodes)
        slow = view.coordinator is not None and bool(view.coordinator.news.stragglers)
        if view.away or not (cordoned or slow):
            return view
        now = world().now()
        if now - self._asked_at >= (ROOM_SECONDS if cordoned else SLOW_ROOM_SECONDS):
            self._asked_at = now
            try:
                self._pool = tuple(_now(self._resolved, self._attempt.run, self._attempt.number))
            except PrimusError:
                self._pool = None
        return replace(view, pool=self._pool)


def _now(resolved: Resolved, run: str, attempt: int) -> list[NodeCandidate]:
    here = world()
    # What is left of the run's own earlier attempts is gone before ranks of the next one start.
    busy = {node: owner for node, owner in busy_nodes(run, attempt).items() if owner != run}
    ours = {item.node: item for item in here.ledger.nodes(resolved.cluster.name)}
    out = {name: item.why for name, item in ours.items() if item.state == "quarantined"}
    nodes = each(current(), "Node", pool_selector(resolved))
    found = {item.name: item for item in (node_candidate(node, resolved, busy, out, run) for node in nodes)}
    return [found[name] for name in sorted(found)]


@patient
def brake_state(resolved: Resolved) -> BrakeState:
    """Where the fleet-wide brake stands for the run's pool, over all runs of this ledger."""
    here = world()
    limits, name = resolved.cluster.brake, resolved.cluster.name
    counts = here.ledger.brake_counts(name, resolved.pool.name, here.now() - limits.window_seconds)
    return BrakeState(resolved.pool.nodes, counts.out, counts.evictions, limits)
