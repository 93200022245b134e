"""Every node of a cluster's pools as the cluster tells it, read in pages: slim, since a large cluster has many."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from profiles.cluster import ClusterProfile, Pool
from profiles.errors import PrimusError
from profiles.load import load_hardware
from tasks.cluster import Cluster, Manifest
from tasks.facts import node_facts
from tasks.node_sights import pool_of
from tasks.streaming import each
from workflows import labels
from workflows.fleet import ClusterNode

_OF_THE_CLUSTER = "node.kubernetes.io/"
"""Taints with this prefix repeat conditions and cordons, which are told as such."""


def cluster_nodes(cluster: Cluster, profile: ClusterProfile) -> list[ClusterNode]:
    """Every node of the profile's pools, by name.

    Raises:
        Unavailable: the cluster does not answer; also in the middle of the list.
        Refused: we may not list nodes.
    """
    found = {node.name: node for item in each(cluster, "Node") if (node := _node(item, profile)) is not None}
    return [found[name] for name in sorted(found)]


def cluster_node(cluster: Cluster, profile: ClusterProfile, name: str) -> ClusterNode | None:
    """One of them; None where there is no such node, or it belongs to no pool of the profile.

    Raises:
        Unavailable, Refused.
    """
    found = cluster.get("Node", name)
    return None if found is None else _node(found, profile)


def _node(node: Manifest, profile: ClusterProfile) -> ClusterNode | None:
    metadata: Mapping[str, Any] = node.get("metadata") or {}
    marks: Mapping[str, str] = metadata.get("labels") or {}
    pool = pool_of(marks, profile)
    if pool is None:
        return None
    facts = node_facts(node)
    keeping = (taint for taint in facts.taints if taint not in pool.taints and not taint.endswith(":PreferNoSchedule"))
    foreign = tuple(taint for taint in keeping if not taint.startswith((labels.QUARANTINE_TAINT, _OF_THE_CLUSTER)))
    return ClusterNode(
        name=facts.name,
        pool=pool.name,
        rack=marks.get(labels.RACK, ""),
        block=marks.get(labels.BLOCK, ""),
        gpus=gpus_of(pool),
        ready=facts.ready,
        cordoned=facts.unschedulable,
        quarantined=any(taint.startswith(labels.QUARANTINE_TAINT) for taint in facts.taints),
        taints=foreign,
        spare=marks.get(labels.SPARE) == "true",
        leaving="deletionTimestamp" in metadata,
    )


def gpus_of(pool: Pool) -> int | None:
    """GPUs that a node of the pool has by its hardware profile; None where that is not known."""
    return _gpus(pool.hardware)


@cache
def _gpus(hardware: str) -> int | None:
    try:
        return load_hardware(hardware).gpus_per_node
    except PrimusError:
        return None
