"""Every node of a cluster's pools as the cluster tells it, read in pages: slim, since a large cluster has many."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache

from profiles.cluster import ClusterProfile, Pool
from profiles.errors import PrimusError
from profiles.loading.load import load_hardware
from tasks.cluster import Cluster, Manifest, current, each
from workflows.model.manifest import part
from workflows.model.nodes import Node, joins, node_of, pool_of


def pool_node(node: Manifest, profile: ClusterProfile) -> Node | None:
    """What a Node object says; None where it belongs to no pool of the profile."""
    pool = pool_of(part(node, "metadata", "labels"), profile)
    return None if pool is None else node_of(node, pool.name)


def stream_nodes(profile: ClusterProfile, cluster: Cluster | None = None) -> Iterator[Node]:
    """Every node of the profile's pools, read in pages: never more than one page of whole objects is held.

    Raises:
        Unavailable: the cluster does not answer; also in the middle of the list.
        Refused: we may not list nodes.
    """
    for item in each(cluster or current(), "Node"):
        if (node := pool_node(item, profile)) is not None:
            yield node


def cluster_nodes(cluster: Cluster, profile: ClusterProfile) -> list[Node]:
    """The same, by name.

    Raises:
        Unavailable, Refused.
    """
    found = {node.name: node for node in stream_nodes(profile, cluster)}
    return [found[name] for name in sorted(found)]


def cluster_node(cluster: Cluster, profile: ClusterProfile, name: str) -> Node | None:
    """One of them; None where there is no such node, or it belongs to no pool of the profile.

    Raises:
        Unavailable, Refused.
    """
    found = cluster.get("Node", name)
    return None if found is None else pool_node(found, profile)


def unready(profile: ClusterProfile, names: Collection[str]) -> dict[str, str]:
    """Those of the named nodes on which no pod can start now, and why.

    Raises:
        Unavailable, Refused.
    """
    found = {node.name: node for node in stream_nodes(profile) if node.name in names}
    return {
        name: f"it is not ready ({node.reason}): no pod starts there, so it was not asked"
        for name, node in found.items()
        if node.ready is not True and node.reason
    }


def joining_nodes() -> dict[str, Manifest]:
    """Objects of the nodes on which the start-up taint stands, by name.

    Raises:
        Unavailable, Refused.
    """
    return {str(part(node, "metadata").get("name")): node for node in each(current(), "Node") if joins(node)}


def gpus_of(pool: Pool) -> int | None:
    """GPUs that a node of the pool has by its hardware profile; None where that is not known."""
    return _gpus(pool.hardware)


@cache
def _gpus(hardware: str) -> int | None:
    try:
        return load_hardware(hardware).gpus_per_node
    except PrimusError:
        return None
