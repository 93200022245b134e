"""Nodes: what they are now, and the few things we do to them. Releasing a node removes only what we set."""

from __future__ import annotations

from dataclasses import dataclass

from profiles.resolve import Resolved
from profiles.vocabulary import VerdictWord
from tasks.cluster import Manifest, current
from tasks.facts import node_facts, pool_selector, users_of
from tasks.node_marks import TAINT_VALUE_CHARACTERS, Mark, set_mark
from tasks.streaming import each
from tasks.verdict_marks import forget_verdict
from tasks.world import patient, touch, world
from workflows.fleet import BrakeState
from workflows.records import NodeRecord, VerdictRecord
from workflows.reports import GateReport


def pool_nodes(resolved: Resolved) -> list[Manifest]:
    """The pool's Node objects, by name."""
    return current().list("Node", pool_selector(resolved))


def busy_nodes(run: str, attempt: int) -> dict[str, str]:
    """Nodes on which pods of other runs live, with the name of that run."""
    return users_of(each(current(), "Pod"), run, attempt)


@dataclass(frozen=True)
class Leaving:
    """Nodes that are to leave service together."""

    nodes: tuple[tuple[str, str], ...]
    """Name of each, and why."""
    incident: str

    @property
    def names(self) -> str:
        """The nodes, for people."""
        return ", ".join(node for node, _ in self.nodes)


@touch("takes {leaving.names} out of service")
def take_out(resolved: Resolved, leaving: Leaving, *, allowed: bool) -> str:
    """Write that nodes leave service, before anything is done to them: all of them, or none where the brake trips.

    Args:
        resolved: the run's profile; its pool and the limits of its cluster count.
        leaving: which, why, and for which incident.
        allowed: a person said that it may be more than the brake allows.

    Returns:
        Why the brake tripped; "" where every node is out. Safe to repeat.
    """
    here, cluster, pool = world(), resolved.cluster, resolved.pool
    now = here.now()
    records = [
        NodeRecord(cluster.name, node, "quarantined", why, now, leaving.incident, pool.name)
        for node, why in leaving.nodes
    ]
    brake = None if allowed else BrakeState(pool.nodes, limits=cluster.brake)
    run = here.right.run if here.right else ""
    return here.ledger.take_out(records, brake, run=run, fencing=here.fencing)


@touch("quarantines {node}: {why}")
def quarantine(resolved: Resolved, node: str, why: str, incident: str) -> str:
    """Keep new pods away from a node that was taken out: our taint and verdict. Safe to repeat."""
    here, cluster = world(), current()
    here.fencing  # noqa: B018 - raises Fenced before anything is touched
    written = here.ledger.node(resolved.cluster.name, node)
    if written is None or written.state != "quarantined":
        return f"{node} is not held out of service any more: it stays as it is"
    if not set_mark(cluster, node, Mark(VerdictWord.FAIL, incident.replace(":", "-")[:TAINT_VALUE_CHARACTERS])):
        return f"{node} no longer exists; it is not used again"
    return f"{node} is quarantined"


@touch("releases {node}: {why}")
def release(resolved: Resolved, node: str, why: str) -> str:
    """Take back what we did to the node."""
    return give_back(resolved.cluster.name, node, why)


def give_back(cluster: str, node: str, why: str) -> str:
    """The same for whoever is no flow: marks go, and the ledger calls the node schedulable."""
    here = world()
    set_mark(current(), node, Mark())
    forget_verdict(current(), node)
    here.ledger.set_node(NodeRecord(cluster, node, "schedulable", why, here.now()))
    return f"{node} is released"


@touch("drains {node}: {why}")
def drain(resolved: Resolved, node: str, why: str) -> str:
    """Cordon the node; its training pods end with the attempt, which is cleared away with its grace."""
    here, cluster = world(), current()
    here.fencing  # noqa: B018 - raises Fenced before anything is touched
    if cluster.get("Node", node) is None:
        return f"{node} no longer exists"
    cluster.patch("Node", node, {"spec": {"unschedulable": True}})
    return f"{node} is cordoned"


@patient
def keep_verdicts(resolved: Resolved, reports: tuple[GateReport, ...], source: str) -> None:
    """The gate's reports become verdicts in the ledger."""
    here = world()
    for report in reports:
        here.ledger.add_verdict(
            VerdictRecord(
                cluster=resolved.cluster.name,
                node=report.node,
                verdict=VerdictWord(report.verdict),
                depth="gate",
                at=report.at or here.now(),
                reasons=tuple(report.checks),
                source=source,
            )
        )


@patient
def not_ready(resolved: Resolved) -> tuple[str, ...]:
    """Nodes of the pool that are not ready now."""
    return tuple(facts.name for facts in map(node_facts, pool_nodes(resolved)) if facts.ready is not True)
