"""Node objects: made from the cluster's specification, read as facts for placement."""

from __future__ import annotations

import os
from typing import Any

from tasks.embedded.engine.kube.placement import NodeFacts
from tasks.embedded.engine.kube.quantity import milli
from tasks.embedded.objects import Object, entries, new_uid, section, timestamp
from tasks.embedded.spec import NodeSpec, Spec
from tasks.embedded.store.store import Store, Transaction

DEFAULT_PODS = "110"
"""The kubelet's own limit of pods a node."""
POOL_LABEL = "primus-flows.io/pool"
SPARE_LABEL = "primus-flows.io/spare"


def node_object(spec: NodeSpec) -> Object:
    """A fresh, ready node."""
    labels = {
        "kubernetes.io/hostname": spec.name,
        "kubernetes.io/os": "linux",
        POOL_LABEL: spec.pool,
        **({SPARE_LABEL: "true"} if spec.spare else {}),
        **spec.labels,
    }
    capacity = {"pods": DEFAULT_PODS, **spec.capacity}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": spec.name, "uid": new_uid(), "creationTimestamp": timestamp(), "labels": labels},
        "spec": {"taints": [dict(taint) for taint in spec.taints]} if spec.taints else {},
        "status": {
            "capacity": capacity,
            "allocatable": dict(capacity),
            "conditions": [ready_condition("True", "KubeletReady", "the node is on")],
            "addresses": [{"type": "Hostname", "address": spec.name}, {"type": "InternalIP", "address": "127.0.0.1"}],
        },
    }


def ready_condition(status: str, reason: str, message: str) -> Object:
    """The condition Ready as of now."""
    now = timestamp()
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


def set_ready(node: Object, status: str, reason: str, message: str) -> Object:
    """The node with its condition Ready replaced, other conditions kept."""
    conditions = [entry for entry in entries(node["status"], "conditions") if entry["type"] != "Ready"]
    conditions.append(ready_condition(status, reason, message))
    return {**node, "status": {**node["status"], "conditions": conditions}}


def reconcile_nodes(change: Transaction, spec: Spec, before: Spec | None) -> None:
    """Bring the node objects to the specification: what people set on them meanwhile stays."""
    for node in spec.nodes:
        stored = change.get("Node", node.name)
        fresh = node_object(node)
        if stored is None:
            change.put(fresh)
            continue
        stored["metadata"]["labels"] = {**section(stored["metadata"], "labels"), **fresh["metadata"]["labels"]}
        for field in ("capacity", "allocatable"):
            stored["status"][field] = fresh["status"][field]
        change.put(stored)
    wanted = {node.name for node in spec.nodes}
    for name in sorted({node.name for node in before.nodes} - wanted if before else ()):
        change.remove("Node", name)


def node_facts(node: Object) -> NodeFacts:
    """What placement needs to know."""
    spec, status = section(node, "spec"), node["status"]
    labels: dict[str, str] = section(node["metadata"], "labels")
    ready = next((entry["status"] for entry in entries(status, "conditions") if entry["type"] == "Ready"), "Unknown")
    taints: list[Any] = entries(spec, "taints")
    return NodeFacts(
        name=node["metadata"]["name"],
        labels=labels,
        allocatable={name: milli(value) for name, value in status["allocatable"].items()},
        taints=tuple(taints),
        ready=ready,
        unschedulable=bool(spec.get("unschedulable")),
        spare=labels.get(SPARE_LABEL) == "true",
    )


def power_mark(store: Store, node: str) -> str:
    """A file that stands while the node has no power."""
    return os.path.join(store.root, "nodes", node + ".off")
