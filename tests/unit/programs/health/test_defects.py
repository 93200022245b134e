"""What Autopilot's daemon was seen to do wrong, one by one, and that ours does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.cases.rows import rows
from tests.support.cases.tool_samples import printed
from tests.support.harness.health_daemons import (
    IDLE,
    Cluster,
    Told,
    Toolbox,
    diag,
    get,
    made,
    nvbandwidth,
    nvidia_smi,
    ping_text,
    serving,
)
from workflows.programs.health import gpu_checks, node_checks
from workflows.programs.health.kubernetes import TaintHold
from workflows.programs.health.labels import HEALTH, level_label, output_annotation
from workflows.programs.health.main import start_daemon
from workflows.programs.health.peers import ClusterNodes, Peer
from workflows.programs.health.query import Status
from workflows.programs.parsers.text import ParsedOutput, Reading


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolbox:
    toolbox = Toolbox(tmp_path / "bin").healthy(2)
    monkeypatch.setenv("PATH", toolbox.path)
    return toolbox


def test_defect_1_a_gpu_below_the_pcie_limit_fails(box: Toolbox) -> None:
    box.prints("nvbandwidth", nvbandwidth(55.3, 3.9))
    one = made(periodic=("pciebw",))
    text = one.text("/status?host=n0&check=pciebw")
    assert "[[ PCIEBW ]] FAIL\n" in text
    assert "SUCCESS" not in text
    assert text.endswith("Host  n0\n55.3 3.9\n")
    assert "Node Status: PCIE Failed" in one.text("/status?check=pciebw")
    assert one.metrics("autopilot_health_checks") == {"health=pciebw,deviceid=0": 55.3, "health=pciebw,deviceid=1": 3.9}
    assert one.json("/status?host=n0&check=pciebw")["gpu_health"] == "WARN"


def test_defect_2_a_new_node_without_labels_is_tested_to_the_end(box: Toolbox) -> None:
    cluster = Cluster()
    node = cluster.node("n0")
    del node["metadata"]["labels"]
    box.prints("dcgmi", diag({"pcie": {1: "Fail"}}))
    report = made(cluster=cluster).daemon.report(Status(checks=("dcgm", "pciebw", "remapped", "gpupower")))
    assert [one.verdict for one in report.results] == ["fail", "pass", "pass", "pass"]
    assert cluster.labels("n0")[HEALTH] == "EVICT"


def test_defect_3_a_failing_deep_test_ends_as_evict_and_never_stays_testing(box: Toolbox) -> None:
    cluster = Cluster()
    cluster.node("n0")
    box.prints("dcgmi", diag({"software": {0: "Pass"}, "pcie": {0: "Pass", 1: "Fail"}}))
    one = made(cluster=cluster, hold=TaintHold(cluster), run=Told(gpu_devices=IDLE))  # type: ignore[arg-type]
    assert one.daemon.deep().verdict == "fail"
    written = [body["metadata"]["labels"][HEALTH] for _, body in cluster.patches if "labels" in body["metadata"]]
    assert written[0] == "TESTING"
    assert cluster.labels("n0")[HEALTH] == "EVICT"
    assert cluster.labels("n0")[level_label(3)].startswith("ERR_20")
    assert cluster.annotations("n0")[output_annotation(3)] == "pcie.1"
    box.prints("dcgmi", diag({"software": {0: "Pass"}}))
    one.daemon.round()
    assert cluster.labels("n0")[HEALTH] == "EVICT", "the hourly round takes nothing back"


def test_defect_4_evict_lasts_until_an_equal_or_deeper_test_passes(box: Toolbox) -> None:
    cluster = Cluster()
    cluster.node("n0", {HEALTH: "EVICT", level_label(3): "ERR_2026-01-31_12.00.00UTC"})
    cluster.objects["/api/v1/nodes/n0"]["metadata"]["annotations"] = {output_annotation(3): "pcie.1"}
    one = made(cluster=cluster, periodic=("remapped", "dcgm"))
    one.daemon.round()
    for level in (1, 2):
        one.text(f"/dcgm?r={level}")
        assert cluster.labels("n0")[HEALTH] == "EVICT"
    one.text("/dcgm?r=3")
    assert cluster.labels("n0")[HEALTH] == "PASS"
    assert cluster.labels("n0")[level_label(3)].startswith("PASS_")
    assert cluster.annotations("n0")[output_annotation(3)] == ""


@pytest.mark.parametrize(("failed", "word"), [("pcie", "WARN"), ("Memory Bandwidth", "EVICT")])
def test_defect_5_own_fatal_words_are_whole_words(box: Toolbox, failed: str, word: str) -> None:
    box.prints("dcgmi", diag({failed: {0: "Fail"}}))
    one = made(fatal=("memory bandwidth", "NVLink"))
    assert one.json("/status?host=n0&check=dcgm")["gpu_health"] == word


def probes(wrong: float) -> Told:
    memory = [Reading("gpu_memory_wrong_bytes", 0.0, "count", f"gpu {gpu}") for gpu in range(2)]
    products = [Reading("gemm_wrong_values", wrong * gpu, "count", f"gpu {gpu}") for gpu in range(2)]
    return Told(gpu_memory=ParsedOutput(tuple(memory)), gpu_gemm=ParsedOutput(tuple(products)))


def test_defect_6_the_memory_test_tests_memory(box: Toolbox) -> None:
    told = probes(0.0)
    text = made(run=told).text("/gpumem")
    assert text == "GPU Memory DGEMM+DAXPY test\n[[ GPU-MEM ]] Health Check successful\n0 0\n"
    assert told.asked == ["gpu-memory", "gpu-gemm"]
    assert box.calls("nvidia-smi") == []


def test_defect_7_the_memory_metric_is_1_where_memory_fails(box: Toolbox) -> None:
    one = made(run=probes(3.0))
    assert "[[ GPU-MEM ]] Health Check unsuccessful. FAIL.\ngemm_wrong_values 3 of gpu 1\n" in one.text("/gpumem")
    assert one.metrics("autopilot_health_checks") == {"health=gpumem,deviceid=0": 0, "health=gpumem,deviceid=1": 1}


@pytest.mark.parametrize("checks", ["pciebw,iperf", "iperf,pciebw", "iperf, pciebw,iperf"])
def test_defect_8_iperf_beside_other_checks_leaves_their_names_whole(box: Toolbox, checks: str) -> None:
    one = made(compatible=True)
    text = one.text(f"/status?host=n0&check={checks.replace(' ', '%20')}")
    assert text.startswith("Running iperf3 on hosts n0 or job None\n\n")
    assert "[[ PCIEBW ]] SUCCESS" in text
    assert "not supported" not in text


def test_defect_9_one_dead_node_or_an_unknown_name_costs_its_own_line_only(box: Toolbox) -> None:
    other = made("n1")
    with serving(other) as port:
        one = made(peers=(Peer("n1", "127.0.0.1", port), Peer("dead", "127.0.0.1", 1)))
        told = one.json("/status?host=n0,n1,dead,ghost&check=remapped")
        text = one.text("/status?host=n0,n1,dead,ghost&check=remapped")
    assert {node["node"]: node["verdict"] for node in told["nodes"]} == {
        "n0": "pass",
        "n1": "pass",
        "dead": "unknown",
        "ghost": "unknown",
    }
    assert "Connection refused" in told["nodes"][2]["why"]
    assert told["nodes"][3]["why"] == "no running daemon of node ghost is known"
    assert "Node: dead\n" in text
    away = "['Connection to Server Failed']"
    assert "'dead': " + away in text
    assert "'ghost': " + away in text
    assert "'n1': ['OK']" in text
    refused = one.answer("/status?batch=some")
    assert (refused.status, refused.body) == (
        400,
        "/status: batch: must be a whole number from 0 to 5000, got 'some'\n",
    )


def test_defect_10_a_timer_of_0_switches_deep_tests_off(tmp_path: Path, box: Toolbox) -> None:
    command = [sys.executable, "-I", "-S", str(Path(gpu_checks.__file__).parents[1] / "main.py"), "health", "--port=0"]
    command += ["--readiness-port=-1", "--metrics-port=-1", "--api=none", "--invasive-check-timer=0", "-w", "0"]
    environment = {"PATH": box.path, "NODE_NAME": "n7"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("health: n7 listening on 127.0.0.1: health ")
        assert get(int(line.rpartition(" ")[2]), "/healthz")[:2] == (200, "ok\n")
        process.terminate()
        assert process.wait(20) == 0
    assert box.calls("dcgmi") == []


def test_defect_11_clean_up_ends_servers_and_not_the_answer(box: Toolbox) -> None:
    box.prints("iperf3", "iperf3: error - unable to start listener\n", code=1)
    with serving(made("n1", compatible=True)) as port:
        one = made(peers=(Peer("n1", "127.0.0.1", port), Peer("dead", "127.0.0.1", 1)), compatible=True)
        with serving(one) as own:
            status, text, _ = get(own, "/iperf?cleanup&pclients=1&startport=15200")
            assert get(own, "/healthz")[0] == 200
    assert status == 200
    header = next(line for line in text.splitlines() if line.startswith("src/dst"))
    assert header.split() == ["src/dst", "n1", "dead", "n0"], "each destination once"
    assert "dead: its daemon does not answer" in text


@pytest.mark.parametrize("version", [3, 4])
def test_defect_12_the_diagnostic_of_both_major_versions_is_read(box: Toolbox, version: int) -> None:
    box.prints("dcgmi", diag({"Memory": {0: "Pass", 1: "Pass"}}, version))
    one = made()
    assert one.text("/dcgm") == "DCGM test\n[[ DCGM ]] SUCCESS\n"
    box.prints("dcgmi", diag({"Memory": {0: "Pass", 1: "Fail"}}, version), code=226)
    assert "Host n0\n" in one.text("/dcgm")
    assert one.json("/dcgm")["failing"] == ["memory.1"]
    box.prints("dcgmi", printed("dcgm-diag", "4.2.3-level1-gb10.json"))
    assert one.json("/dcgm")["failing"] == ["software.0"]


def test_defect_13_an_unreachable_node_says_nothing_of_pcie(box: Toolbox) -> None:
    box.prints("ping", ping_text("10.0.0.9", 0))
    one = made(peers=(Peer("n1", "10.0.0.9"),), periodic=("pciebw", "ping"))
    text = one.text("/status?host=n0")
    assert "[PING] At least one node unreachable. FAIL" in text
    assert "Node n1 10.0.0.9 eth0 1\n" in text
    told = one.json("/status?host=n0,n0")
    assert told["gpu_health"] == "PASS"
    assert one.metrics("autopilot_health_checks")["health=pciebw,deviceid=0"] == 55.3
    assert one.metrics("autopilot_health_checks")["health=ping,deviceid=n1"] == 1


def test_defect_14_a_gpu_that_is_split_is_judged_by_its_counters(box: Toolbox) -> None:
    box.prints("nvidia-smi", nvidia_smi(2, mig=(0,), pending=(1,)))
    one = made()
    assert one.text("/remapped").endswith(
        "[[ REMAPPED ROWS ]] FAIL\nHost  n0\nDetected NVIDIA GPU: 0 1 Total: 2\nFAIL\n0 1\n"
    )
    assert "[GPU POWER] SUCCESS\n0 0\n" in one.text("/gpupower")


def amd_metric(*uncorrected: int, slow: int = -1) -> str:
    """`amd-smi metric --json` of ROCm 7, a GPU a figure."""
    told = json.loads(printed("amd-smi", "7.0-metric-written.json"))
    (first,) = [one for one in told["gpu_data"] if one["gpu"] == 0]
    gpus: list[object] = []
    for index, count in enumerate(uncorrected):
        state = {"prochot_violation_status": "NOT ACTIVE"}
        state["socket_thermal_violation_status"] = "ACTIVE" if index == slow else "NOT ACTIVE"
        gpus.append({**first, "gpu": index, "ecc": {"total_uncorrectable_count": count}, "throttle": state})
    return json.dumps({"gpu_data": gpus}) + "\n"


def test_defect_15_amd_is_tested_too_and_gpus_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = Toolbox(tmp_path / "amd")
    monkeypatch.setenv("PATH", box.path)
    box.prints("amd-smi", amd_metric(0, 0, 0, slow=1))
    box.prints("TransferBench", printed("transferbench", "1.62-p2p-mi350x.txt"))
    one = made(namespace="somewhere")
    assert one.text("/gpupower").endswith("[GPU POWER] FAIL\n0 1 0\n")
    assert "[[ PCIEBW ]] SUCCESS\nHost  n0\n45.11 45.16 45.13 45.07 45.06 45.11 44.81 45.05\n" in one.text("/pciebw")
    box.prints("amd-smi", printed("amd-smi", "6.3-bad-pages-written.json"))
    assert "Detected AMD GPU: 0 1 Total: 2\n0 0\n" in one.text("/remapped")
    box.prints("amd-smi", amd_metric(0, 2))
    told = one.json("/dcgm")
    assert (told["verdict"], told["failing"]) == ("fail", ["ecc.1"])
    assert one.daemon.plan.namespace == "somewhere"


def test_defect_15_a_gpu_that_no_tool_tells_of_is_not_healthy(box: Toolbox) -> None:
    box.prints("nvidia-smi", nvidia_smi(7, attached=8))
    told = made().json("/remapped")
    assert told["verdict"] == "unknown"
    assert told["why"].startswith("1 of 8 GPUs have no reading")
    assert "[[ REMAPPED ROWS ]] ABORT" in told["text"]


@rows("programs/health/defects")
def test_defect_16_chosen_tests_of_the_diagnostic_count_alone(box: Toolbox, paths: str, verdict: str) -> None:
    box.prints("dcgmi", diag({"GPU Memory": {0: "Pass"}, "PCIe": {0: "Fail"}}))
    assert made(paths=(paths,)).json("/dcgm")["verdict"] == verdict
    options = ["--port=0", "--readiness-port=-1", "--metrics-port=-1", "--w=0", "--invasive-check-timer=0"]
    from workflows.programs.health.options import parse

    environment = {"AUTOPILOT_DCGM_RESULT_PATHS": paths, "NODE_NAME": "n0"}
    running = start_daemon(parse([*options, "--api=none", "--loglevel=0"]), environment)
    try:
        assert running.daemon.plan.paths == (paths,)
    finally:
        running.close()


def test_defect_17_missing_pods_keep_no_ping_waiting_and_no_other_check(box: Toolbox) -> None:
    box.prints("ping", ping_text("10.0.0.2", 10))
    cluster = Cluster()
    cluster.node("n0")
    cluster.pod("daemon-0", "n0", "health", labels={"app": "health"})
    cluster.pod("daemon-1", "n1", "health", labels={"app": "health"}, address="10.0.0.2")
    cluster.pod("daemon-2", "n2", "health", labels={"app": "health"}, phase="Pending", address="")
    nodes = ClusterNodes(cluster, "health", "app=health", 3333, Peer("n0", "127.0.0.1"))  # type: ignore[arg-type]
    one = made(nodes=nodes, cluster=cluster)
    began = time.monotonic()
    assert "[PING] all nodes reachable. success" in one.text("/ping")
    named = one.json("/ping?host=n1,n2")
    assert time.monotonic() - began < 10
    assert named["verdict"] == "unknown"
    assert named["why"] == "n2 -: no running daemon of this node is known"


def test_defect_17_a_ping_that_hangs_does_not_hold_the_others_up(box: Toolbox, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    box.prints("ping", ping_text("10.0.0.2", 10), first=f"read line < {tmp_path}/gate")
    one = made(peers=(Peer("n1", "10.0.0.2"),))
    thread = threading.Thread(target=one.text, args=("/ping",))
    thread.start()
    try:
        assert "SUCCESS" in one.text("/remapped")
        assert thread.is_alive()
    finally:
        (tmp_path / "gate").write_text("go\n")
        thread.join()


def test_defect_18_however_many_nodes_few_processes_run_at_once(monkeypatch: pytest.MonkeyPatch, box: Toolbox) -> None:
    now, most, lock = [0], [0], threading.Lock()
    together = threading.Barrier(node_checks.AT_ONCE)

    def run(call: object, places: object, seconds: object, parsers: object) -> ParsedOutput:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        together.wait(20)  # so many there are; were there more, the highest count would say so
        with lock:
            now[0] -= 1
        return ParsedOutput((Reading("packet_loss", 0.0, "%"),))

    peers = [Peer(f"n{index}", f"10.0.{index // 250}.{index % 250}") for index in range(1, 1001)]
    one = made(peers=peers, run=run, ping_peers=64)
    (result,) = one.daemon.report(Status(checks=("ping",))).results
    assert result.verdict == "pass"
    assert len(result.devices) == 64
    assert most[0] == node_checks.AT_ONCE


def test_defect_18_every_round_asks_the_next_nodes(box: Toolbox) -> None:
    box.prints("ping", ping_text("10.0.0.9", 10))
    peers = [Peer(f"n{index}", f"10.0.0.{index}") for index in range(1, 7)]
    one = made(peers=peers, ping_peers=2, periodic=("ping",))
    asked = [device.identity for _ in range(3) for device in one.daemon.round().results[0].devices]
    assert sorted(asked) == [f"n{index}" for index in range(1, 7)]


@pytest.mark.parametrize(("received", "verdict"), [(10, "pass"), (9, "pass"), (8, "fail"), (1, "fail"), (0, "fail")])
def test_defect_18_nine_of_ten_packets_lost_is_no_success(box: Toolbox, received: int, verdict: str) -> None:
    box.prints("ping", ping_text("10.0.0.9", received))
    one = made(peers=(Peer("n1", "10.0.0.9"),))
    assert one.json("/ping")["verdict"] == verdict
    assert len(box.calls("ping")) == (1 if verdict == "pass" else 2), "who is bad is asked again"


def test_a_pod_bound_between_the_look_and_the_hold_keeps_its_gpus(box: Toolbox) -> None:
    cluster = Cluster()
    cluster.node("n0")
    seen: list[list[object]] = []

    def bind() -> None:
        cluster.before_patch = None
        cluster.pod("training", "n0", gpus=1)

    cluster.before_patch = bind
    one = made(cluster=cluster, hold=TaintHold(cluster), run=Told(gpu_devices=IDLE))  # type: ignore[arg-type]
    result = one.daemon.deep()
    seen += [body["spec"]["taints"] for _, body in cluster.patches if "spec" in body]
    assert (result.kept, result.why) == (False, "GPUs are busy: default/training")
    assert box.calls("dcgmi") == []
    assert [len(taints) for taints in seen] == [1, 0], "held, and given back"
    assert cluster.taints("n0") == []
