"""What a decision about nodes needs to know: the pool's nodes, and where the brake stands."""

from __future__ import annotations

from profiles.resolve import Resolved
from profiles.vocabulary import VerdictWord
from tasks.cluster import Manifest
from tasks.facts import node_facts
from tasks.nodes import busy_nodes, pool_nodes
from tasks.world import patient, world
from workflows import labels
from workflows.fleet import BrakeState, NodeCandidate


@patient
def node_candidates(resolved: Resolved, run: str, attempt: int) -> list[NodeCandidate]:
    """Every node of the run's pool with what the cluster and the ledger know of it."""
    here = world()
    nodes = pool_nodes(resolved)
    busy = busy_nodes(run, attempt)
    ours = {item.node: item for item in here.ledger.nodes(resolved.cluster.name)}
    return [
        _candidate(node, resolved, busy, {name: item.why for name, item in ours.items() if item.state == "quarantined"})
        for node in nodes
    ]


def _candidate(node: Manifest, resolved: Resolved, busy: dict[str, str], quarantined: dict[str, str]) -> NodeCandidate:
    facts = node_facts(node)
    marks: dict[str, str] = node["metadata"].get("labels", {})
    tolerated = {*resolved.pool.taints}
    keeps_away = tuple(
        taint
        for taint in facts.taints
        if taint not in tolerated
        and not taint.endswith(":PreferNoSchedule")
        and not taint.startswith((labels.QUARANTINE_TAINT, "node.kubernetes.io/"))
    )
    tainted = any(taint.startswith(labels.QUARANTINE_TAINT) for taint in facts.taints)
    return NodeCandidate(
        name=facts.name,
        pool=resolved.pool.name,
        ready=facts.ready,
        cordoned=facts.unschedulable,
        quarantined=quarantined.get(facts.name, "tainted by us" if tainted else ""),
        taints=keeps_away,
        verdict=_verdict(marks.get(labels.VERDICT, "")),
        busy=busy.get(facts.name, ""),
        spare=marks.get(labels.SPARE) == "true",
        rack=marks.get(labels.RACK, ""),
        block=marks.get(labels.BLOCK, ""),
    )


def _verdict(word: str) -> VerdictWord:
    return VerdictWord(word) if word in tuple(VerdictWord) else VerdictWord.UNKNOWN


@patient
def brake_state(resolved: Resolved) -> BrakeState:
    """Where the fleet-wide brake stands for the run's pool, over all runs of this ledger."""
    here = world()
    limits, name = resolved.cluster.brake, resolved.cluster.name
    counts = here.ledger.brake_counts(name, resolved.pool.name, here.now() - limits.window_seconds)
    return BrakeState(resolved.pool.nodes, counts.out, counts.evictions, limits)
