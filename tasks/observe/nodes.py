"""From Node objects to what a watch keeps of them: pure readings of JSON, slim.

A Node object is 5 to 20 KB of text; what is kept of it is about 1 KB, with equal words shared.

Every node of a cluster's pools as the cluster tells it, read in pages: slim, since a large cluster has many.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

from profiles.cluster import ClusterProfile, Pool
from profiles.errors import PrimusError
from profiles.loading.load import load_hardware
from tasks.cluster import Cluster, Manifest, each
from tasks.observe.objects import node_facts
from workflows import labels
from workflows.model.fleet import ClusterNode
from workflows.model.manifest import seconds
from workflows.model.nodes import MESSAGE_CHARACTERS, ConditionSeen, NodeSeen, TaintSeen


def node_seen(node: Manifest, profile: ClusterProfile) -> NodeSeen | None:
    """What a Node object says; None where it belongs to no pool of the profile."""
    metadata: Mapping[str, Any] = node.get("metadata") or {}
    marks: Mapping[str, str] = metadata.get("labels") or {}
    notes: Mapping[str, str] = metadata.get("annotations") or {}
    pool = pool_of(marks, profile)
    if pool is None:
        return None
    spec: Mapping[str, Any] = node.get("spec") or {}
    status: Mapping[str, Any] = node.get("status") or {}
    return NodeSeen(
        name=sys.intern(str(metadata.get("name", ""))),
        pool=pool.name,
        version=str(metadata.get("resourceVersion", "")),
        created_at=seconds(metadata.get("creationTimestamp")),
        conditions=tuple(_condition(item) for item in status.get("conditions") or ()),
        taints=tuple(_taint(item) for item in spec.get("taints") or ()),
        cordoned=bool(spec.get("unschedulable")),
        leaving="deletionTimestamp" in metadata,
        verdict=sys.intern(str(marks.get(labels.VERDICT, ""))),
        verdict_at=_moment(notes.get(labels.VERDICT_AT)),
    )


def pool_of(marks: Mapping[str, str], profile: ClusterProfile) -> Pool | None:
    """The first pool of the profile whose nodes carry these labels."""
    for pool in profile.pools:
        wanted = pool.labels if profile.engine == "kubernetes" else {labels.POOL: pool.name}
        if all(marks.get(key) == value for key, value in wanted.items()):
            return pool
    return None


def taint_manifest(taint: TaintSeen) -> Manifest:
    """The entry of `spec.taints` as it was read."""
    value = {"value": taint.value} if taint.value else {}
    added = {"timeAdded": taint.added} if taint.added else {}
    return {"key": taint.key, **value, "effect": taint.effect, **added}


def _taint(item: Mapping[str, Any]) -> TaintSeen:
    return _shared_taint(
        str(item.get("key", "")),
        str(item.get("value") or ""),
        str(item.get("effect", "")),
        str(item.get("timeAdded") or ""),
    )


@lru_cache(maxsize=4096)
def _shared_taint(key: str, value: str, effect: str, added: str) -> TaintSeen:
    return TaintSeen(key, value, effect, added)


def _condition(item: Mapping[str, Any]) -> ConditionSeen:
    return ConditionSeen(
        type=sys.intern(str(item.get("type", ""))),
        status=sys.intern(str(item.get("status", "Unknown"))),
        since=_moment(item.get("lastTransitionTime")),
        heard_at=_moment(item.get("lastHeartbeatTime")),
        reason=sys.intern(str(item.get("reason") or "")),
        message=sys.intern(str(item.get("message") or "")[:MESSAGE_CHARACTERS]),
    )


@lru_cache(maxsize=4096)
def _moment(text: str | None) -> float | None:
    """Conditions of a node, and of nodes that joined together, share their times."""
    return seconds(text)


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
