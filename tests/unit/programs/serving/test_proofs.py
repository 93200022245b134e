"""Each proof passes where something serves, and fails where pods run and nothing does."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from profiles.loading.load import load_shelf
from tests.support.fakes.serving_stand_ins import (
    Answer,
    Asked,
    Clock,
    MadeCluster,
    StandInLogs,
    StandInMetrics,
    StandInRegistry,
    prove,
    serving,
)
from workflows.programs.runtime.kubernetes_api import ApiError, Json
from workflows.programs.serving import main as program
from workflows.programs.serving.main import PROOFS, Options, proven

NODES = ("a", "b", "c")


def always(body: bytes) -> Callable[[Asked], Answer]:
    return lambda asked: (200, {}, body)


def test_there_is_a_proof_of_every_kind_that_profiles_know() -> None:
    from profiles.bootstrap.components import PROOF_PARAMETERS

    assert PROOFS.keys() == PROOF_PARAMETERS.keys()


@pytest.mark.parametrize(
    ("loses", "word", "says"),
    [
        ("", "pass", "came back whole"),
        ("blob", "fail", "answered 404"),
        ("manifest", "fail", "answered 404"),
        ("bytes", "fail", "was accepted, and sha256:"),
    ],
)
def test_registry(loses: str, word: str, says: str) -> None:
    registry = StandInRegistry(loses)
    with serving(registry) as url:
        seen = prove("registry", MadeCluster(*NODES), url=url)
    assert (seen.word, says in seen.why) == (word, True), seen
    assert len(registry.kept) == 3, "the push was accepted"
    assert bool(registry.lost) == bool(loses)


def test_registry_with_a_password_that_is_read_and_never_told() -> None:
    cluster = MadeCluster(*NODES)
    data = {"username": base64.b64encode(b"bot").decode(), "password": base64.b64encode(b"hush").decode()}
    cluster.objects["/api/v1/namespaces/primus-bootstrap/secrets/push"] = {"metadata": {"name": "push"}, "data": data}
    with serving(StandInRegistry(password=base64.b64encode(b"bot:hush").decode())) as url:
        assert prove("registry", cluster, url=url, secret="push").word == "pass"
        refused = prove("registry", cluster, url=url)
    assert (refused.word, "401" in refused.why, "hush" in refused.why) == ("fail", True, False)


def pulls(bad: str) -> Callable[[Json], Json]:
    def status(pod: Json) -> Json:
        image = pod["spec"]["containers"][0]["image"]
        if pod["spec"]["nodeName"] == bad:
            waiting = {"reason": "ImagePullBackOff", "message": "http: server gave HTTP response to HTTPS client"}
            return {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}
        return {"phase": "Failed", "containerStatuses": [{"imageID": image, "state": {}}]}

    return status


@pytest.mark.parametrize(("bad", "word"), [("", "pass"), ("b", "fail")])
def test_registry_is_pulled_from_by_every_node(bad: str, word: str) -> None:
    cluster = MadeCluster(*NODES)
    cluster.pods(pulls(bad))
    with serving(StandInRegistry()) as url:
        seen = prove("registry", cluster, url=url, pulled_as="http://node.local:5000")
    assert seen.word == word
    assert ("3 nodes pulled" in seen.why) if not bad else ("b: ImagePullBackOff http: server gave" in seen.why)


@pytest.mark.parametrize(
    ("does", "word", "says"),
    [
        ("keeps", "pass", "found again"),
        ("forgets", "fail", "the query finds nothing"),
        ("lies", "fail", "was accepted and the query finds"),
        ("nonsense", "fail", "cannot be read"),
    ],
)
def test_metrics(does: str, word: str, says: str) -> None:
    store = StandInMetrics(does)
    with serving(store) as url:
        seen = prove("metrics", MadeCluster(), write_url=f"{url}/write", query_url=f"{url}/query")
    assert (seen.word, says in seen.why) == (word, True), seen
    assert len(store.written) == 1


@pytest.mark.parametrize(
    ("does", "word", "says"),
    [
        ("keeps", "pass", "found by run and rank"),
        ("forgets", "fail", "not found by run and rank"),
        ("echoes", "fail", "found as that of rank 4 too"),
    ],
)
def test_logs(does: str, word: str, says: str) -> None:
    store = StandInLogs(does)
    with serving(store) as url:
        seen = prove("logs", MadeCluster(), write_url=f"{url}/insert", query_url=f"{url}/query")
    assert (seen.word, says in seen.why) == (word, True), seen
    assert len(store.lines) == 1


@pytest.mark.parametrize(("ships", "word"), [(True, "pass"), (False, "fail")])
def test_logs_that_a_pod_prints_are_shipped(ships: bool, word: str) -> None:
    store, cluster = StandInLogs(), MadeCluster(*NODES)

    def shipped(path: str, body: Json) -> None:
        if ships and "/pods/" in path:
            [text] = [one.partition("=")[2] for one in body["spec"]["containers"][0]["command"] if "--text=" in one]
            store.lines.append({"_msg": text, "run": body["metadata"]["labels"]["primus-flows.io/run"]})

    cluster.took = shipped
    with serving(store) as url:
        seen = prove("logs", cluster, write_url=f"{url}/insert", query_url=f"{url}/query", shipped="yes")
    assert seen.word == word, seen


def test_http_wants_the_words_and_not_only_an_answer() -> None:
    def page(asked: Asked) -> Answer:
        return (200, {}, b"up 1") if asked.path == "/metrics" else (503, {}, b"starting")

    with serving(page) as url:
        assert prove("http", MadeCluster(), url=url, path="/metrics", contains="up").word == "pass"
        wrong = prove("http", MadeCluster(), url=url, path="/metrics", contains="gpu_")
        assert (wrong.word, "without 'gpu_'" in wrong.why) == ("fail", True)
        away = prove("http", MadeCluster(), url=url, path="/other")
        assert (away.word, "503 starting" in away.why) == ("fail", True)
    gone = prove("http", MadeCluster(), url=url, path="/metrics")
    assert (gone.word, "refused" in gone.why.lower()) == ("fail", True)


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ({"observedGeneration": 2, "updatedReplicas": 1, "readyReplicas": 1}, "pass"),
        ({"observedGeneration": 2, "updatedReplicas": 1}, "fail"),
        ({"observedGeneration": 2, "readyReplicas": 1}, "fail"),
        ({"observedGeneration": 1, "updatedReplicas": 1, "readyReplicas": 1}, "fail"),
        ({}, "fail"),
        (None, "fail"),
    ],
)
def test_http_beside_deployments_wants_their_pods_too(status: Json | None, word: str) -> None:
    cluster = MadeCluster()
    if status is not None:
        metadata, path = {"name": "d", "generation": 2}, "/apis/apps/v1/namespaces/n/deployments/d"
        cluster.objects[path] = {"metadata": metadata, "spec": {"replicas": 1}, "status": status}
    with serving(always(b"true")) as url:
        assert prove("http", cluster, url=url, contains="true", deployments="n/d").word == word


@pytest.mark.parametrize("name", ["primus-monitor", "primus-runner"])
def test_our_own_components_do_not_serve_by_another_one_s_page(name: str) -> None:
    proof = load_shelf()[name].proof
    assert f"/{name}" in proof.parameters["deployments"]


@pytest.mark.parametrize(("up", "word"), [(True, "pass"), (False, "fail")])
def test_figures_are_fetched_only_where_the_store_has_them(up: bool, word: str) -> None:
    proof = load_shelf()["vmagent"].proof

    def store(asked: Asked) -> Answer:
        assert asked.query == {"query": 'up{job="kubelets"} == 1'}
        rows = [{"metric": {"__name__": "up", "job": "kubelets"}, "value": [0, "1"]}] if up else []
        return 200, {}, json.dumps({"data": {"result": rows}}, separators=(",", ":")).encode()

    with serving(store) as url:
        parameters = {name: text.replace("${store}", url) for name, text in proof.parameters.items()}
        assert prove(proof.kind, MadeCluster(), **parameters).word == word


def test_http_of_every_node_fails_by_one() -> None:
    cluster = MadeCluster("a", "b")
    cluster.objects["/api/v1/nodes/a"]["status"]["addresses"][0]["address"] = "127.0.0.1"
    cluster.objects["/api/v1/nodes/b"]["status"]["addresses"][0]["address"] = "127.0.0.1:1#"
    with serving(always(b"node_uname_info 1")) as url:
        port = url.rpartition(":")[2]
        wanted = {"url": "http://{node}:" + port, "path": "/metrics", "contains": "node_uname_info", "nodes": "all"}
        seen = prove("http", cluster, **wanted)
        del cluster.objects["/api/v1/nodes/b"]
        assert prove("http", cluster, **wanted).word == "pass"
    assert (seen.word, seen.why.startswith("b: ")) == ("fail", True), seen
    assert prove("http", MadeCluster(), **wanted).word == "unknown", "no node is no proof"


@pytest.mark.parametrize(("known", "word"), [("kubernetes", "pass"), ("nobody", "fail"), ("default", "fail")])
def test_dns(known: str, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(name: str, port: int, **_: Any) -> list[Any]:
        if known not in name:
            raise socket.gaierror(-2, "Name or service not known")
        return [(0, 0, 0, "", ("10.96.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", look)
    assert prove("dns", MadeCluster()).word == word


SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io"
ROWS = "/apis/metrics.k8s.io/v1beta1/nodes"


@pytest.mark.parametrize(
    ("available", "told", "word", "says"),
    [
        ("True", NODES, "pass", "all 3 nodes"),
        ("True", ("a",), "fail", "tells nothing of b, c"),
        ("False", NODES, "fail", "is not available"),
    ],
)
def test_api_service(available: str, told: tuple[str, ...], word: str, says: str) -> None:
    cluster = MadeCluster(*NODES)
    conditions = [{"type": "Available", "status": available}]
    cluster.objects[SERVICE] = {"metadata": {"name": "s"}, "status": {"conditions": conditions}}
    cluster.lists[ROWS] = [{"metadata": {"name": name}} for name in told]
    seen = prove("api-service", cluster, name="v1beta1.metrics.k8s.io", path=ROWS)
    assert (seen.word, says in seen.why) == (word, True), seen


CLASS = {"apiVersion": "made.io/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": {}}


@pytest.mark.parametrize(("status", "word"), [("True", "pass"), ("False", "fail"), ("", "fail")])
def test_a_custom_resource_is_reconciled(status: str, word: str) -> None:
    cluster = MadeCluster()
    cluster.objects["/apis/made.io/v1"] = {"resources": [{"name": "things", "kind": "Thing", "namespaced": False}]}

    def reconciled(path: str, found: Json) -> None:
        if "/things/" in path and status:
            found["status"] = {"conditions": [{"type": "Ready", "status": status}]}

    cluster.becomes.append(reconciled)
    assert prove("crd", cluster, object=json.dumps(CLASS), condition="Ready").word == word
    assert prove("crd", cluster, object=json.dumps(CLASS), condition="stored").word == "pass"
    unknown = CLASS | {"kind": "Other"}
    assert prove("crd", cluster, object=json.dumps(unknown), condition="stored").word == "fail"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    def made(name: str) -> str:
        folder: Path = tmp_path_factory.mktemp("certificate")
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        files = ["-keyout", folder / "key", "-out", folder / "crt", "-days", "1", "-subj", f"/CN={name}"]
        subprocess.run([*words, *files], check=True, capture_output=True)
        return (folder / "crt").read_text()

    return made


@pytest.mark.parametrize(
    ("issues", "word", "says"),
    [("asked", "pass", "was issued"), ("other", "fail", "asked was"), ("", "fail", "no certificate was issued")],
)
def test_certificates(issues: str, word: str, says: str, certificate: Callable[[str], str]) -> None:
    cluster = MadeCluster()

    def issued(path: str, stored: Json) -> None:
        if "/certificates/" in path and issues:
            name = stored["spec"]["commonName"] if issues == "asked" else "somebody"
            secret = f"/api/v1/namespaces/primus-bootstrap/secrets/{stored['spec']['secretName']}"
            text = base64.b64encode(certificate(name).encode()).decode()
            cluster.objects[secret] = {"metadata": {"name": "s"}, "data": {"tls.crt": text}}

    cluster.took = issued
    seen = prove("certificates", cluster)
    assert (seen.word, says in seen.why) == (word, True), seen
    assert not [path for path in cluster.objects if "/secrets/" in path], "the key goes too"


@pytest.mark.parametrize(
    ("phase", "tells", "word", "says"),
    [
        ("Succeeded", True, "pass", "its word came back"),
        ("Succeeded", False, "fail", "did not come back"),
        ("Running", False, "fail", "is Running"),
        ("", False, "fail", "not looked at by any controller"),
    ],
)
def test_workflow(phase: str, tells: bool, word: str, says: str) -> None:
    cluster = MadeCluster()

    def took(path: str, stored: Json) -> None:
        if "/workflows/" in path:
            mark = stored["spec"]["templates"][0]["container"]["command"][3].partition("=")[2]
            del stored["spec"]["templates"]
            stored["status"] = {"phase": phase, "nodes": {"n": {"outputs": mark if tells else ""}}}

    cluster.took = took
    seen = prove("workflow", cluster)
    assert (seen.word, says in seen.why) == (word, True), seen


@pytest.mark.parametrize(
    ("conditions", "admitted", "word", "says"),
    [
        ({"Completed": "True"}, "True", "pass", "was admitted and ran"),
        ({"Completed": "True"}, "", "fail", "ran that its queue did not admit"),
        ({"Suspended": "True"}, "", "fail", "is not admitted"),
        ({"Failed": "True"}, "True", "fail", "a gang failed"),
        ({}, "", "fail", "did not end"),
    ],
)
def test_gang(conditions: dict[str, str], admitted: str, word: str, says: str) -> None:
    cluster = MadeCluster()

    def took(path: str, stored: Json) -> None:
        if "/jobsets/" in path:
            stored["status"] = {"conditions": [{"type": key, "status": value} for key, value in conditions.items()]}
            assert stored["metadata"]["labels"], "it asks its queue"
            if admitted:
                name = stored["metadata"]["name"]
                told = {"conditions": [{"type": "Admitted", "status": admitted}]}
                load = {"metadata": {"name": "w", "ownerReferences": [{"name": name}]}, "status": told}
                cluster.objects["/apis/kueue.x-k8s.io/v1beta2/namespaces/primus-bootstrap/workloads/w"] = load

    cluster.took = took
    seen = prove("gang", cluster, queue="made")
    assert (seen.word, says in seen.why) == (word, True), seen


def test_a_gang_of_a_workspace_runs_where_its_queue_is() -> None:
    cluster, asked = MadeCluster(), list[tuple[str, str]]()

    def took(path: str, stored: Json) -> None:
        if "/jobsets/" in path:
            asked.append((path, stored["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]))
            stored["status"] = {"conditions": [{"type": "Completed", "status": "True"}]}
            told = {"conditions": [{"type": "Admitted", "status": "True"}]}
            owner = {"name": stored["metadata"]["name"]}
            load = {"metadata": {"name": "w", "ownerReferences": [owner]}, "status": told}
            cluster.objects["/apis/kueue.x-k8s.io/v1beta2/namespaces/research/workloads/w"] = load

    cluster.took = took
    seen = prove("gang", cluster, queue="big", namespace="research")
    assert seen.word == "pass", seen
    assert [("/namespaces/research/jobsets/" in path, queue) for path, queue in asked] == [(True, "big")]


@pytest.mark.parametrize(("answers", "word"), [("mark", "pass"), ("other", "fail"), ("404", "fail")])
def test_gateway(answers: str, word: str) -> None:
    cluster = MadeCluster()

    def through(asked: Asked) -> Answer:
        told = asked.path.rpartition("-")[2] if answers == "mark" else "default backend"
        return (404 if answers == "404" else 200), {}, told.encode()

    with serving(through) as url:
        seen = prove("gateway", cluster, gateway_class="made", url=url)
    assert seen.word == word, seen
    assert {path.split("/")[-2] for path in cluster.applied} == {"pods", "services", "gateways", "httproutes"}


def test_an_api_that_is_away_leaves_it_unknown_and_one_that_refuses_fails() -> None:
    cluster = MadeCluster(*NODES)
    cluster.away = True
    assert prove("storage", cluster, storage_class="x").word == "unknown"
    cluster.away = False

    def refuses(path: str) -> ApiError | None:
        return ApiError(422, "no such class") if "claims" in path else None

    cluster.refuses = refuses
    assert prove("storage", cluster, storage_class="x").word == "fail"
    assert prove("storage", cluster).word == "unknown", "a proof that cannot be asked proves nothing"


def test_it_is_asked_again_until_it_serves_or_its_time_is_up() -> None:
    clock, tries = Clock(), [0]

    def late(asked: Asked) -> Answer:
        tries[0] += 1
        return (200, {}, b"up") if tries[0] >= 3 else (503, {}, b"starting")

    with serving(late) as url:
        options = Options("made", "http", json.dumps({"url": url}), wanted="w", deadline_seconds=60)
        report = proven(options, MadeCluster(), clock, clock.sleep)
        assert (report.word, report.tries, report.wanted) == ("pass", 3, "w")
        tries[0] = -1000
        report = proven(options, MadeCluster(), clock, clock.sleep)
    assert (report.word, report.seconds >= 50) == ("fail", True)
    assert "503" in report.why


def test_the_note_and_the_exit_code_say_what_was_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = MadeCluster()

    def api_from(environment: object, url: str) -> MadeCluster:
        return cluster

    monkeypatch.setattr(program, "api_from", api_from)
    with serving(always(b"up")) as url:
        words = Options("made", "http", json.dumps({"url": url}), "1", "w", deadline_seconds=1.0, out_dir=str(tmp_path))
        assert program.main(words.argv()) == 0
    assert program.main(words.argv()) == 1, "nobody answers any more"
    note = cluster.objects["/api/v1/namespaces/primus-bootstrap/configmaps/primus-component-made"]
    assert (note["data"]["version"], note["data"]["wanted"]) == ("1", "w")
    assert json.loads(note["data"]["report"])["word"] == json.loads((tmp_path / "report").read_text())["word"] == "fail"
    assert program.main(["--component=x", "--proof=nothing"]) == 2
