"""The bed is what it says: every part answers, runs things, can be hurt and comes back."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest

from profiles.workspace import WorkspaceProfile
from tests.bed import faults, groups, network, samples, up
from tests.bed.commands import until
from tests.bed.options import NAMESPACE
from tests.bed.supervisor import Supervisor, pause
from tests.bed.up import Bed

SPACE = "bed-tests"
NODE = "node-1"
PLANE = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "dns",
    "workflow-controller",
    "jobset",
    "kueue",
    "kwok",
    "artifacts",
    "supervisor",
)
PARTS = (*PLANE, f"containerd-{NODE}", f"kubelet-{NODE}", f"kube-proxy-{NODE}")
MEET = """
import os, socket, time
if os.environ["JOB_COMPLETION_INDEX"] == "0":
    with socket.create_server(("", 7000)) as server, server.accept()[0] as guest:
        guest.sendall(b"hello from rank 0")
else:
    while True:
        try:
            with socket.create_connection(("meet-w-0-0.meet", 7000), 2) as host:
                print(host.recv(100).decode())
            break
        except OSError:
            time.sleep(0.2)
"""


@pytest.fixture(scope="module")
def space(standing: None) -> Iterator[str]:
    """A workspace whose queue has room for 4 CPUs on the played nodes."""
    del standing
    found = up.find()
    assert found is not None
    found.settle()
    profile = WorkspaceProfile(name=SPACE, queue=samples.QUEUE, flavors=(samples.played(4),))
    with samples.workspaces(found, profile):
        yield SPACE


def test_all_parts_are_well_and_requests_are_written_down(bed: Bed) -> None:
    assert set(PARTS) <= set(bed.processes.names())
    assert bed.wrong() == []
    last = json.loads(bed.folder.audit.read_text(encoding="utf-8").splitlines()[-1])
    assert last["level"] == "Metadata"
    assert set(network.namespaces()) == {NAMESPACE, *(node.namespace for node in bed.options.real_nodes())}


def test_a_pod_runs_on_each_real_node(bed: Bed, space: str) -> None:
    spec = samples.pod_spec(samples.BUSYBOX, ["sh", "-c", "hostname -i; nslookup kubernetes.default.svc.cluster.local"])
    wanted = {node.name: samples.pod(f"on-{node.name}", space, spec, node.name) for node in bed.options.real_nodes()}
    bed.api.ensure_all(wanted.values())
    for node in bed.options.real_nodes():
        done = samples.wait_phase(bed, wanted[node.name], "Succeeded")
        assert done["spec"]["nodeName"] == node.name
        assert done["status"]["podIP"].startswith(node.pods.rpartition(".")[0])
        said = samples.log(bed, space, f"on-{node.name}")
        assert done["status"]["podIP"] in said
        assert bed.options.kubernetes_service in said


def test_a_workflow_of_two_steps_passes_an_output(bed: Bed, space: str) -> None:
    wanted = samples.two_steps("two-steps", space)
    bed.api.ensure(wanted)
    done = samples.wait_phase(bed, wanted, "Succeeded")
    [heard] = [node for node in done["status"]["nodes"].values() if node["displayName"] == "hear"]
    assert heard["outputs"]["parameters"] == [
        {"name": "word", "value": "heard", "valueFrom": {"path": "/tmp/word"}},
    ]


def test_rank_1_of_a_jobset_reaches_rank_0_by_name(bed: Bed, space: str) -> None:
    spec = samples.pod_spec(samples.PYTHON, ["python3", "-c", MEET])
    wanted = samples.jobset("meet", space, 2, spec)
    bed.api.ensure(wanted)
    until("meet Completed", lambda: "Completed" in samples.conditions(bed.find(wanted)), samples.LIMIT_S, 0.2)
    [one] = samples.pods(bed, space, "jobset.sigs.k8s.io/jobset-name=meet,batch.kubernetes.io/job-completion-index=1")
    assert samples.log(bed, space, one["metadata"]["name"]) == "hello from rank 0\n"


def test_kueue_admits_and_preempts(bed: Bed, space: str) -> None:
    spec = samples.pod_spec(samples.BUSYBOX, ["true"], cpu="3", memory="1Gi")
    low, high = (samples.jobset(name, space, 1, spec, queued=name) for name in ("low", "high"))
    bed.api.ensure(low)
    until("low admitted", lambda: "Admitted" in _of(bed, "low"), samples.LIMIT_S, 0.2)
    bed.api.ensure(high)
    until("high admitted", lambda: "Admitted" in _of(bed, "high"), samples.LIMIT_S, 0.2)
    assert _of(bed, "low")["Evicted"] == "Preempted"
    assert "Admitted" not in _of(bed, "low")
    until("low suspended", lambda: (bed.find(low) or {})["spec"]["suspend"], samples.LIMIT_S, 0.2)
    bed.api.delete(high)
    until("low admitted again", lambda: "Admitted" in _of(bed, "low"), samples.LIMIT_S, 0.2)
    bed.api.delete(low)


def _of(bed: Bed, name: str) -> dict[str, str]:
    return samples.conditions(samples.workloads(bed, SPACE).get(name))


def test_gpus_are_counted(bed: Bed, space: str) -> None:
    gpu, count = bed.options.gpu, str(bed.options.gpus)
    assert {node["metadata"]["name"]: node["status"]["allocatable"].get(gpu) for node in bed.api.nodes()} == (
        dict.fromkeys(bed.node_names(), count)
    )
    spec = samples.pod_spec(samples.BUSYBOX, ["sleep", "600"], **{gpu: count})
    first, second = (samples.pod(f"gpus-{index}", space, spec, NODE) for index in (1, 2))
    bed.api.ensure(first)
    samples.wait_phase(bed, first, "Running")
    bed.api.ensure(second)
    until("the second waits", lambda: "Insufficient" in _unscheduled(bed, second), samples.LIMIT_S, 0.2)
    assert f"Insufficient {gpu}" in _unscheduled(bed, second)
    bed.api.delete(first)
    samples.wait_phase(bed, second, "Running")
    bed.api.delete(second)


def _unscheduled(bed: Bed, pod: dict[str, object]) -> str:
    listed = (bed.find(pod) or {})["status"].get("conditions", [])
    return "".join(one.get("message", "") for one in listed if one["type"] == "PodScheduled")


def test_a_node_killed_without_goodbye_comes_back(bed: Bed, space: str) -> None:
    node = bed.options.real_node(NODE)
    spec = samples.pod_spec(samples.BUSYBOX, ["sleep", "600"])
    running = samples.pod("stays", space, spec, NODE)
    bed.api.ensure(running)
    samples.wait_phase(bed, running, "Running")
    faults.kill(node, bed.processes)
    assert groups.members(NODE) == set()
    assert f"kubelet-{NODE}" not in Supervisor(bed.processes).look(0.0), "what was killed on purpose stays ended"
    until("node NotReady", lambda: NODE not in bed.api.ready_nodes(), limit_s=60, every_s=0.2)
    faults.revive(bed.folder, bed.options, node, bed.processes, bed.api)
    [found] = [item for item in bed.api.nodes() if item["metadata"]["name"] == NODE]
    assert found["status"]["allocatable"][bed.options.gpu] == str(bed.options.gpus)
    assert bed.wrong() == []
    bed.api.delete(running)
    until("the lost pod is gone", lambda: bed.find(running) is None, samples.LIMIT_S, 0.2)


def test_a_node_that_is_cut_off_or_frozen_comes_back(bed: Bed) -> None:
    node = bed.options.real_node(NODE)
    faults.cut(node)
    until("the cut node NotReady", lambda: NODE not in bed.api.ready_nodes(), limit_s=60, every_s=0.2)
    faults.mend(node)
    until("the mended node Ready", lambda: NODE in bed.api.ready_nodes(), limit_s=60, every_s=0.2)
    faults.freeze(node, bed.processes)
    until("the frozen node NotReady", lambda: NODE not in bed.api.ready_nodes(), limit_s=60, every_s=0.2)
    faults.thaw(node)
    until("the thawed node Ready", lambda: NODE in bed.api.ready_nodes(), limit_s=60, every_s=0.2)


@pytest.mark.parametrize("part", PARTS)
def test_each_part_stops_and_starts(bed: Bed, part: str) -> None:
    before = bed.processes.running(part)
    bed.processes.stop(part)
    assert not bed.processes.running(part)
    assert part not in Supervisor(bed.processes).look(0.0), "what was stopped stays stopped"
    assert not bed.processes.running(part)
    bed.processes.start_again(part)
    assert bed.processes.running(part) not in (0, before)
    bed.settle()


@pytest.mark.parametrize("part", ["kube-apiserver", "kueue", f"kubelet-{NODE}"])
def test_what_ends_by_itself_is_started_again(bed: Bed, part: str) -> None:
    before = bed.processes.running(part)
    bed.processes.send(part, signal.SIGKILL)
    until(f"{part} again", lambda: bed.processes.running(part) not in (0, before), limit_s=30)
    until("all well", lambda: bed.wrong() == [], limit_s=60, every_s=0.3)


def test_what_ends_again_and_again_is_waited_for_longer() -> None:
    assert [pause(restarts) for restarts in range(7)] == [0, 1, 2, 4, 8, 15, 15]
