"""Reading a living cluster over HTTP: what is asked, what may not be read, what the objects say. Nothing is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.configuration import Configuration

from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError, Refused, Unavailable
from tasks.kubernetes.api_server import ApiServer
from tasks.kubernetes.cluster import KubernetesCluster
from tasks.kubernetes.configuration import context_of
from tasks.kubernetes.resources import RESOURCES, resource_of
from tasks.observe.inventory import take_inventory
from tests.support.fakes.fake_api_server import FakeApiServer, Fault, status
from workflows.model.cluster import Claim
from workflows.model.inventory import FlavorStock, NodeStock, ServiceStock


def cluster_at(api: FakeApiServer) -> KubernetesCluster:
    configuration = Configuration()
    configuration.host = api.url
    profile = ClusterProfile.model_construct(name="import", context="", namespace="training")
    return KubernetesCluster(profile, ApiServer(lambda: configuration))


def made(kind: str, name: str, namespace: str = "", **fields: Any) -> dict[str, Any]:
    labels = fields.pop("labels", {})
    inside = {"namespace": namespace} if namespace else {}
    return {"kind": kind, "metadata": {"name": name, "labels": labels, **inside}, **fields}


def furnish(api: FakeApiServer) -> None:
    """A cluster with one of each kind."""
    room = {"cpu": "2", "nvidia.com/gpu": "8"}
    ready = {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
    taints = [{"key": "a", "effect": "NoSchedule"}]
    api.put("nodes", made("Node", "n0", labels={"x": "y"}, spec={"taints": taints}, status=ready))
    api.put("namespaces", made("Namespace", "training"))
    api.put("localqueues", made("LocalQueue", "team", spec={"clusterQueue": "research"}))
    resources = [{"name": "nvidia.com/gpu", "nominalQuota": "8"}]
    groups = [{"flavors": [{"name": "nv", "resources": resources}]}]
    api.put("clusterqueues", made("ClusterQueue", "research", spec={"resourceGroups": groups}))
    api.put("clusterqueues", made("ClusterQueue", "elsewhere"))
    api.put("resourceflavors", made("ResourceFlavor", "nv", spec={"nodeLabels": {"x": "y"}, "topologyName": "net"}))
    levels = [{"nodeLabel": "block"}, {"nodeLabel": "kubernetes.io/hostname"}]
    api.put("topologies", made("Topology", "net", spec={"levels": levels}))
    api.put("priorityclasses", made("PriorityClass", "high", value=10))
    api.put("workloadpriorityclasses", made("WorkloadPriorityClass", "high", value=100))
    claim = {"accessModes": ["ReadWriteMany"], "storageClassName": "nfs", "resources": {"requests": {"storage": "1Ti"}}}
    bound = {"phase": "Bound", "accessModes": ["ReadWriteMany"], "capacity": {"storage": "2Ti"}}
    api.put("persistentvolumeclaims", made("PersistentVolumeClaim", "shared", spec=claim, status=bound))
    api.put("persistentvolumeclaims", made("PersistentVolumeClaim", "new", spec=claim))
    api.put("storageclasses", made("StorageClass", "nfs", provisioner="nfs.csi"))
    ports = [{"name": "web", "port": 9090}, {"port": 80}]
    api.put("services", made("Service", "prometheus", "mon", labels={"app": "p"}, spec={"ports": ports}))


def test_everything_is_read_and_nothing_is_written(api: FakeApiServer) -> None:
    furnish(api)
    found = take_inventory(cluster_at(api), "big", "training")
    room = {"cpu": "2", "nvidia.com/gpu": "8"}
    assert found.nodes == (NodeStock("n0", {"x": "y"}, ("a=:NoSchedule",), room, room, ready=True),)
    assert found.namespace_exists is True
    assert [queue.cluster_queue for queue in found.local_queues] == ["research"]
    assert [(queue.name, queue.quotas[0].flavor) for queue in found.cluster_queues] == [("research", "nv")]
    assert found.flavors == (FlavorStock("nv", {"x": "y"}, "net"),)
    assert found.topologies == {"net": ("block", "kubernetes.io/hostname")}
    assert (found.priority_classes, found.workload_priority_classes) == ({"high": 10}, {"high": 100})
    assert set(found.volumes) == {
        Claim("shared", "Bound", ("ReadWriteMany",), "nfs", "2Ti"),
        Claim("new", "Pending", ("ReadWriteMany",), "nfs", "1Ti"),
    }
    assert found.storage_classes == (("nfs", "nfs.csi"),)
    assert found.services == (ServiceStock("prometheus", "mon", {"app": "p"}, (("web", 9090), ("", 80))),)
    assert found.unread == {}
    assert {seen.method for seen in api.seen} == {"GET"}
    assert [seen.path for seen in api.requests("GET", "/services")] == ["/api/v1/services"]
    assert [seen.path for seen in api.requests("GET", "/localqueues")] == [
        "/apis/kueue.x-k8s.io/v1beta2/namespaces/training/localqueues"
    ]


@pytest.mark.parametrize("kind", ["Node", "Service", "LocalQueue", "PersistentVolumeClaim", "Namespace"])
def test_what_is_forbidden_is_named_and_the_rest_is_read(api: FakeApiServer, kind: str) -> None:
    furnish(api)
    resource = RESOURCES[kind]  # pyright: ignore[reportArgumentType]
    path = resource.path("training", "training" if kind == "Namespace" else "")
    api.faults.append(Fault(f"GET {path}", 403, status(403, "Forbidden", f"{kind} is forbidden: you cannot list it")))
    found = take_inventory(cluster_at(api), "big", "training")
    assert list(found.unread) == [kind]
    assert "forbidden" in found.unread[kind]
    assert found.namespace_exists is (None if kind == "Namespace" else True)
    assert found.flavors


def test_a_cluster_without_kueue(api: FakeApiServer) -> None:
    api.faults.append(Fault("kueue.x-k8s.io", 404, b"404 page not found\n", times=99))
    found = take_inventory(cluster_at(api), "big", "training")
    assert set(found.unread) == {"LocalQueue", "ResourceFlavor", "Topology", "WorkloadPriorityClass"}
    assert found.namespace_exists is False


def test_a_cluster_that_does_not_answer_is_no_empty_one(api: FakeApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.kubernetes.api_server.REQUEST_SECONDS", 0.2)
    cluster = cluster_at(api)
    api.faults.append(Fault("/api", times=10**6))
    with pytest.raises(Unavailable):
        take_inventory(cluster, "big", "training")


def test_kinds_that_are_only_read_are_never_applied() -> None:
    for kind in ("Namespace", "Service", "PriorityClass"):
        with pytest.raises(Refused, match="none of the kinds we write"):
            resource_of({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}}, "training")


def kubeconfig(folder: Path, server: str = "http://127.0.0.1:1") -> Path:
    """Two contexts, one of which names a namespace."""
    contexts = [
        {"name": "big", "context": {"cluster": "c", "user": "u", "namespace": "training"}},
        {"name": "plain", "context": {"cluster": "c", "user": "u"}},
    ]
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "plain",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": contexts,
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(document))
    return path


def test_a_context_tells_its_namespace(tmp_path: Path) -> None:
    environ = {"KUBECONFIG": str(kubeconfig(tmp_path))}
    assert context_of("big", environ) == ("big", "training")
    assert context_of("", environ) == ("plain", "default")
    with pytest.raises(ProfileError, match='did you mean "plain"'):
        context_of("plian", environ)
    broken = tmp_path / "broken"
    broken.write_text("contexts: [")
    for path in (broken, tmp_path / "absent"):
        with pytest.raises(ProfileError, match="no kubeconfig that can be read"):
            context_of("big", {"KUBECONFIG": str(path)})


def test_inside_a_cluster_there_is_no_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert context_of("", {}) == ("", "default")
