"""What the daemons of the health service may do in a cluster: reading, and what its values ask for. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from profiles.health import HealthValues
from workflows.health_alerts import JOB
from workflows.installation_pods import NAME, PART, Manifest
from workflows.workspace import RBAC, Right

SERVICE = JOB
"""Name of everything."""
MARKS = {NAME: SERVICE, **PART}
READS: Sequence[Right] = (
    # Peers, the pods of a job, and whether somebody uses a node's GPUs.
    ("", ("pods",), ("list",)),
    ("", ("nodes",), ("get", "list")),
)
MARKS_NODES: Sequence[Right] = (("", ("nodes",), ("patch",)),)
"""For labels, and for the hold before a deep test."""
READS_STORAGE: Sequence[Right] = (("storage.k8s.io", ("storageclasses",), ("get",)),)
"""Whether a class binds a claim that no pod uses."""
MAKES_VOLUMES: Sequence[Right] = (("", ("persistentvolumeclaims",), ("create", "get", "delete")),)


def metadata(values: HealthValues, name: str = SERVICE) -> Manifest:
    """Name, namespace and labels of an object of the service."""
    return {"name": name, "namespace": values.namespace, "labels": dict(MARKS)}


def cluster_role(values: HealthValues) -> list[Manifest]:
    """Rights in the whole cluster, and who has them."""
    marks = values.write_labels or values.deep_interval_seconds
    rights = [*READS, *(MARKS_NODES if marks else ()), *(READS_STORAGE if values.storage_class else ())]
    # Two services of one cluster have their own each.
    named = {"name": f"{SERVICE}-{values.namespace}", "labels": dict(MARKS)}
    made = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": named, "rules": _rules(rights)}
    return [made, _binding("ClusterRole", named, values)]


def role(values: HealthValues) -> list[Manifest]:
    """Rights in the service's own namespace, and who has them."""
    named = metadata(values)
    made = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": named, "rules": _rules(MAKES_VOLUMES)}
    return [made, _binding("Role", named, values)]


def _rules(rights: Sequence[Right]) -> list[Manifest]:
    return [{"apiGroups": [group], "resources": list(names), "verbs": list(verbs)} for group, names, verbs in rights]


def _binding(kind: str, named: Manifest, values: HealthValues) -> Manifest:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": named,
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": named["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": SERVICE, "namespace": values.namespace}],
    }
