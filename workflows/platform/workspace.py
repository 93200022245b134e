"""Everything a workspace needs in a cluster: namespace, rights, queue, quotas, priorities, limits on traffic. Pure.

Each right is there because a call of ours needs it: `tests/bed/test_rights.py` asks a real API server what is granted,
`tests/bed/test_zz_rights_used.py` reads in its audit log that all of it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from profiles.workspace import Flavor, Quota, WorkspaceProfile
from workflows import labels

Manifest = dict[str, Any]

RBAC = "rbac.authorization.k8s.io"
WORKSPACE = f"{labels.PREFIX}/workspace"
"""Label of a workspace's namespace: what keeps its pods away from all else of ours selects by it."""
KUEUE = "kueue.x-k8s.io/v1beta2"
PIPELINES = "primus-pipelines"
"""Service account of pipeline pods: they report their outputs and apply the JobSet."""
RUNNER = "primus-runner"
"""Service account that drives runs; lives in the runner's namespace."""
READER = "primus-reader"
"""Role of whoever only looks: the monitor's second path, people."""
MONITOR = "primus-monitor"
"""Service account of whoever only looks; lives in the runner's namespace."""

Right = tuple[str, Sequence[str], Sequence[str]]
"""API group, resources, verbs."""

PIPELINE_RIGHTS: Sequence[Right] = (
    ("argoproj.io", ("workflowtaskresults",), ("create", "patch")),
    # A server-side apply creates with `create` and `patch`, and changes with `patch`.
    ("jobset.x-k8s.io", ("jobsets",), ("create", "patch")),
)
RUNNER_RIGHTS: Sequence[Right] = (
    ("argoproj.io", ("workflows",), ("get", "list", "watch", "create", "patch", "delete")),
    ("jobset.x-k8s.io", ("jobsets",), ("get", "list", "watch", "delete")),
    ("kueue.x-k8s.io", ("workloads",), ("list",)),
    ("kueue.x-k8s.io", ("localqueues",), ("get", "list")),
    ("", ("pods",), ("get", "list", "watch", "delete", "deletecollection")),
    ("", ("pods/log",), ("get",)),
    ("", ("pods/proxy",), ("get",)),
    # The token of an attempt's coordinator. No list: whoever knows the run's name may ask for its token, nobody else.
    ("", ("secrets",), ("get", "create", "patch", "delete")),
    ("", ("events",), ("list",)),
    ("", ("persistentvolumeclaims",), ("get", "list")),
)
READER_RIGHTS: Sequence[Right] = (
    ("argoproj.io", ("workflows",), ("get", "list", "watch")),
    ("jobset.x-k8s.io", ("jobsets",), ("get", "list", "watch")),
    ("kueue.x-k8s.io", ("workloads", "localqueues"), ("get", "list", "watch")),
    ("", ("pods", "events"), ("get", "list", "watch")),
    ("", ("pods/log",), ("get",)),
)
NODE_RIGHTS: Sequence[Right] = (
    # Taints, cordon and our verdict keys are one object: RBAC cannot tell its fields apart.
    ("", ("nodes",), ("get", "list", "watch", "patch")),
    ("", ("nodes/status",), ("patch",)),  # the condition that tells our verdict
    ("kueue.x-k8s.io", ("clusterqueues",), ("get",)),
    ("kueue.x-k8s.io", ("resourceflavors",), ("list",)),
)
NODE_READER_RIGHTS: Sequence[Right] = (("", ("nodes",), ("get", "list", "watch")),)
"""For a monitor that only looks; the one that takes bad nodes out runs as the runner."""


