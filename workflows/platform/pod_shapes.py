"""Shapes that all pods of the product share: what the level `restricted` asks for, and where values come from. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Manifest = dict[str, Any]

NAMESPACE = "primus-flows"
PART = {"app.kubernetes.io/part-of": "primus-flows"}
NAME = "app.kubernetes.io/name"

RESTRICTED_CONTAINER: Manifest = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def metadata_of(name: str) -> Manifest:
    """Name, namespace and labels of an object of ours."""
    return {"name": name, "namespace": NAMESPACE, "labels": {NAME: name, **PART}}


def deployment(name: str, pod: Manifest, strategy: Manifest) -> Manifest:
    """One pod of the kind, kept alive."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata_of(name),
        "spec": {
            "replicas": 1,
            "strategy": strategy,
            "selector": {"matchLabels": {NAME: name}},
            "template": pod,
        },
    }


def service(name: str, port_name: str, port: int) -> Manifest:
    """A name and a port for the pods of a Deployment or StatefulSet."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata_of(name),
        "spec": {
            "selector": {NAME: name},
            "ports": [{"name": port_name, "port": port, "targetPort": port_name, "protocol": "TCP"}],
        },
    }


def pod_template(name: str, containers: Sequence[Manifest], annotations: Mapping[str, str], user: int) -> Manifest:
    """A pod template as the level `restricted` asks for it."""
    metadata = {"annotations": dict(annotations)} if annotations else {}
    return {
        "metadata": {"labels": {NAME: name, **PART}, **metadata},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": restricted_pod(user),
            "containers": list(containers),
        },
    }


def restricted_pod(user: int) -> Manifest:
    """What the level `restricted` asks of a pod; volumes belong to the user's group."""
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_of(name: str, image: str, command: Sequence[str], env: Sequence[Manifest]) -> Manifest:
    """A container without probes, resources and mounts."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "env": list(env),
        "securityContext": dict(RESTRICTED_CONTAINER),
    }


def http_probe(path: str, port: str) -> Manifest:
    """A probe over HTTP."""
    return {"httpGet": {"path": path, "port": port}, "timeoutSeconds": 5}


def resources_of(cpu: str, memory: str, most_memory: str) -> Manifest:
    """What is asked for, and how much memory there is at most: CPU is never limited."""
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": most_memory}}


def variables(values: Mapping[str, str]) -> list[Manifest]:
    """Environment variables with their values."""
    return [{"name": name, "value": value} for name, value in values.items()]


def secret_variables(values: Mapping[str, tuple[str, str]]) -> list[Manifest]:
    """Environment variables by (Secret, key)."""
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
        for name, (secret, key) in values.items()
    ]


def mounts_of(paths: Mapping[str, str]) -> list[Manifest]:
    """Mounts by volume name."""
    return [{"name": name, "mountPath": path} for name, path in paths.items()]


def empty_volume(name: str) -> Manifest:
    """A folder that ends with its pod."""
    return {"name": name, "emptyDir": {"sizeLimit": "2Gi"}}


def scraped_at(port: int, path: str) -> dict[str, str]:
    """Annotations by which Prometheus finds a page of figures."""
    return {"prometheus.io/scrape": "true", "prometheus.io/port": str(port), "prometheus.io/path": path}
