"""What flows and people do to nodes: take them out of service, drain them, and release what we set, nothing else.

Each is written down before it is done, and safe to repeat.
"""

from __future__ import annotations

from dataclasses import dataclass

from profiles.cluster import ClusterProfile
from profiles.errors import NotFound
from profiles.resolve import Resolved
from profiles.vocabulary import NodeAction, VerdictWord
from tasks.cluster import Cluster, Manifest, current, each
from tasks.context import patient, touch, world
from tasks.nodes.marks import TAINT_VALUE_CHARACTERS, Mark, forget_verdict, set_mark
from tasks.observe.nodes import cluster_node
from tasks.observe.objects import pool_selector
from workflows.model.cluster import pod_of, users_of
from workflows.model.fleet import BrakeState
from workflows.model.nodes import Node, node_of, people_of
from workflows.model.records import UNVERIFIED, ActionRecord, Actor, NodeRecord, VerdictRecord
from workflows.wire import GateReport


def pool_nodes(resolved: Resolved) -> list[Manifest]:
    """The pool's Node objects, by name."""
    return current().list("Node", pool_selector(resolved))


def busy_nodes(run: str, attempt: int) -> dict[str, str]:
    """Nodes on which pods of other runs live, with the name of that run."""
    return users_of(map(pod_of, each(current(), "Pod")), run, attempt)


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

    `allowed`: a person said that it may be more than the brake allows.

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


def give_back(cluster: str, node: str, why: str, by: Actor | None = None) -> str:
    """Release a node outside of a flow: its marks go, and the ledger calls it schedulable; `by`: a person."""
    here = world()
    set_mark(current(), node, Mark())
    forget_verdict(current(), node)
    here.ledger.set_node(NodeRecord(cluster, node, "schedulable", why, here.now(), by=by))
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
    return tuple(facts.name for facts in map(node_of, pool_nodes(resolved)) if facts.ready is not True)


def cordon(profile: ClusterProfile, node: str, why: str, by: Actor = UNVERIFIED) -> str:
    """Keep new pods and new attempts away from a node; what runs there goes on.

    `why` says it in words; `by` is who says it.

    Returns:
        What was done, in words.

    Raises:
        NotFound: the cluster has no such node in a pool of the profile.
        Unavailable, Refused: the cluster or the ledger; what was written is carried out by the next try.
    """
    here, cluster = world(), current()
    found, now, run = _there(cluster, profile, node), here.now(), people_of(profile.name)
    here.ledger.act(run, f"cordon {node}", why, by)
    here.ledger.take_out([NodeRecord(profile.name, node, "quarantined", why, now, "", found.pool, by)], None)
    ours = here.ledger.standing_drains(profile.name, node, run)
    if not found.cordoned and not ours:
        plan = ActionRecord(f"{run}/{node}/{now:.6f}", run, "", NodeAction.DRAIN, node, "planned", why, now)
        ours = [here.ledger.plan_action(None, plan)]
    if not found.cordoned:
        cluster.patch("Node", node, {"spec": {"unschedulable": True}})
    for action in ours:
        if action.run == run and action.state == "planned":
            here.ledger.update_action(None, run, action.id, state="done", done_at=here.now())
    held = here.ledger.node(profile.name, node)
    return f"{node} is out of service: {held.told if held else why}"


def release_by_hand(profile: ClusterProfile, node: str, why: str, by: Actor = UNVERIFIED) -> str:
    """Take back everything that we set on a node, and nothing else; it is used again. `by` says so.

    Returns:
        What was done, in words.

    Raises:
        NotFound: neither the cluster nor the ledger knows the node.
        Unavailable, Refused: the cluster or the ledger; the next try goes on.
    """
    here, cluster = world(), current()
    found, held = cluster_node(cluster, profile, node), here.ledger.node(profile.name, node)
    if found is None and held is None:
        raise NotFound(f"{profile.name} has no node {node}: `primus nodes` lists those it has")
    people = people_of(profile.name)
    here.ledger.act(people, f"release {node}", why, by)
    ours = here.ledger.standing_drains(profile.name, node, people)
    if _is_untouched(found, held) and not ours and not _failed_since(profile.name, node, held):
        return f"nothing of ours stands on {node}" + (_what_stays(found, profile, ours) if found else "")
    if found is not None and found.cordoned and ours:
        cluster.patch("Node", node, {"spec": {"unschedulable": False}})
    said = give_back(profile.name, node, why, by)
    return said + (_what_stays(found, profile, ours) if found is not None else "")


def _is_untouched(found: Node | None, held: NodeRecord | None) -> bool:
    return (held is None or held.state == "schedulable") and (found is None or not found.quarantined)


def _failed_since(cluster: str, node: str, held: NodeRecord | None) -> bool:
    """Whether a test failed that was not answered for since the node was given back last."""
    since = held.since if held is not None else 0.0
    told = world().ledger.deciding_verdicts(cluster, node)
    return any(item.verdict is VerdictWord.FAIL and item.at > since for item in told)


def _what_stays(found: Node, profile: ClusterProfile, ours: list[ActionRecord]) -> str:
    """What keeps pods away from the node although we give it back: nobody is to take it for used again."""
    said = "; it stays cordoned: that was not us" if found.cordoned and not ours else ""
    if found.ready is True or not found.reason:
        return said
    power = f", `primus nodes power-on {found.name}` gives it its power back" if profile.engine == "embedded" else ""
    return f"{said}; nothing runs on it yet: it is not ready ({found.reason}){power}"


def _there(cluster: Cluster, profile: ClusterProfile, node: str) -> Node:
    found = cluster_node(cluster, profile, node)
    if found is None:
        raise NotFound(f"{profile.name} has no node {node} in its pools: `primus nodes` lists those it has")
    return found
