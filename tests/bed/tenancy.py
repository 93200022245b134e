"""What a team finds on its cluster: a namespace, a service account for pipelines, queues and priorities."""

from __future__ import annotations

from tests.bed.api import Api, Manifest
from tests.bed.options import Options

NAMESPACE = "training"
QUEUE = "training"
ACCOUNT = "primus-pipelines"
FLAVOR = "bed"
PRIORITIES = {"low": 100, "normal": 1000, "high": 10000}
RIGHTS = "rbac.authorization.k8s.io"


def settle(api: Api, options: Options) -> None:
    """Make all of it; Kueue must answer, it checks its own objects."""
    api.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    api.ensure_all([*_account(), *_priorities(), *_queues(options)])


def _account() -> list[Manifest]:
    """Pods of pipelines report results and apply JobSets, nothing else."""
    about = {"metadata": {"name": ACCOUNT, "namespace": NAMESPACE}}
    change = ["get", "list", "watch", "create", "patch", "update"]
    rules = [
        {"apiGroups": ["argoproj.io"], "resources": ["workflowtaskresults"], "verbs": ["create", "patch"]},
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": change},
    ]
    binding = {
        "roleRef": {"apiGroup": RIGHTS, "kind": "Role", "name": ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
    }
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", **about},
        {"apiVersion": f"{RIGHTS}/v1", "kind": "Role", **about, "rules": rules},
        {"apiVersion": f"{RIGHTS}/v1", "kind": "RoleBinding", **about, **binding},
    ]


def _priorities() -> list[Manifest]:
    """Of pods and of Kueue's workloads, by the same names."""
    return [
        {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "value": value, "description": "of the bed"}
        for name, value in PRIORITIES.items()
        for version, kind in (
            ("scheduling.k8s.io/v1", "PriorityClass"),
            ("kueue.x-k8s.io/v1beta2", "WorkloadPriorityClass"),
        )
    ]


def _queues(options: Options) -> list[Manifest]:
    """One queue that counts CPUs, memory and GPUs of all nodes; a higher priority preempts a lower one."""
    version = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    room = {"cpu": "1000", "memory": "8Ti", options.gpu: str(options.gpus * (options.nodes + options.kwok))}
    quotas = [{"name": name, "nominalQuota": quota} for name, quota in room.items()]
    cluster_queue = {
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": list(room), "flavors": [{"name": FLAVOR, "resources": quotas}]}],
    }
    local = {"metadata": {"name": QUEUE, "namespace": NAMESPACE}, "spec": {"clusterQueue": QUEUE}}
    return [
        {**version, "kind": "ResourceFlavor", "metadata": {"name": FLAVOR}},
        {**version, "kind": "ClusterQueue", "metadata": {"name": QUEUE}, "spec": cluster_queue},
        {**version, "kind": "LocalQueue", **local},
    ]
