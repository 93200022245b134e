"""A real embedded cluster for tests: in a folder of its own, with everything ended afterwards and nothing left over."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tasks.embedded.api import EmbeddedCluster
from tasks.embedded.spec import ImageSpec, NodeSpec, Spec
from tests.support.running.waiting import patience

DEADLINE_SECONDS = patience(60.0)
"""Generous: a loaded machine is slow, a broken cluster never answers."""
Object = dict[str, Any]
HOST = (ImageSpec("*", programs={"python3": [sys.executable]}, host_path=True),)


def spec(nodes: int = 2, **changes: Any) -> Spec:
    """A cluster of equal nodes whose images run the host's programs."""
    made = tuple(NodeSpec(f"node-{index}", capacity={"cpu": "8", "memory": "16Gi"}) for index in range(nodes))
    fast = {"crash_loop_initial_seconds": 0.05, "image_retry_seconds": 0.05, "pod_backoff_initial_seconds": 0.05}
    return replace(Spec("test", nodes=made, images=HOST, keeper_linger_seconds=0.2), **{**fast, **changes})


@contextmanager
def cluster(root: Path, made: Spec | None = None) -> Iterator[EmbeddedCluster]:
    """The cluster; afterwards everything is ended and nothing may live on."""
    one = EmbeddedCluster(root, made or spec())
    try:
        yield one
    finally:
        one.stop()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while one.processes() and time.monotonic() < deadline:
            time.sleep(0.02)  # a killed process takes a moment to be gone
        assert one.processes() == []


def pod(name: str, *command: str, **fields: Any) -> Object:
    """A pod of one container."""
    container = {"name": "main", "image": "any", "command": list(command), **fields.pop("container", {})}
    metadata = {"name": name, **fields.pop("metadata", {})}
    spec_fields: Object = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec_fields, **fields}}


def role(name: str, count: int, *command: str, **fields: Any) -> Object:
    """A replicated job of `count` pods; they spread over the nodes where `apart` is set."""
    template: Object = {"restartPolicy": fields.pop("restart", "Never"), "terminationGracePeriodSeconds": 5}
    template["containers"] = [{"name": "main", "image": "any", "command": list(command), **fields.pop("container", {})}]
    if fields.pop("apart", False):
        term = {"labelSelector": {"matchLabels": {"role": name}}, "topologyKey": "kubernetes.io/hostname"}
        template["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    template |= fields.pop("template", {})
    job = {"parallelism": count, "completions": count, "completionMode": "Indexed", "backoffLimit": 0, **fields}
    job["template"] = {"metadata": {"labels": {"role": name}}, "spec": template}
    return {"name": name, "replicas": 1, "template": {"spec": job}}


def jobset(name: str, *roles: Object, **fields: Any) -> Object:
    """A JobSet of these roles."""
    body = {"failurePolicy": {"maxRestarts": 0}, "replicatedJobs": list(roles), **fields}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name}, "spec": body}


def phase(one: EmbeddedCluster, name: str, *phases: str) -> Object:
    """The pod once it is in one of these phases."""
    found = one.wait("Pod", name, lambda it: (it or {}).get("status", {}).get("phase") in phases, DEADLINE_SECONDS)
    assert found is not None
    return found


def ended(one: EmbeddedCluster, name: str) -> Object:
    """The pod once it has ended."""
    return phase(one, name, "Succeeded", "Failed")


def terminal(one: EmbeddedCluster, name: str) -> Object:
    """The JobSet once it has ended."""
    found = one.wait(
        "JobSet", name, lambda it: bool((it or {}).get("status", {}).get("terminalState")), DEADLINE_SECONDS
    )
    assert found is not None
    return found


def gone(one: EmbeddedCluster, kind: str, name: str) -> None:
    """Wait until the object is deleted."""
    one.wait(kind, name, lambda it: it is None, DEADLINE_SECONDS)


def end_of(found: Object, container: str = "main") -> Object:
    """`state.terminated` of a container."""
    entries = [*found["status"].get("initContainerStatuses", []), *found["status"]["containerStatuses"]]
    return next(entry for entry in entries if entry["name"] == container)["state"]["terminated"]
