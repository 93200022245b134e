"""Plans of attempts for tests of the builders: values made by hand, so that no shipped profile can break them."""

from __future__ import annotations

from typing import Any

from profiles.cluster import ClusterProfile, Pool, PoolTopology, Storage
from profiles.hardware import HardwareProfile
from profiles.resolve import Resolved
from profiles.run import CheckpointPolicy, Placement, Resources, Role, RunProfile, SecretVariable
from workflows.attempt.plan import AttemptPlan

CPU = HardwareProfile(name="cpu", vendor="none", gpus_per_node=0, cpus_per_node=8, memory_per_node="16Gi")
AMD = HardwareProfile(
    name="mi300x",
    vendor="amd",
    gpus_per_node=8,
    resource_name="amd.com/gpu",
    nics_per_node=8,
    nic_resource_name="rdma/hca",
    cpus_per_node=192,
    memory_per_node="2Ti",
)
TRAINER = Role(
    name="trainer",
    replicas=2,
    image="example.org/trainer:1",
    command=("python3", "train.py", "--out={checkpoint_dir}", "--steps={steps}", "--literal={other}"),
    environment={"OMP_NUM_THREADS": "1"},
)


def a_cluster(hardware: HardwareProfile = CPU, **changes: Any) -> ClusterProfile:
    """A cluster of one pool, embedded unless `changes` says otherwise."""
    pool = Pool(
        name="main",
        hardware=hardware.name,
        nodes=20_000,
        spares=2,
        topology=PoolTopology(nodes_per_rack=16),
        labels={"example.org/kind": hardware.name},
        taints=("example.org/gpu=yes:NoSchedule", "example.org/shared:NoExecute"),
    )
    values: dict[str, Any] = {
        "name": "local",
        "engine": "embedded",
        "pools": (pool,),
        "storage": (
            Storage(kind="host_path", source="/srv/shared", mount_path="/shared"),
            Storage(kind="claim", source="datasets", mount_path="/shared/data"),
        ),
        "priority_classes": {"high": 10},
    }
    return ClusterProfile(**(values | changes))


def a_run(**changes: Any) -> RunProfile:
    """A run of two pods."""
    values: dict[str, Any] = {
        "name": "demo",
        "roles": (TRAINER,),
        "hardware": ("cpu", "mi300x"),
        "steps": 300,
        "checkpoint": CheckpointPolicy(resume_argument=("--resume", "{resume_from}")),
    }
    return RunProfile(**(values | changes))


def a_plan(
    run: RunProfile | None = None,
    cluster: ClusterProfile | None = None,
    hardware: HardwareProfile = CPU,
    **changes: Any,
) -> AttemptPlan:
    """Attempt 1 of `demo-1` on `node-0`, `node-1`, …"""
    run, cluster = run or a_run(), cluster or a_cluster(hardware)
    resolved = Resolved(run=run, cluster=cluster, pool=cluster.pools[0], hardware=hardware)
    nodes = tuple(f"node-{index}" for index in range(run.deciding_role.replicas))
    return AttemptPlan(**({"resolved": resolved, "run": "demo-1", "attempt": 1, "nodes": nodes} | changes))


def a_gpu_plan(replicas: int = 2, **changes: Any) -> AttemptPlan:
    """Whole nodes of AMD GPUs under Kubernetes and Kueue, with a second role."""
    trainer = TRAINER.model_copy(
        update={
            "replicas": replicas,
            "processes_per_node": 8,
            "decides": True,
            "resources": Resources(cpu="96", memory="1Ti", shared_memory="64Gi"),
            "secret_environment": (SecretVariable(name="HF_TOKEN", secret="hub", key="token"),),
        }
    )
    feeder = Role(name="feeder", replicas=3, image="example.org/feeder:1", command=("feed",), on_failure="restart")
    run = a_run(roles=(trainer, feeder), priority="high", topology=Placement(level="rack", required=True))
    cluster = a_cluster(AMD, engine="kubernetes", queue="team", namespace="training", image_pull_secrets=("pull",))
    return a_plan(run, cluster, AMD, **changes)
