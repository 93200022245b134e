"""Names of the installation, and shapes of pods: where values come from, what is mounted and asked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Manifest = dict[str, Any]

NAMESPACE = "primus-flows"
PART = {"app.kubernetes.io/part-of": "primus-flows"}
NAME = "app.kubernetes.io/name"


def http_probe(path: str, port: str) -> Manifest:
    """A probe over HTTP."""
    return {"httpGet": {"path": path, "port": port}, "timeoutSeconds": 5}


def resources_of(cpu: str, memory: str, most_memory: str) -> Manifest:
    """What is asked for, and how much memory there is at most: CPU is never limited."""
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": most_memory}}


def variables(values: Mapping[str, str]) -> list[Manifest]:
    """Environment variables with their values."""
    return [{"name": name, "value": value} for name, value in values.items()]


def mounts_of(paths: Mapping[str, str]) -> list[Manifest]:
    """Mounts by volume name."""
    return [{"name": name, "mountPath": path} for name, path in paths.items()]


def empty_volume(name: str) -> Manifest:
    """A folder that ends with its pod."""
    return {"name": name, "emptyDir": {"sizeLimit": "2Gi"}}


def scraped_at(port: int, path: str) -> dict[str, str]:
    """Annotations by which Prometheus finds a page of figures."""
    return {"prometheus.io/scrape": "true", "prometheus.io/port": str(port), "prometheus.io/path": path}
