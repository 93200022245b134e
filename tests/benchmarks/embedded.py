"""What the embedded cluster costs: `python -m tests.benchmarks.embedded`. Prints each figure beside its limit.

The overhead of a pod is held against the bare start of the same processes in the same run, turn about, so that a loaded
machine slows both.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tasks.embedded.api import EmbeddedCluster
from tasks.embedded.layout import PodFolder
from tasks.embedded.spec import ImageSpec, NodeSpec, Spec
from tasks.embedded.store import locks

ROUNDS = 30
WORKFLOW_NODES = 1000
Object = dict[str, Any]


def spec() -> Spec:
    """Two nodes of 16 pods each: enough to keep two cores busy, few enough to have a waiting line."""
    capacity = {"cpu": "8", "memory": "16Gi", "pods": "16"}
    nodes = tuple(NodeSpec(f"node-{index}", capacity=capacity) for index in range(2))
    return Spec("bench", nodes=nodes, images=(ImageSpec("*", host_path=True),), keeper_linger_seconds=5.0)


def pod(name: str) -> Object:
    """A pod with an init container, an emptyDir, a claim and a ConfigMap, none of which does anything."""
    mounts = [{"name": "scratch", "mountPath": "/scratch"}, {"name": "claim", "mountPath": "/data/claim"}]
    container = {"image": "any", "command": ["/bin/true"], "volumeMounts": mounts}
    claim: Object = {"claimName": "data"}
    scratch: Object = {"name": "scratch", "emptyDir": {}}
    volumes = [scratch, {"name": "claim", "persistentVolumeClaim": claim}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "volumes": volumes,
            "initContainers": [{**container, "name": "prepare"}],
            "containers": [{**container, "name": "main"}],
        },
    }


def bare() -> float:
    """Seconds to start the pod's two programs one after the other, and nothing else."""
    begun = time.perf_counter()
    for _ in range(2):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    return time.perf_counter() - begun


def one_pod(cluster: EmbeddedCluster, name: str) -> float:
    """Seconds from applying a pod to seeing its end."""
    begun = time.perf_counter()
    cluster.apply(pod(name))
    cluster.wait("Pod", name, lambda found: (found or {}).get("status", {}).get("phase") == "Succeeded", 30)
    return time.perf_counter() - begun


def fan_out(nodes: int) -> Object:
    """A workflow whose `nodes` pods are independent of one another."""
    step = {"name": "all", "template": "one", "withSequence": {"count": str(nodes)}}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "fan-out"},
        "spec": {
            "entrypoint": "main",
            "templates": [
                {"name": "main", "steps": [[step]]},
                {"name": "one", "container": {"image": "any", "command": ["/bin/true"]}},
            ],
        },
    }


def resident_megabytes(pid: int) -> float:
    """Resident set of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def cpu_seconds(pids: list[int]) -> float:
    """Processor time that these processes have used."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def sleeper(cluster: EmbeddedCluster) -> tuple[float, float]:
    """Supervisor's resident megabytes, and processor seconds that cluster and pod use in two idle seconds."""
    manifest = pod("sleeper")
    manifest["spec"]["containers"][0]["command"] = ["/bin/sleep", "1000"]
    cluster.apply(manifest)
    found = cluster.wait("Pod", "sleeper", lambda one: (one or {}).get("status", {}).get("phase") == "Running", 30)
    assert found is not None
    supervisor = locks.holder(PodFolder(str(cluster.root), found["metadata"]["uid"]).lock)
    assert supervisor is not None
    pids = cluster.processes()
    time.sleep(0.5)
    before = cpu_seconds(pids)
    time.sleep(2.0)
    return resident_megabytes(supervisor), cpu_seconds(pids) - before


def lost_node_seconds(cluster: EmbeddedCluster) -> float:
    """From cutting a node's power to a watcher that sees its pod failed."""
    found = cluster.get("Pod", "sleeper")
    assert found is not None
    begun = time.perf_counter()
    cluster.lose_node(found["spec"]["nodeName"])
    cluster.wait("Pod", "sleeper", lambda one: (one or {}).get("status", {}).get("phase") == "Failed", 30)
    return time.perf_counter() - begun


def workflow_seconds(cluster: EmbeddedCluster) -> float:
    """A workflow of 1,000 pods, from applying it to its end."""
    begun = time.perf_counter()
    cluster.apply(fan_out(WORKFLOW_NODES))
    found = cluster.wait("Workflow", "fan-out", lambda one: bool((one or {}).get("status", {}).get("finishedAt")), 300)
    assert found is not None
    assert found["status"]["phase"] == "Succeeded", found["status"].get("message")
    return time.perf_counter() - begun


def line(what: str, value: float, limit: float, unit: str) -> bool:
    """Print one figure; whether it is inside its limit."""
    good = value <= limit
    sys.stdout.write(f"{what:<58} {value:9.2f} {unit:<3} limit {limit:g}{'' if good else '  OVER'}\n")
    return good


def main() -> int:
    """Measure everything; 1 where a figure is over its limit."""
    good = True
    with tempfile.TemporaryDirectory(prefix="primus-bench-") as folder:
        cluster = EmbeddedCluster(Path(folder) / "cluster", spec())
        cluster.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": {}})
        try:
            one_pod(cluster, "warm-up")
            pairs = [(bare(), one_pod(cluster, f"pod-{index}")) for index in range(ROUNDS)]
            overhead = statistics.median(whole - plain for plain, whole in pairs) * 1000
            plain = statistics.median(plain for plain, _ in pairs) * 1000
            what = f"pod with volumes and init container, over {plain:.1f} ms of its processes"
            good &= line(what, overhead, 30, "ms")
            resident, idle = sleeper(cluster)
            good &= line("supervisor, resident", resident, 12, "MB")
            good &= line("idle cluster with one pod, processor time in 2 s", idle * 1000, 0, "ms")
            good &= line("node lost -> a watcher sees its pod failed", lost_node_seconds(cluster) * 1000, 50, "ms")
            cluster.restore_node("node-0")
            cluster.restore_node("node-1")
            good &= line(f"workflow of {WORKFLOW_NODES:,} pods", workflow_seconds(cluster), 25, "s")
        finally:
            cluster.stop()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
