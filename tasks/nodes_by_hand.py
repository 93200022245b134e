"""What a person does to a node: take it out of service, give it back. Written before it is done; safe to repeat."""

from __future__ import annotations

from profiles.cluster import ClusterProfile
from profiles.errors import NotFound
from profiles.vocabulary import NodeAction, VerdictWord
from tasks.cluster import Cluster, current
from tasks.fleet import cluster_node
from tasks.nodes import give_back
from tasks.world import world
from workflows.fleet import ClusterNode
from workflows.records import ActionRecord, NodeRecord


def people_of(cluster: str) -> str:
    """Name under which what people do to a cluster's nodes is written; the slash keeps it apart from runs."""
    return f"people/{cluster}"


def cordon(profile: ClusterProfile, node: str, why: str) -> str:
    """Keep new pods and new attempts away from a node; what runs there goes on.

    Args:
        profile: the node's cluster.
        node: its name.
        why: in words, with who said it.

    Returns:
        What was done, in words.

    Raises:
        NotFound: the cluster has no such node in a pool of the profile.
        Unavailable, Refused: the cluster or the ledger; what was written is carried out by the next try.
    """
    here, cluster = world(), current()
    found, now = _there(cluster, profile, node), here.now()
    here.ledger.take_out([NodeRecord(profile.name, node, "quarantined", why, now, "", found.pool)], None)
    run = people_of(profile.name)
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
    return f"{node} is out of service: {held.why if held else why}"


def release(profile: ClusterProfile, node: str, why: str) -> str:
    """Take back everything that we set on a node, and nothing else; it is used again.

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
    ours = here.ledger.standing_drains(profile.name, node, people_of(profile.name))
    if _is_untouched(found, held) and not ours and not _failed_since(profile.name, node, held):
        return f"nothing of ours stands on {node}" + (_foreign_cordon(found) if found else "")
    if found is not None and found.cordoned and ours:
        cluster.patch("Node", node, {"spec": {"unschedulable": False}})
    said = give_back(profile.name, node, why)
    return said + (_foreign_cordon(found) if found is not None and not ours else "")


def _is_untouched(found: ClusterNode | None, held: NodeRecord | None) -> bool:
    return (held is None or held.state == "schedulable") and (found is None or not found.quarantined)


def _failed_since(cluster: str, node: str, held: NodeRecord | None) -> bool:
    """Whether a test failed that was not answered for since the node was given back last."""
    since = held.since if held is not None else 0.0
    told = world().ledger.deciding_verdicts(cluster, node)
    return any(item.verdict is VerdictWord.FAIL and item.at > since for item in told)


def _foreign_cordon(found: ClusterNode) -> str:
    return "; it stays cordoned: that was not us" if found.cordoned else ""


def _there(cluster: Cluster, profile: ClusterProfile, node: str) -> ClusterNode:
    found = cluster_node(cluster, profile, node)
    if found is None:
        raise NotFound(f"{profile.name} has no node {node} in its pools: `primus nodes` lists those it has")
    return found