def workspace(profile: WorkspaceProfile) -> list[Manifest]:
    """The workspace's objects in the order in which they are applied. Applying them again changes nothing."""
    return [
        _namespace(profile),
        _account(PIPELINES, profile.name),
        *_role(profile.name, PIPELINES, PIPELINE_RIGHTS, (PIPELINES, profile.name)),
        *_role(profile.name, RUNNER, RUNNER_RIGHTS, (RUNNER, profile.runner_namespace)),
        *_role(profile.name, READER, READER_RIGHTS, (MONITOR, profile.runner_namespace)),
        *[_topology(name) for name in sorted({flavor.topology for flavor in profile.flavors if flavor.topology})],
        *[_flavor(flavor) for flavor in profile.flavors],
        _cluster_queue(profile),
        _local_queue(profile),
        *_priorities(profile),
        *_network_policies(profile.name),
        _disruption_budget(profile.name),
    ]


def pipelines(namespace: str, account: str = PIPELINES) -> list[Manifest]:
    """What pods of workflows need, in whatever namespace: itself, their rights, and their account last."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    return [space, *_role(namespace, account, PIPELINE_RIGHTS, (account, namespace)), _account(account, namespace)]


def control(namespace: str = "primus-flows") -> list[Manifest]:
    """What the runner needs once in a cluster: its namespace, its accounts, the rights to see and mark nodes."""
    marks = {"pod-security.kubernetes.io/enforce": "restricted", "app.kubernetes.io/part-of": "primus-flows"}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": marks}}
    return [
        space,
        _account(RUNNER, namespace),
        _account(MONITOR, namespace),
        *_cluster_role("primus-nodes", NODE_RIGHTS, (RUNNER, namespace)),
        *_cluster_role("primus-node-reader", NODE_READER_RIGHTS, (MONITOR, namespace)),
    ]


def _cluster_role(name: str, rights: Sequence[Right], subject: tuple[str, str]) -> list[Manifest]:
    account, home = subject
    role = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": _rules(rights),
    }
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        # Two runners of one cluster have a binding each: a second one does not take the first one's rights.
        "metadata": {"name": f"{name}-{home}"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": home}],
    }
    return [role, binding]


def _namespace(profile: WorkspaceProfile) -> Manifest:
    marks = {
        "pod-security.kubernetes.io/enforce": profile.pod_security,
        # What the level above would complain about is shown to whoever applies a pod, not refused.
        "pod-security.kubernetes.io/warn": "restricted",
        WORKSPACE: profile.name,
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": profile.name, "labels": marks}}


def _account(name: str, namespace: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace},
    }


def _rules(rights: Sequence[Right]) -> list[Manifest]:
    return [{"apiGroups": [group], "resources": list(names), "verbs": list(verbs)} for group, names, verbs in rights]


def _role(namespace: str, name: str, rights: Sequence[Right], subject: tuple[str, str]) -> list[Manifest]:
    account, home = subject
    role = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role",
        "metadata": {"name": name, "namespace": namespace},
        "rules": _rules(rights),
    }
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": home}],
    }
    return [role, binding]


def _topology(name: str) -> Manifest:
    """What a gang that wants to stand together is placed by: the labels that its pods name (`gang_pods`).

    With the node as its lowest level Kueue heeds taints and the nodes that were chosen; without it, it heeds neither.
    """
    levels = [{"nodeLabel": label} for label in (labels.BLOCK, labels.RACK, labels.HOSTNAME)]
    return {"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": name}, "spec": {"levels": levels}}


def _flavor(flavor: Flavor) -> Manifest:
    topology = {"topologyName": flavor.topology} if flavor.topology else {}
    taints = {"nodeTaints": [_taint(text) for text in flavor.taints]} if flavor.taints else {}
    marks = {"nodeLabels": dict(flavor.node_labels)} if flavor.node_labels else {}
    # A pod that Kueue admits to the flavor tolerates what its nodes keep others away with.
    tolerations = {"tolerations": [_toleration(text) for text in flavor.taints]} if flavor.taints else {}
    return {
        "apiVersion": KUEUE,
        "kind": "ResourceFlavor",
        "metadata": {"name": flavor.name},
        "spec": {**marks, **taints, **tolerations, **topology},
    }


def _taint(text: str) -> Mapping[str, str]:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, **({"value": value} if value else {}), "effect": effect}


def _toleration(text: str) -> Mapping[str, str]:
    taint = _taint(text)
    return {**taint, "operator": "Equal" if "value" in taint else "Exists"}


def _cluster_queue(profile: WorkspaceProfile) -> Manifest:
    covered = list(profile.flavors[0].quotas)
    flavors = [
        {"name": flavor.name, "resources": [{"name": name, **_quota(flavor.quotas[name])} for name in covered]}
        for flavor in profile.flavors
    ]
    rules = profile.preemption
    return {
        "apiVersion": KUEUE,
        "kind": "ClusterQueue",
        "metadata": {"name": profile.name},
        "spec": {
            **({"cohortName": profile.cohort} if profile.cohort else {}),
            "namespaceSelector": {"matchLabels": {WORKSPACE: profile.name}},
            "queueingStrategy": "BestEffortFIFO",
            "preemption": {
                "withinClusterQueue": rules.within_queue,
                "reclaimWithinCohort": rules.reclaim_in_cohort,
                **({"borrowWithinCohort": {"policy": rules.borrow_in_cohort}} if profile.cohort else {}),
            },
            "resourceGroups": [{"coveredResources": covered, "flavors": flavors}],
        },
    }


def _quota(quota: Quota) -> Mapping[str, str]:
    limits = {"borrowingLimit": quota.borrowing_limit, "lendingLimit": quota.lending_limit}
    return {"nominalQuota": quota.nominal, **{key: value for key, value in limits.items() if value is not None}}


def _local_queue(profile: WorkspaceProfile) -> Manifest:
    return {
        "apiVersion": KUEUE,
        "kind": "LocalQueue",
        "metadata": {"name": profile.queue, "namespace": profile.name},
        "spec": {"clusterQueue": profile.name},
    }


def _priorities(profile: WorkspaceProfile) -> list[Manifest]:
    """Kueue's order of admission, and the scheduler's of the same name: pods of a run carry it too."""
    found: list[Manifest] = []
    for name, value in {**profile.priorities, **_returning(profile)}.items():
        queueing = {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
        # Kueue preempts whole gangs; a scheduler that evicts a single pod of one would waste all of it.
        pods = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "preemptionPolicy": "Never",
        }
        found += [queueing, pods]
    return found


def _returning(profile: WorkspaceProfile) -> dict[str, int]:
    """Priorities of attempts that answer a failure, one step above the run's own.

    Between two attempts a gang's quota is free. Whoever took it then is the newest of the lower ones, and gives way.
    """
    if not profile.keep_place:
        return {}
    sisters = {f"{name}-{labels.RETURNING}": value + 1 for name, value in profile.priorities.items()}
    return {labels.RETURNING: 1, **sisters}


def _network_policies(namespace: str) -> list[Manifest]:
    """Pods of a workspace reach only each other, except for the coordinator's port, which asks for a token."""
    inside: Manifest = {"from": [{"podSelector": {}}]}
    proxied: Manifest = {"ports": [{"port": labels.COORDINATOR_PORT, "protocol": "TCP"}]}
    coordinator = {"matchLabels": {labels.ROLE: labels.COORDINATOR_ROLE}}
    return [
        _policy(namespace, "primus-inside", {}, [inside]),
        _policy(namespace, "primus-coordinator", coordinator, [proxied]),
    ]


def _policy(namespace: str, name: str, selector: Manifest, ingress: list[Manifest]) -> Manifest:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"podSelector": selector, "policyTypes": ["Ingress"], "ingress": ingress},
    }


def _disruption_budget(namespace: str) -> Manifest:
    """A drain by others waits for us: the run moves away with its notice, then its pods are gone."""
    training = {"matchExpressions": [{"key": labels.PIPELINE, "operator": "In", "values": ["train"]}]}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "primus-training", "namespace": namespace},
        "spec": {"maxUnavailable": 0, "selector": training, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
    }
