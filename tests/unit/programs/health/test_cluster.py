"""The node daemon and the Kubernetes API: peers, jobs, labels, holds and claims."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases.rows import rows
from tests.support.fakes.fake_api_server import FakeApiServer, Fault, status
from tests.support.harness.health_daemons import IDLE, Cluster, Told, Toolbox, diag, made, nvidia_smi
from workflows.programs.health.kubernetes import TAINT, UNTIL, TaintHold, iso
from workflows.programs.health.labels import HEALTH, level_label
from workflows.programs.health.node_checks import pvc
from workflows.programs.health.peers import ClusterNodes, LookupFailedError, Peer
from workflows.programs.health.query import Status
from workflows.programs.runtime.kubernetes_api import Api, ApiError, api_from

NODE = "/api/v1/nodes/n0"


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolbox:
    toolbox = Toolbox(tmp_path / "bin").healthy(1)
    monkeypatch.setenv("PATH", toolbox.path)
    return toolbox


@pytest.fixture
def cluster() -> Any:
    """Typed loosely: it stands for `Api`."""
    made_up = Cluster()
    made_up.node("n0", {"pool": "gpu"})
    made_up.node("n1", {"pool": "gpu"})
    made_up.node("n2")
    for index in range(3):
        made_up.pod(f"daemon-{index}", f"n{index}", "health", labels={"app": "health"}, address=f"10.0.0.{index}")
    made_up.pod("worker-0", "n1", "team", labels={"job": "x"})
    made_up.pod("worker-1", "n2", "team", labels={"job": "x"})
    made_up.pod("worker-2", "n2", "team", labels={"job": "y"})
    return made_up


def nodes_of(cluster: Any) -> ClusterNodes:
    return ClusterNodes(cluster, "health", "app=health", 3333, Peer("n0", "10.9.9.9"))


def asked(cluster: Any, query: str) -> tuple[list[str], list[str]]:
    one = made(nodes=nodes_of(cluster), periodic=("pvc",), run=Told())
    told = one.json(f"/status?{query}&check=foo")
    return [node["node"] for node in told["nodes"]], told["problems"]


@rows("programs/health/cluster")
def test_hosts_a_job_and_a_label_together_say_who_is_meant(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, query: str, nodes: list[str]
) -> None:
    monkeypatch.setattr("workflows.programs.health.fleet_status.ALIVE_SECONDS", 0.05)
    assert asked(cluster, query) == (nodes, [])


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("job=team:job=none", "No workload labeled with job=none - ABORT."),
        ("nodelabel=pool=none", "No node is labeled with pool=none - ABORT."),
    ],
)
def test_nobody_found_is_said(cluster: Any, query: str, problem: str) -> None:
    assert asked(cluster, query) == ([], [problem])
    text = made(nodes=nodes_of(cluster)).text(f"/status?{query}")
    assert problem in text
    assert ("Workload: team: job=none\n" in text) == query.startswith("job")


def test_an_api_that_is_away_leaves_an_answer_of_what_is_known(cluster: Any) -> None:
    cluster.refuses = {"GET": 503}
    with pytest.raises(LookupFailedError):
        nodes_of(cluster).peers()
    one = made(nodes=nodes_of(cluster), periodic=("pvc",))
    told = one.json("/status?host=n0,n1")
    assert [node["verdict"] for node in told["nodes"]] == ["unknown", "unknown"]
    assert told["nodes"][0]["report"]["checks"][0]["check"] == "pvc", "this node answers itself"
    assert "503 refused - ABORT." in told["problems"][0]
    assert one.json("/ping")["verdict"] == "unknown"


def test_a_job_needs_the_api() -> None:
    told = made().json("/status?job=a:b=c")
    assert told["problems"] == ["job a:b=c: needs the Kubernetes API, which this daemon does not have - ABORT."]
    assert told["verdict"] == "unknown"


def test_of_two_pods_of_a_node_the_running_one_counts_and_this_node_is_always_known(cluster: Any) -> None:
    cluster.pod("daemon-old", "n1", "health", labels={"app": "health"}, phase="Failed", address="10.0.0.99")
    cluster.delete("/api/v1/namespaces/health/pods/daemon-0")
    assert [(one.node, one.host) for one in nodes_of(cluster).peers()] == [
        ("n0", "10.9.9.9"),
        ("n1", "10.0.0.1"),
        ("n2", "10.0.0.2"),
    ]


def test_labels_are_written_only_where_that_is_asked_for(box: Toolbox, cluster: Any) -> None:
    made(cluster=cluster, label=False).daemon.round()
    assert cluster.patches == []
    one = made(cluster=cluster)
    one.daemon.round()
    labels = cluster.labels("n0")
    assert labels[HEALTH] == "PASS"
    assert labels[level_label(1)].startswith("PASS_20")
    assert labels["pool"] == "gpu", "others' labels stay"
    before = len(cluster.patches)
    one.daemon.report(Status(checks=("remapped",)))
    assert len(cluster.patches) == before, "what stands there already is not written"
    box.prints("nvidia-smi", nvidia_smi(1, pending=(0,)))
    one.daemon.round()
    assert cluster.labels("n0")[HEALTH] == "WARN"


def test_labels_that_could_not_be_written_are_written_with_the_next_result(box: Toolbox, cluster: Any) -> None:
    one = made(cluster=cluster)
    box.prints("dcgmi", diag({"pcie": {0: "Fail"}}))
    cluster.refuses = {"PATCH": 500}
    one.daemon.report(Status(checks=("dcgm",), level=3))
    assert any("cannot be written" in line for line in one.said)
    assert one.daemon.marks.health == "EVICT"
    cluster.refuses = {}
    box.healthy(1)
    one.daemon.round()
    assert cluster.labels("n0")[HEALTH] == "EVICT"
    assert cluster.labels("n0")[level_label(3)].startswith("ERR_")
    cluster.refuses = {"GET /api/v1/nodes": 500}
    one.daemon.round()
    assert one.daemon.marks.health == "EVICT", "what cannot be read is not forgotten"


def test_a_daemon_that_was_killed_while_testing_puts_the_label_right(box: Toolbox, cluster: Any) -> None:
    cluster.node("n0", {HEALTH: "TESTING"})
    one = made(cluster=cluster)
    one.daemon.report(Status(checks=("remapped",)))
    assert cluster.labels("n0")[HEALTH] == "", "nobody tests, and not all is known yet"
    one.daemon.round()
    assert cluster.labels("n0")[HEALTH] == "PASS"


def deep(cluster: Any, **more: Any) -> Any:
    return made(cluster=cluster, hold=TaintHold(cluster), run=Told(gpu_devices=IDLE), **more)


def test_a_deep_test_holds_the_node_and_gives_it_back(box: Toolbox, cluster: Any) -> None:
    cluster.objects[NODE]["spec"]["taints"] = [{"key": "other", "effect": "NoSchedule"}]
    seen: list[object] = []
    box.prints("dcgmi", diag({"pcie": {0: "Pass"}}))
    one = deep(cluster)
    run = one.daemon.tools._run

    def watched(call: Any, *rest: Any) -> Any:
        if call.title == "dcgmi":
            seen.append((cluster.taints("n0")[1], cluster.labels("n0").get(HEALTH), one.daemon.marks.health))
        return run(call, *rest)

    one.daemon.tools._run = watched
    assert one.daemon.deep().verdict == "pass"
    assert box.calls("dcgmi") == ["diag -j -r 3"]
    assert seen == [({"key": TAINT, "value": "health-n0", "effect": "NoSchedule"}, "TESTING", "TESTING")]
    assert cluster.taints("n0") == [{"key": "other", "effect": "NoSchedule"}]
    assert UNTIL not in cluster.annotations("n0")
    assert cluster.labels("n0")[level_label(3)].startswith("PASS_")
    assert cluster.labels("n0")[HEALTH] != "TESTING"


def test_a_daemon_that_ends_during_a_deep_test_gives_the_node_back(box: Toolbox, cluster: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    box.prints("dcgmi", diag({"pcie": {0: "Pass"}}), first=f"read line < {tmp_path}/gate")
    one = deep(cluster)
    thread = threading.Thread(target=one.daemon.deep)
    thread.start()
    with open(tmp_path / "gate", "w") as gate:  # opens once the diagnostic runs
        assert [taint["key"] for taint in cluster.taints("n0")] == [TAINT]
        one.daemon.end()
        assert cluster.taints("n0") == []
        gate.write("go\n")
    thread.join()


HINDRANCES: list[tuple[Callable[[Any], object], str]] = [
    (lambda one: one.pod("training", "n0", gpus=8), "GPUs are busy: default/training"),
    (lambda one: one.refuses.update({"GET /api/v1/pods": 403}), "it is not known whether pods use its GPUs: "),
    (lambda one: one.refuses.update({"PATCH": 403}), "PATCH /api/v1/nodes/n0: 403 refused"),
    (lambda one: one.refuses.update({"PATCH": 409}), "PATCH /api/v1/nodes/n0: 409 refused"),
]


@pytest.mark.parametrize(("prepare", "why"), HINDRANCES)
def test_a_node_that_is_busy_or_cannot_be_held_is_not_tested(
    box: Toolbox, cluster: Any, prepare: Any, why: str
) -> None:
    prepare(cluster)
    result = deep(cluster).daemon.deep()
    assert (result.verdict, result.kept) == ("unknown", False)
    assert result.why.startswith(why)
    assert box.calls("dcgmi") == []
    assert cluster.taints("n0") == []


def test_a_process_on_the_gpus_makes_a_node_busy(box: Toolbox, cluster: Any) -> None:
    from workflows.programs.parsers.text import ParsedOutput, Reading

    used = ParsedOutput((Reading("gpu_foreign_processes", 1.0, "count", line="processes 4711"),))
    one = made(cluster=cluster, hold=TaintHold(cluster), run=Told(gpu_devices=used))
    assert one.daemon.deep().why == "GPUs are busy: processes 4711"


def test_holds(cluster: Any) -> None:
    now = [1000.0]
    mine, other = (TaintHold(cluster, lambda: now[0]) for _ in range(2))
    assert mine.take("n0", "me", 60.0) == ""
    assert cluster.annotations("n0")[UNTIL] == iso(1060.0)
    assert other.take("n0", "you", 60.0) == "n0 is held by me"
    assert other.release("n0", "you") == ""
    assert mine.take("n0", "me", 120.0) == "", "one's own hold is made longer"
    assert cluster.annotations("n0")[UNTIL] == iso(1120.0)
    now[0] = 1121.0
    assert other.take("n0", "you", 60.0) == "", "one that has run out is taken over"
    assert mine.release("n0", "me") == ""
    assert [one["value"] for one in cluster.taints("n0")] == ["you"]
    assert other.release("n0", "you") == ""
    assert cluster.taints("n0") == []
    assert mine.take("nobody", "me", 1.0).startswith("GET /api/v1/nodes/nobody: 404")


def test_a_hold_by_hand_without_an_end_lasts(cluster: Any) -> None:
    cluster.objects[NODE]["spec"]["taints"] = [{"key": TAINT, "value": "preflight", "effect": "NoSchedule"}]
    assert TaintHold(cluster).take("n0", "me", 1.0) == "n0 is held by preflight"


def test_taints_that_others_write_meanwhile_are_kept(cluster: Any) -> None:
    def others() -> None:
        cluster.before_patch = None
        node = json.loads(json.dumps(cluster.objects[NODE]))
        node["spec"]["taints"] = [{"key": "quarantine", "effect": "NoSchedule"}]
        cluster.put(NODE, node)

    cluster.before_patch = others
    assert TaintHold(cluster).take("n0", "me", 60.0) == ""
    assert [one["key"] for one in cluster.taints("n0")] == ["quarantine", TAINT]


CLAIM = "/api/v1/namespaces/health/persistentvolumeclaims/autopilot-pvc-n0"
CLASS = "/apis/storage.k8s.io/v1/storageclasses/fast"


def claim(cluster: Any, phase: str, seconds: float = 1.0) -> Any:
    def wait(_: float) -> None:
        if CLAIM in cluster.objects:
            cluster.objects[CLAIM]["status"] = {"phase": phase}

    return pvc(cluster, "health", "n0", "fast", wait, seconds)


@pytest.mark.parametrize(("phase", "verdict"), [("Bound", "pass"), ("Pending", "fail"), ("Lost", "fail")])
def test_a_claim_must_be_bound_and_goes_again(cluster: Any, phase: str, verdict: str) -> None:
    cluster.put(CLASS, {"metadata": {"name": "fast"}})
    cluster.put(CLAIM, {"metadata": {"name": "autopilot-pvc-n0"}})
    assert claim(cluster, phase).verdict == verdict
    assert CLAIM not in cluster.objects


@rows("programs/health/cluster")
def test_a_claim_that_cannot_be_tried_is_unknown(cluster: Any, mode: str, refused: dict[str, int], why: str) -> None:
    cluster.put(CLASS, {"metadata": {"name": "fast"}, "volumeBindingMode": mode})
    cluster.refuses = refused
    found = claim(cluster, "Pending")
    assert (found.verdict, found.why[: len(why)]) == ("unknown", why)
    assert CLAIM not in cluster.objects


def test_without_a_class_or_an_api_no_claim_is_made(cluster: Any) -> None:
    assert pvc(cluster, "health", "n0", "").why.startswith("Storage class not set. Cannot run.")
    assert pvc(None, "health", "n0", "fast").verdict == "unknown"


def account(folder: Path, token: str) -> str:
    (folder / "token").write_text(token + "\n")
    return str(folder)


def test_the_api_over_http(tmp_path: Path) -> None:
    with FakeApiServer().running() as server:
        server.token = "first"
        for index in range(1203):
            labels = {"odd": str(index % 2)}
            server.put("pods", {"metadata": {"name": f"p{index:04d}", "labels": labels}, "spec": {"nodeName": "n"}})
        server.put("nodes", {"metadata": {"name": "n0"}})
        api = Api(server.url, account(tmp_path, "first"))
        assert len(api.items("/api/v1/namespaces/a/pods", {"labelSelector": "odd=1"})) == 601
        assert len([one for one in server.seen if "continue" in one.query]) == 1
        server.token = "second"
        with pytest.raises(ApiError, match="401 Unauthorized") as refused:
            api.get(NODE)
        assert refused.value.code == 401
        account(tmp_path, "second")  # the kubelet replaces it
        assert api.patch(NODE, {"metadata": {"labels": {"a": "b"}}})["metadata"]["labels"] == {"a": "b"}
        server.faults.append(Fault("GET", 503, status(503, "Unavailable", "later"), times=1))
        with pytest.raises(ApiError, match="503 later"):
            api.get(NODE)
        server.faults.append(Fault("GET", 0, times=1))
        with pytest.raises(ApiError) as gone:
            api.get(NODE)
        assert gone.value.code == 0
        api.delete("/api/v1/nodes/n0")
        api.delete("/api/v1/nodes/n0")
    with pytest.raises(ApiError, match="refused"):
        api.get(NODE)


def test_the_account_of_the_cluster_is_used_for_the_cluster_only(tmp_path: Path) -> None:
    folder = account(tmp_path, "secret")
    pod = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert api_from({}, "", folder) is None
    assert api_from(pod, "none", folder) is None
    assert api_from(pod, "", str(tmp_path / "nothing")) is None
    with FakeApiServer().running() as server:
        named = api_from(pod, server.url, folder)
        assert named is not None
        named.items("/api/v1/nodes")
        assert "Authorization" not in server.seen[0].headers, "no token over plain HTTP"


def test_a_whole_daemon_against_an_api_server(box: Toolbox, tmp_path: Path) -> None:
    from workflows.programs.health.main import start_daemon
    from workflows.programs.health.options import parse

    with FakeApiServer().running() as server:
        for name in ("n0", "n1"):
            server.put("nodes", {"metadata": {"name": name, "labels": {"pool": "a"}}})
        labels = {"app.kubernetes.io/name": "primus-health"}
        server.put("pods", {"metadata": {"name": "d1", "labels": labels}, "spec": {"nodeName": "n1"}, "status": {}})
        flags = ["--port=0", "--readiness-port=-1", "--metrics-port=-1", "--loglevel=0", "--label", "--compatible"]
        flags += ["--w=1h", "--invasive-check-timer=0", f"--api={server.url}", "--checks=remapped,gpupower"]
        running = start_daemon(parse(flags), {"NODE_NAME": "n0", "NAMESPACE": "health"})
        try:
            with server.changed:
                assert server.changed.wait_for(lambda: HEALTH in labels_of(server), 30)
            assert labels_of(server)[HEALTH] == "PASS"
            asked_of_all = running.daemon.nodes.peers()
            assert [(one.node, one.host) for one in asked_of_all] == [("n0", "127.0.0.1"), ("n1", "")]
        finally:
            running.close()
            assert threading.active_count() < 200


def labels_of(server: FakeApiServer) -> dict[str, str]:
    return server.objects["nodes", "n0"]["metadata"].get("labels", {})
