"""Where each kind lives in the Kubernetes API. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from profiles.errors import Conflict, Fenced, PrimusError, Refused, Unavailable
from tasks.cluster import Kind, Manifest
from workflows import labels
from workflows.model.manifest import Json, items, part
from workflows.model.ownership import foreign, is_foreign, owner_of

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
"""JSON is YAML, so the body stays JSON."""
MERGE = "application/merge-patch+json"


@dataclass(frozen=True)
class Resource:
    """One kind's place in the API."""

    kind: Kind
    api_version: str
    """Group and version, e.g. `jobset.x-k8s.io/v1alpha2`; `v1` for the core group."""
    plural: str
    namespaced: bool = True
    status_apart: bool = False
    """The status is written through a path of its own; a write to the object ignores it."""
    pods_label: str = ""
    """Label that names the owner on the pods it made; "" where it makes none."""
    read_only: bool = False
    """We look at it and never write it."""

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """URL path of the collection, one object, or a part of it."""
        root = f"/api/{self.api_version}" if "/" not in self.api_version else f"/apis/{self.api_version}"
        where = f"/namespaces/{quote(namespace, safe='')}" if self.namespaced else ""
        parts = [quote(part, safe=":") for part in (self.plural, name, subresource) if part]
        return f"{root}{where}/{'/'.join(parts)}"


RESOURCES: Mapping[Kind, Resource] = {
    resource.kind: resource
    for resource in (
        Resource("Workflow", "argoproj.io/v1alpha1", "workflows", pods_label="workflows.argoproj.io/workflow"),
        Resource(
            "JobSet",
            "jobset.x-k8s.io/v1alpha2",
            "jobsets",
            status_apart=True,
            pods_label="jobset.sigs.k8s.io/jobset-name",
        ),
        Resource("Pod", "v1", "pods", status_apart=True),
        Resource("Node", "v1", "nodes", namespaced=False, status_apart=True),
        Resource("Secret", "v1", "secrets"),
        Resource("ConfigMap", "v1", "configmaps"),
        Resource("Event", "v1", "events"),
        Resource("Workload", "kueue.x-k8s.io/v1beta2", "workloads", status_apart=True),
        Resource("LocalQueue", "kueue.x-k8s.io/v1beta2", "localqueues", status_apart=True),
        Resource("ClusterQueue", "kueue.x-k8s.io/v1beta2", "clusterqueues", namespaced=False, status_apart=True),
        Resource("ResourceFlavor", "kueue.x-k8s.io/v1beta2", "resourceflavors", namespaced=False),
        Resource("PersistentVolumeClaim", "v1", "persistentvolumeclaims", status_apart=True),
        Resource("Job", "batch/v1", "jobs", status_apart=True, pods_label="batch.kubernetes.io/job-name"),
        Resource("Namespace", "v1", "namespaces", namespaced=False, read_only=True),
        Resource("Topology", "kueue.x-k8s.io/v1beta2", "topologies", namespaced=False, read_only=True),
        Resource(
            "WorkloadPriorityClass",
            "kueue.x-k8s.io/v1beta2",
            "workloadpriorityclasses",
            namespaced=False,
            read_only=True,
        ),
        Resource("PriorityClass", "scheduling.k8s.io/v1", "priorityclasses", namespaced=False, read_only=True),
        Resource("StorageClass", "storage.k8s.io/v1", "storageclasses", namespaced=False, read_only=True),
        # Without a namespace the path lists those of all namespaces, which is all we ask of them.
        Resource("Service", "v1", "services", namespaced=False, read_only=True),
    )
}


def resource_of(manifest: Manifest, namespace: str) -> Resource:
    """Where a manifest belongs.

    Raises:
        Refused: not one of our kinds, another version of it, no name, or another namespace.
    """
    kind, metadata = manifest.get("kind"), part(manifest, "metadata")
    ours = {str(resource.kind): resource for resource in RESOURCES.values() if not resource.read_only}
    resource = ours.get(str(kind))
    if resource is None:
        raise Refused("kind", f"{kind!r} is none of the kinds we write: {', '.join(ours)}")
    if manifest.get("apiVersion") != resource.api_version:
        raise Refused(
            "apiVersion", f"{manifest.get('apiVersion')!r} of {kind}: this program writes {resource.api_version}"
        )
    if not metadata.get("name") and not metadata.get("generateName"):
        raise Refused("metadata.name", "is missing: name the object, or give it a generateName")
    if resource.namespaced and metadata.get("namespace", namespace) != namespace:
        raise Refused("metadata.namespace", f"{metadata['namespace']!r}: the cluster profile says {namespace!r}")
    return resource


def selector(wanted: Mapping[str, str] | None) -> dict[str, str]:
    """Query parameters for objects whose labels equal all of `wanted`."""
    pairs = ",".join(f"{key}={value}" for key, value in sorted((wanted or {}).items()))
    return {"labelSelector": pairs} if pairs else {}


def objection(existing: Manifest, wanted: Manifest) -> PrimusError | None:
    """Why `wanted` may not be written over `existing`; None where it may."""
    there, ours = part(existing, "metadata"), part(wanted, "metadata")
    what = f"{existing.get('kind', wanted.get('kind'))} {there.get('name')}"
    if there.get("deletionTimestamp"):
        return Unavailable(f"{what} is still being deleted; it is written again once it is gone", 2.0)
    if not _is_ours(there, ours):
        return Conflict(f"{what} exists and is not ours: delete it, or choose another name")
    if is_foreign(existing, owner_of(wanted)):
        return foreign(existing)
    if _fencing(there) > _fencing(ours) > 0:
        return Fenced(f"{what} was written by a newer driver (number {_fencing(there)}): this driver must stop")
    return None


def _is_ours(there: Json, ours: Json) -> bool:
    run = part(ours, "labels").get(labels.RUN)
    if run is not None:
        return part(there, "labels").get(labels.RUN) == run
    return any(entry.get("manager") == labels.FIELD_MANAGER for entry in items(there, "managedFields"))


def _fencing(metadata: Json) -> int:
    text = str(part(metadata, "annotations").get(labels.FENCING, ""))
    return int(text) if text.isdecimal() else 0
