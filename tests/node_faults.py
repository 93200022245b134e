"""Conditions put on nodes as a problem detector does it, and the embedded cluster they are put on."""

from __future__ import annotations

import time
from typing import Any

from profiles.cluster import ClusterProfile
from profiles.load import load_cluster
from tasks.cluster import Manifest
from workflows import labels


def stamp(ago_seconds: float = 0.0) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - ago_seconds))


def entry(kind: str, status: str = "True", stood: float = 0.0, message: str = "it hangs") -> Manifest:
    """One condition, heard of just now."""
    times = {"lastHeartbeatTime": stamp(), "lastTransitionTime": stamp(stood)}
    return {"type": kind, "status": status, "reason": "Detected", "message": message, **times}


def inject(cluster: Any, node: str, *conditions: Manifest) -> None:
    """Set conditions of a node beside those that it has."""
    found = cluster.get("Node", node)
    new = {item["type"] for item in conditions}
    kept = [item for item in found["status"]["conditions"] if item["type"] not in new]
    cluster.patch("Node", node, {"status": {"conditions": [*kept, *conditions]}})


def quarantined(cluster: Any) -> dict[str, str]:
    """Nodes that carry our taint, with its value."""
    return {
        node["metadata"]["name"]: taint["value"]
        for node in cluster.list("Node")
        for taint in node["spec"].get("taints") or ()
        if taint["key"] == labels.QUARANTINE_TAINT
    }


def local(**changes: object) -> ClusterProfile:
    """The embedded cluster of six nodes, with fields of its own."""
    return load_cluster("local").model_copy(update=changes)
