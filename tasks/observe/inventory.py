"""Reading what a living cluster has, through the seam. Touches nothing, concludes nothing; no Prefect here."""

from __future__ import annotations

from profiles.cluster import ClusterProfile
from tasks.cluster import Cluster
from tasks.observe.run import ObjectReader
from workflows.model.cluster import claim_of
from workflows.model.inventory import Inventory, NodeStock, flavor_of, service_of
from workflows.model.manifest import Json, items, part
from workflows.model.nodes import node_of
from workflows.model.queues import cluster_queue_of, local_queue_of


def open_living_cluster(context: str, namespace: str) -> Cluster:
    """A cluster that has no profile yet. Nothing is asked until the first call.

    The context "" is the current one, or the pod's service account.
    """
    from tasks.kubernetes.cluster import KubernetesCluster  # noqa: PLC0415 - half a second that other commands need not pay

    return KubernetesCluster(
        ClusterProfile.model_construct(name="import", engine="kubernetes", context=context, namespace=namespace)
    )


def take_inventory(cluster: Cluster, context: str, namespace: str) -> Inventory:
    """Everything an import looks at; kinds that may not be read or are not served are named in `unread`.

    Raises:
        Unavailable: the cluster does not answer.
    """
    reader = ObjectReader(cluster)
    found = reader.get("Namespace", namespace)
    local = tuple(local_queue_of(item) for item in reader.list("LocalQueue"))
    queues = [reader.get("ClusterQueue", name) for name in sorted({item.cluster_queue for item in local}) if name]
    classes = {item["metadata"]["name"]: int(item.get("value") or 0) for item in reader.list("PriorityClass")}
    weights = {item["metadata"]["name"]: int(item.get("value") or 0) for item in reader.list("WorkloadPriorityClass")}
    levels = {item["metadata"]["name"]: _levels(item) for item in reader.list("Topology")}
    drives = [(item["metadata"]["name"], str(item.get("provisioner", ""))) for item in reader.list("StorageClass")]
    return Inventory(
        context=context,
        namespace=namespace,
        namespace_exists=None if "Namespace" in reader.unread else found is not None,
        nodes=tuple(node_stock(item) for item in reader.list("Node")),
        flavors=tuple(flavor_of(item) for item in reader.list("ResourceFlavor")),
        topologies=levels,
        local_queues=local,
        cluster_queues=tuple(cluster_queue_of(item) for item in queues if item is not None),
        priority_classes=classes,
        workload_priority_classes=weights,
        volumes=tuple(claim_of(item) for item in reader.list("PersistentVolumeClaim")),
        storage_classes=tuple(sorted(drives)),
        services=tuple(service_of(item) for item in reader.list("Service")),
        unread=dict(reader.unread),
    )


def node_stock(node: Json) -> NodeStock:
    """A Node."""
    seen, status = node_of(node), part(node, "status")
    return NodeStock(
        name=seen.name,
        labels=dict(part(node, "metadata", "labels")),
        taints=tuple(taint.text for taint in seen.taints),
        capacity={key: str(value) for key, value in part(status, "capacity").items()},
        allocatable={key: str(value) for key, value in part(status, "allocatable").items()},
        ready=seen.ready,
        cordoned=seen.cordoned,
        leaving=seen.leaving,
    )


def _levels(topology: Json) -> tuple[str, ...]:
    return tuple(str(item.get("nodeLabel", "")) for item in items(topology, "spec", "levels"))
