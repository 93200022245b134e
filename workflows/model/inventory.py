"""What a living cluster has, as its objects say it: gathered by tasks, made a cluster profile by `flows.decisions`.

Absent means not known. Quantities keep their Kubernetes text (`8`, `3920m`, `24629308Ki`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from workflows.model.cluster import Claim
from workflows.model.manifest import Json, Quantities, items, part
from workflows.model.queues import ClusterQueue, LocalQueue


@dataclass(frozen=True)
class NodeStock:
    """A Node."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    taints: tuple[str, ...] = ()
    """As `key=value:Effect`; the value may be empty."""
    capacity: Quantities = field(default_factory=dict[str, str])
    """What is built in; devices that are broken still count."""
    allocatable: Quantities = field(default_factory=dict[str, str])
    """What pods may take now."""
    ready: bool | None = None
    cordoned: bool = False
    leaving: bool = False
    """It is being deleted."""


@dataclass(frozen=True)
class FlavorStock:
    """A ResourceFlavor of Kueue."""

    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict[str, str])
    topology: str = ""
    """Name of its Topology; "" where it has none."""


def flavor_of(flavor: Json) -> FlavorStock:
    """A ResourceFlavor."""
    spec = part(flavor, "spec")
    return FlavorStock(
        name=part(flavor, "metadata").get("name", ""),
        node_labels=dict(part(spec, "nodeLabels")),
        topology=spec.get("topologyName") or "",
    )


@dataclass(frozen=True)
class ServiceStock:
    """A Service of any namespace."""

    name: str
    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    ports: tuple[tuple[str, int], ...] = ()
    """(name, number) of each; the name may be empty."""


def service_of(service: Json) -> ServiceStock:
    """A Service."""
    metadata = part(service, "metadata")
    return ServiceStock(
        name=metadata.get("name", ""),
        namespace=metadata.get("namespace", ""),
        labels=dict(part(metadata, "labels")),
        ports=tuple((item.get("name") or "", int(item.get("port") or 0)) for item in items(service, "spec", "ports")),
    )


@dataclass(frozen=True)
class Inventory:
    """Everything an import looks at."""

    context: str
    """Context of the kubeconfig; "" inside a cluster."""
    namespace: str
    namespace_exists: bool | None = None
    """None: it may not be read."""
    nodes: tuple[NodeStock, ...] = ()
    flavors: tuple[FlavorStock, ...] = ()
    topologies: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Node labels of each Topology's levels by its name, the widest first."""
    local_queues: tuple[LocalQueue, ...] = ()
    cluster_queues: tuple[ClusterQueue, ...] = ()
    """Those of the local queues, as far as they may be read."""
    priority_classes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Kubernetes' own PriorityClasses with their values."""
    workload_priority_classes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Kueue's."""
    volumes: tuple[Claim, ...] = ()
    storage_classes: tuple[tuple[str, str], ...] = ()
    """(name, provisioner) of each."""
    services: tuple[ServiceStock, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict[str, str])
    """Kinds that the cluster would not tell, each with its words: nothing is known of them."""
