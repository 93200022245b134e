from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from kubernetes.client.configuration import Configuration
from pydantic import BeforeValidator

from profiles.cluster import ClusterProfile
from profiles.errors import Conflict, Fenced, Foreign, NotFound, Permanent, PrimusError, Refused, Unavailable
from tasks.cluster import Answered, Cluster
from tasks.kubernetes.api_server import ApiServer
from tasks.kubernetes.cluster import KubernetesCluster
from tasks.kubernetes.configuration import configuration_of
from tasks.settings import localised
from tests.support.cases.columns import AnError
from tests.support.cases.rows import rows
from tests.support.fakes.fake_api_server import FakeApiServer, Fault, Seen, status
from workflows import labels
from workflows.model.ownership import marks

PROFILE = ClusterProfile.model_validate(
    {
        "name": "real",
        "engine": "kubernetes",
        "namespace": "train",
        "pools": [{"name": "cpu", "hardware": "cpu", "nodes": 1}],
        "storage": [{"kind": "claim", "source": "runs", "mount_path": "/runs"}],
    }
)


class Sleeps:
    """Remembers how long was slept and sleeps not at all."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def configuration(url: str, token: str = "") -> Configuration:
    made = Configuration(host=url)
    if token:
        made.api_key["BearerToken"] = f"Bearer {token}"
    return made


@pytest.fixture
def sleeps() -> Sleeps:
    return Sleeps()


@pytest.fixture
def cluster(api: FakeApiServer, sleeps: Sleeps) -> Iterator[KubernetesCluster]:
    made = KubernetesCluster(PROFILE, ApiServer(lambda: configuration(api.url), sleep=sleeps))
    yield made
    made.close()


def jobset(name: str = "demo-a1", fencing: int = 0, run: str = "demo", ledger: str = "", **spec: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "labels": {labels.RUN: run}}
    if fencing or ledger:
        metadata["annotations"] = marks(fencing, ledger)
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}


def pod(name: str, **more: Any) -> dict[str, Any]:
    body = {"spec": {"containers": [{"name": "main"}]}, "status": {"phase": "Running"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"a": "b"}}} | body | more


def test_it_is_a_cluster(cluster: KubernetesCluster) -> None:
    seam: Cluster = cluster
    assert seam.name == "real"


def test_apply_is_server_side_strict_and_idempotent(cluster: KubernetesCluster, api: FakeApiServer) -> None:
    first = cluster.apply(jobset(replicas=1))
    again = cluster.apply(jobset(replicas=1))
    assert first["spec"] == again["spec"] == {"replicas": 1}
    sent = api.requests("PATCH")[0]
    assert sent.path == "/apis/jobset.x-k8s.io/v1alpha2/namespaces/train/jobsets/demo-a1"
    assert sent.query == {"fieldManager": "primus-flows", "fieldValidation": "Strict", "force": "false"}
    assert sent.headers["Content-Type"] == "application/apply-patch+yaml"
    assert sent.json["metadata"]["namespace"] == "train"


def test_a_dry_run_stores_nothing(cluster: KubernetesCluster, api: FakeApiServer) -> None:
    assert cluster.apply(jobset(replicas=1), dry_run=True)["spec"] == {"replicas": 1}
    assert api.requests("PATCH")[0].query["dryRun"] == "All"
    assert api.objects == {}


def test_a_generated_name_is_created_once_even_when_the_answer_is_lost(
    cluster: KubernetesCluster, api: FakeApiServer
) -> None:
    manifest = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"generateName": "hello-"}}
    assert cluster.apply(manifest)["metadata"]["name"] == "hello-x7k2p"
    api.faults.append(Fault("POST"))
    with pytest.raises(Unavailable):
        cluster.apply(manifest)
    assert len(api.requests("POST")) == 2


@rows("tasks/kubernetes/cluster")
def test_a_manifest_that_is_not_ours_to_write_is_refused_before_anything_is_sent(
    cluster: KubernetesCluster, api: FakeApiServer, change: dict[str, Any], path: str
) -> None:
    with pytest.raises(Refused) as refused:
        cluster.apply(jobset() | change)
    assert refused.value.path == path
    assert api.seen == []


def test_foreign_newer_and_dying_objects_are_left_alone(cluster: KubernetesCluster, api: FakeApiServer) -> None:
    cases: list[tuple[dict[str, Any], type[PrimusError]]] = [
        (jobset(run="other"), Conflict),
        (jobset(fencing=3), Fenced),
        (jobset(ledger="theirs"), Foreign),
    ]
    dying = jobset()
    dying["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z"
    for existing, error in [*cases, (dying, Unavailable)]:
        api.put("jobsets", existing)
        with pytest.raises(error, match="demo-a1"):
            cluster.apply(jobset(fencing=2, ledger="ours"))
    assert api.requests("PATCH") == []


def test_an_object_without_a_run_is_ours_by_its_field_manager(cluster: KubernetesCluster, api: FakeApiServer) -> None:
    bare = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "notes"}, "data": {"a": "1"}}
    cluster.apply(bare)
    assert cluster.apply(bare)["data"] == {"a": "1"}
    api.put("configmaps", {"metadata": {"name": "theirs", "managedFields": [{"manager": "kubectl"}]}})
    with pytest.raises(Conflict, match="not ours"):
        cluster.apply(bare | {"metadata": {"name": "theirs"}})


def body_of(told: dict[str, Any] | str) -> bytes:
    return status(**told) if isinstance(told, dict) else told.encode()


ABody = Annotated[bytes, BeforeValidator(body_of)]


@rows("tasks/kubernetes/cluster")
def test_answers_become_our_errors(
    cluster: KubernetesCluster, api: FakeApiServer, code: int, body: ABody, error: AnError, words: str
) -> None:
    api.faults.append(Fault("PATCH", code, body, times=9))
    with pytest.raises(error, match=words):
        cluster.apply(jobset())
    assert len(api.requests("PATCH")) <= 2


TROUBLES = [
    Fault("PATCH", 429, status(429, "TooManyRequests", retryAfterSeconds=2), {"Retry-After": "2"}),
    Fault("PATCH", 503, b"upstream connect error"),
    Fault("PATCH", 500, status(500, "InternalError", "etcdserver: leader changed"), times=2),
    Fault("PATCH", 0),
    Fault("PATCH", 409, status(409, "Conflict", "the object has been modified"), times=2),
    Fault("GET", 0, times=2),
]


@pytest.mark.parametrize("fault", TROUBLES, ids=lambda fault: f"{fault.match}-{fault.code}")
def test_passing_trouble_is_tried_again(
    cluster: KubernetesCluster, api: FakeApiServer, sleeps: Sleeps, fault: Fault
) -> None:
    api.faults.append(Fault(fault.match, fault.code, fault.body, fault.headers, fault.times))
    assert cluster.apply(jobset(replicas=2))["spec"] == {"replicas": 2}
    assert len(sleeps.seconds) == fault.times
    assert max(sleeps.seconds) >= (2.0 if fault.code == 429 else 0.0)


def test_a_server_that_asks_for_more_patience_than_there_is_time_is_unavailable_for_so_long(
    cluster: KubernetesCluster, api: FakeApiServer
) -> None:
    api.faults.append(Fault("GET", 429, status(429, "TooManyRequests"), {"Retry-After": "30"}))
    with pytest.raises(Unavailable) as away:
        cluster.get("Pod", "x")
    assert away.value.retry_after_seconds == 30.0


def test_credentials_that_expired_are_read_anew(api: FakeApiServer) -> None:
    tokens = iter(["old", "new", "newer", "newest"])
    api.token = "new"
    api.put("pods", pod("p"))
    cluster = KubernetesCluster(PROFILE, ApiServer(lambda: configuration(api.url, next(tokens))))
    assert cluster.get("Pod", "p") is not None
    api.token = "newer"
    assert next(cluster.watch("Pod", since="100", timeout_seconds=10.0)).type == "ADDED"
    api.token = "newest"
    assert cluster.call("p", 1, "GET", "/").body == b"hello"
    cluster.close()


def test_a_pod_that_refuses_our_token_does_not_cost_the_connection(api: FakeApiServer) -> None:
    loads: list[int] = []

    def load() -> Configuration:
        loads.append(1)
        return configuration(api.url)

    api.pod_app = lambda seen: (401, b"who are you?")
    cluster = KubernetesCluster(PROFILE, ApiServer(load))
    for _ in range(3):
        assert cluster.call("p", 1, "GET", "/").status == 401
    assert len(loads) == 1
    cluster.close()


def test_get_tells_absent_objects_from_absent_kinds(cluster: KubernetesCluster, api: FakeApiServer) -> None:
    assert cluster.get("JobSet", "absent") is None
    api.put("jobsets", jobset())
    found = cluster.get("JobSet", "demo-a1")
    assert found is not None
    assert found["kind"] == "JobSet"
    api.faults.append(Fault("jobsets", 404, b"404 page not found"))
    with pytest.raises(NotFound, match="does not serve"):
        cluster.get("JobSet", "demo-a1")


def test_patch_merges_and_writes_the_status_through_its_own_path(
    cluster: KubernetesCluster, api: FakeApiServer
) -> None:
    api.put("nodes", {"kind": "Node", "metadata": {"name": "n", "labels": {"a": "1", "b": "2"}}})
    change = {"metadata": {"labels": {"b": None, "c": "3"}}, "status": {"conditions": [{"type": "PrimusVerdict"}]}}
    cluster.patch("Node", "n", change)
    assert api.objects["nodes", "n"]["metadata"]["labels"] == {"a": "1", "c": "3"}
    assert [(seen.path, list(seen.json)) for seen in api.requests("PATCH")] == [
        ("/api/v1/nodes/n", ["metadata"]),
        ("/api/v1/nodes/n/status", ["status"]),
    ]
    with pytest.raises(NotFound):
        cluster.patch("Node", "absent", {"spec": {}})


def test_a_status_is_written_for_the_version_that_was_seen(cluster: KubernetesCluster, api: FakeApiServer) -> None:
    api.put("nodes", {"kind": "Node", "metadata": {"name": "n"}})
    change: dict[str, Any] = {"metadata": {"resourceVersion": "1"}, "status": {"conditions": []}}
    api.faults.append(Fault("PATCH", 409, status(409, "Conflict", "modified"), times=9))
    with pytest.raises(Conflict, match="modified"):
        cluster.patch("Node", "n", change)
    [sent] = api.requests("PATCH")
    assert (sent.path, sent.json) == ("/api/v1/nodes/n/status", change), "one write, which the version pins"


def test_a_patch_meant_for_one_version_is_not_sent_again_after_a_conflict(
    cluster: KubernetesCluster, api: FakeApiServer
) -> None:
    api.faults.append(Fault("PATCH", 409, status(409, "Conflict", "modified"), times=9))
    with pytest.raises(Conflict, match="modified"):
        cluster.patch("Node", "n", {"metadata": {"resourceVersion": "7"}, "spec": {"taints": []}})
    assert len(api.requests("PATCH")) == 1


def test_deleting_takes_the_pods_along_with_the_grace_that_was_asked_for(
    cluster: KubernetesCluster, api: FakeApiServer
) -> None:
    api.put("jobsets", jobset())
    cluster.delete("JobSet", "demo-a1", grace_seconds=0)
    cluster.delete("JobSet", "demo-a1")
    first, pods, second = api.requests("DELETE")
    assert first.json == second.json == {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    assert pods.path == "/api/v1/namespaces/train/pods"
    assert pods.query == {"labelSelector": "jobset.sigs.k8s.io/jobset-name=demo-a1"}
    assert pods.json["gracePeriodSeconds"] == 1, "forgotten only once its processes are gone"
    api.put("pods", pod("p"))
    cluster.delete("Pod", "p", grace_seconds=5)
    assert api.requests("DELETE")[-1].json["gracePeriodSeconds"] == 5


def test_a_call_goes_through_the_proxy_with_the_token_in_its_own_header(
    cluster: KubernetesCluster, api: FakeApiServer
) -> None:
    api.pod_app = lambda seen: (403, seen.body)
    answer = cluster.call("c-0", 29400, "POST", "/v1/stop?now=1", token="s3cret", body=b"{}")
    assert answer == Answered(403, b"{}")
    seen = api.requests("POST")[0]
    assert seen.path == "/api/v1/namespaces/train/pods/c-0:29400/proxy/v1/stop"
    assert (seen.query, seen.headers["X-Primus-Token"]) == ({"now": "1"}, "s3cret")
    assert "Authorization" not in seen.headers


PROXY_ANSWERS: list[tuple[int, bytes, type[PrimusError]]] = [
    (404, status(404, "NotFound", 'pods "c-0" not found', name="c-0"), NotFound),
    (503, status(503, "ServiceUnavailable", "error trying to reach service: connection refused"), Unavailable),
    (503, b"Error trying to reach service: 'dial tcp 10.0.0.7:29400: i/o timeout'", Unavailable),
    (403, status(403, "Forbidden", "cannot get pods/proxy"), Refused),
    (400, status(400, "BadRequest", "address not allowed"), Unavailable),
]


@pytest.mark.parametrize(("code", "body", "error"), PROXY_ANSWERS)
def test_the_api_servers_own_answers_to_a_call_are_not_the_pods(
    cluster: KubernetesCluster, api: FakeApiServer, code: int, body: bytes, error: type[PrimusError]
) -> None:
    api.pod_app = lambda seen: (code, body)
    with pytest.raises(error):
        cluster.call("c-0", 29400, "GET", "/status")
    assert len(api.seen) == 1


def test_a_pod_that_does_not_answer_costs_no_more_than_the_time_given(
    cluster: KubernetesCluster, api: FakeApiServer
) -> None:
    released = threading.Event()

    def slow(seen: Seen) -> tuple[int, bytes]:
        released.wait(30)
        return 200, b""

    api.pod_app = slow
    with pytest.raises(Unavailable, match="does not answer"):
        cluster.call("c-0", 29400, "GET", "/status", timeout_seconds=0.1)
    released.set()


def test_a_server_that_is_away_is_unavailable(sleeps: Sleeps) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        clock = iter(range(1000))
        server = ApiServer(lambda: configuration(url), clock=lambda: float(next(clock)), sleep=sleeps)
        with pytest.raises(Unavailable, match="does not answer"):
            KubernetesCluster(PROFILE, server).list("Pod")
    assert len(sleeps.seconds) >= 2


def test_an_answer_larger_than_any_page_is_refused_instead_of_filling_the_memory(
    cluster: KubernetesCluster, api: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.kubernetes.api_server._BODY_BYTES", 1000)
    api.put("pods", pod("p", note="x" * 2000))
    with pytest.raises(Permanent, match="larger than"):
        cluster.get("Pod", "p")


def test_versions_name_what_is_served(cluster: KubernetesCluster, api: FakeApiServer) -> None:
    group = {"name": "argoproj.io", "preferredVersion": {"version": "v1alpha1"}}
    api.faults += [
        Fault("GET /version", 200, b'{"gitVersion": "v1.36.3"}'),
        Fault("GET /apis", 200, ('{"groups": [' + str(group).replace("'", '"') + "]}").encode()),
    ]
    assert cluster.versions() == {
        "engine": "kubernetes",
        "kubernetes": "v1.36.3",
        "argo": "v1alpha1",
        "jobset": "absent",
        "kueue": "absent",
    }


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: elsewhere
clusters:
  - {{name: real, cluster: {{server: "{url}"}}}}
  - {{name: gone, cluster: {{server: "http://127.0.0.1:1"}}}}
users:
  - {{name: ada, user: {{token: s3cret}}}}
contexts:
  - {{name: prod, context: {{cluster: real, user: ada}}}}
  - {{name: elsewhere, context: {{cluster: gone, user: ada}}}}
"""


def test_the_profiles_context_of_a_kubeconfig_is_used(
    api: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(KUBECONFIG.format(url=api.url))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    api.token = "s3cret"
    api.put("pods", pod("p"))
    cluster = KubernetesCluster(PROFILE.model_copy(update={"context": "prod"}))
    assert [found["metadata"]["name"] for found in cluster.list("Pod", {"a": "b"})] == ["p"]
    cluster.close()


def test_without_any_configuration_it_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(Permanent, match="KUBECONFIG"):
        configuration_of("", {})
    with pytest.raises(Permanent, match="KUBECONFIG"):
        configuration_of("prod", {"KUBECONFIG": str(tmp_path / "absent")})


def test_the_kubeconfig_of_a_profile_stands_before_that_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(KUBECONFIG.format(url="https://192.0.2.100:6443"))
    absent = {"KUBECONFIG": str(tmp_path / "absent")}
    own = localised(PROFILE.model_copy(update={"kubeconfig": "{home}/config"}), tmp_path)
    assert configuration_of("prod", absent, own.kubeconfig).host == "https://192.0.2.100:6443"
    with pytest.raises(Permanent, match="no access to a Kubernetes cluster"):
        configuration_of("", {}, absent["KUBECONFIG"])
