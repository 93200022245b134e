"""What a decision about nodes needs to know: the pool's nodes, and where the brake stands."""

from __future__ import annotations

from profiles.resolve import Resolved
from tasks.facts import node_candidate
from tasks.nodes import busy_nodes, pool_nodes
from tasks.world import patient, world
from workflows.fleet import BrakeState, NodeCandidate


@patient
def node_candidates(resolved: Resolved, run: str, attempt: int) -> list[NodeCandidate]:
    """Every node of the run's pool with what the cluster and the ledger know of it."""
    here = world()
    nodes = pool_nodes(resolved)
    busy = busy_nodes(run, attempt)
    ours = {item.node: item for item in here.ledger.nodes(resolved.cluster.name)}
    out = {name: item.why for name, item in ours.items() if item.state == "quarantined"}
    return [node_candidate(node, resolved, busy, out) for node in nodes]


@patient
def brake_state(resolved: Resolved) -> BrakeState:
    """Where the fleet-wide brake stands for the run's pool, over all runs of this ledger."""
    here = world()
    limits, name = resolved.cluster.brake, resolved.cluster.name
    counts = here.ledger.brake_counts(name, resolved.pool.name, here.now() - limits.window_seconds)
    return BrakeState(resolved.pool.nodes, counts.out, counts.evictions, limits)
