"""Volumes and devices of nodes, the pods that proofs start on them, and servers that speak no HTTP."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator

import pytest

from profiles.loading.load import load_shelf
from tests.support.fakes.serving_stand_ins import Clock, MadeCluster, failed, prove, running, succeeded
from workflows.programs.runtime.kubernetes_api import Api, ApiError, Json
from workflows.programs.serving import install
from workflows.programs.serving.install import FetchError, fetched
from workflows.programs.serving.main import Options, proven
from workflows.programs.serving.world import RESOURCES, PodWish, pod_of

NODES = ("a", "b", "c")


def writes(does: Callable[[str, str], Json]) -> Callable[[Json], Json]:
    """What a pod with a volume does, by what it is told and where."""
    return lambda pod: does(pod["spec"]["containers"][0]["command"][2].partition("=")[2], pod["spec"]["nodeName"])


def both(do: str, node: str) -> Json:
    return succeeded({})


def runs_only(do: str, node: str) -> Json:
    return running({})


def local_disk(do: str, node: str) -> Json:
    return succeeded({}) if do == "write" else failed("read ''")({})


@pytest.mark.parametrize(
    ("does", "word", "says"),
    [
        (both, "pass", "written on a, read on c"),
        (runs_only, "fail", "not bound; not written on a"),
        (local_disk, "fail", "on c not read"),
    ],
)
def test_storage_is_read_from_another_node(does: Callable[[str, str], Json], word: str, says: str) -> None:
    cluster = MadeCluster(*NODES)
    cluster.pods(writes(does))
    seen = prove("storage", cluster, storage_class="shared", access_mode="ReadWriteMany")
    assert (seen.word, says in seen.why) == (word, True), seen


OWN_VOLUME = {"namespace": "primus-bootstrap", "name": "primus-proof-shared", "uid": "gone", "resourceVersion": "7"}


def volume(name: str, held: Json, phase: str = "Released", policy: str = "Retain", kind: str = "shared") -> Json:
    spec = {"storageClassName": kind, "persistentVolumeReclaimPolicy": policy, "claimRef": held}
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}}


def test_a_volume_that_an_earlier_proof_left_is_bound_again_and_no_other_is_touched() -> None:
    cluster = MadeCluster(*NODES)
    cluster.pods(writes(both))
    others = [
        volume("bound", OWN_VOLUME, phase="Bound"),
        volume("goes", OWN_VOLUME, policy="Delete"),
        volume("of-another-class", OWN_VOLUME, kind="other"),
        volume("of-another-claim", {**OWN_VOLUME, "name": "runs"}),
    ]
    for one in (volume("ours", OWN_VOLUME), *others):
        cluster.objects[f"/api/v1/persistentvolumes/{one['metadata']['name']}"] = one
    before = json.loads(json.dumps(others))
    assert prove("storage", cluster, storage_class="shared").word == "pass"
    held = cluster.objects["/api/v1/persistentvolumes/ours"]["spec"]["claimRef"]
    assert held == {"namespace": "primus-bootstrap", "name": "primus-proof-shared"}, "it stays the proof's own"
    assert [cluster.objects[f"/api/v1/persistentvolumes/{one['metadata']['name']}"] for one in others] == before


def test_one_ready_node_of_several_says_nothing_of_a_volume_for_many() -> None:
    cluster = MadeCluster(*NODES)
    cluster.pods(writes(both))
    for name in NODES[1:]:
        cluster.objects[f"/api/v1/nodes/{name}"]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    assert prove("storage", cluster, storage_class="shared", access_mode="ReadWriteMany").word == "unknown"
    assert prove("storage", cluster, storage_class="shared").word == "pass", "for one node nothing more is promised"
    for name in NODES[1:]:
        del cluster.objects[f"/api/v1/nodes/{name}"]
    assert prove("storage", cluster, storage_class="shared", access_mode="ReadWriteMany").word == "pass"


def test_gpu_wants_a_kernel_and_not_only_an_offer() -> None:
    cluster = MadeCluster("a", "b")
    offer = {"resource": "amd.com/gpu", "image": "site:1"}
    assert prove("gpu", cluster, **offer).why == "no node offers amd.com/gpu"
    cluster.objects["/api/v1/nodes/b"]["status"]["allocatable"] = {"amd.com/gpu": "8"}
    assert prove("gpu", cluster, resource="amd.com/gpu").word == "unknown"
    for does, word in ((succeeded, "pass"), (running, "fail"), (failed("HIP error: invalid device"), "fail")):
        cluster.becomes.clear()
        cluster.pods(does)
        seen = prove("gpu", cluster, **offer)
        assert seen.word == word, seen
    assert "HIP error: invalid device" in seen.why


def test_a_pod_on_a_device_has_no_other_limit_and_every_pod_has_an_end() -> None:
    kernel = pod_of(PodWish("kernel", (), image="site:1", resources={"amd.com/gpu": "1"}), "k", "programs:1")
    assert kernel["spec"]["containers"][0]["resources"]["limits"] == {"amd.com/gpu": "1"}
    plain = pod_of(PodWish("says", ("x",)), "s", "programs:1")
    assert plain["spec"]["containers"][0]["resources"] == RESOURCES
    longest = max(one.proof.deadline_seconds for one in load_shelf().values())
    for pod in (kernel, plain):
        assert pod["spec"]["activeDeadlineSeconds"] > longest, "a proof ends before the cluster ends its pods"


def test_one_try_of_a_gpu_lasts_as_long_as_there_is_time() -> None:
    clock, cluster = Clock(), MadeCluster("a")
    cluster.objects["/api/v1/nodes/a"]["status"]["allocatable"] = {"amd.com/gpu": "8"}
    cluster.pods(lambda pod: succeeded(pod) if clock.now > 300.0 else {"phase": "Pending"})
    parameters = json.dumps({"resource": "amd.com/gpu", "image": "site:1"})
    report = proven(Options("made", "gpu", parameters, deadline_seconds=900), cluster, clock, clock.sleep)
    assert (report.word, report.tries) == ("pass", 1), "its image took five minutes to come"


class Speaks(socketserver.BaseRequestHandler):
    """Answers in no HTTP, or breaks off amid an answer."""

    words = b""

    def handle(self) -> None:
        self.request.recv(65536)
        self.request.sendall(self.words)


HALF = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhalf"


@pytest.fixture(params=[b"SSH-2.0-x\r\n", HALF], ids=["ssh", "half"])
def no_http(request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of a server that speaks something else."""

    class Own(Speaks):
        words = request.param

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Own) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_whoever_speaks_no_http_does_not_answer(no_http: str) -> None:
    seen = prove("http", MadeCluster(), url=no_http)
    assert (seen.word, seen.why.startswith(f"GET {no_http}/: ")) == ("fail", True), seen
    with pytest.raises(ApiError) as away:
        Api(no_http).get("/api/v1/nodes")
    assert away.value.code == 0
    with pytest.raises(FetchError, match="the mirror does not give"):
        fetched(install.Options("made", url=no_http, sha256="0" * 64))
