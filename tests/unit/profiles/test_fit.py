from __future__ import annotations

from typing import Any

import pytest
import yaml

from profiles.cluster import ClusterProfile, Pool, PoolTopology, Storage
from profiles.errors import ProfileError
from profiles.hardware import HardwareProfile
from profiles.loading import load
from profiles.resolve import Resolved
from profiles.run import CheckpointPolicy, Overlay, Placement, Resources, Role, RunProfile

CPU = HardwareProfile(name="cpu", vendor="none", gpus_per_node=0, cpus_per_node=8, memory_per_node="16Gi")
AMD = HardwareProfile(
    name="mi300x",
    vendor="amd",
    gpus_per_node=8,
    resource_name="amd.com/gpu",
    nics_per_node=8,
    cpus_per_node=192,
    memory_per_node="2Ti",
    fabric_environment={"FABRIC": "hardware", "SITE": "hardware", "ROLE": "hardware", "OVERLAY": "hardware"},
)
NVIDIA = AMD.model_copy(
    update={"name": "h200", "vendor": "nvidia", "resource_name": "nvidia.com/gpu", "nic_resource_name": "rdma/hca"}
)
HARDWARE = {item.name: item for item in (CPU, AMD, NVIDIA)}
AMD_POOL = Pool(
    name="amd",
    hardware="mi300x",
    nodes=10,
    spares=2,
    topology=PoolTopology(nodes_per_rack=4, racks_per_block=2),
    labels={"kind": "amd"},
    fabric_environment={"SITE": "pool", "ROLE": "pool", "OVERLAY": "pool"},
)
NVIDIA_POOL = Pool(name="nvidia", hardware="h200", nodes=4, labels={"kind": "nvidia"}, queue_flavor="h200")
CPU_POOL = Pool(name="cpu", hardware="cpu", nodes=4, labels={"kind": "cpu"})
TRAINER = Role(
    name="trainer", image="plain", command=("a",), environment={"ROLE": "role", "OVERLAY": "role"}, replicas=2
)
HELPER = Role(name="helper", image="plain", command=("b",))


def _cluster(*pools: Pool, **changes: Any) -> ClusterProfile:
    values: dict[str, Any] = {
        "name": "here",
        "engine": "embedded",
        "pools": pools or (CPU_POOL, AMD_POOL, NVIDIA_POOL),
        "storage": (Storage(kind="claim", source="shared", mount_path="/mnt/shared/"),),
        "priority_classes": {"high": 10},
    }
    return ClusterProfile(**(values | changes))


def _run(role: dict[str, Any] | None = None, **changes: Any) -> RunProfile:
    trainer = TRAINER.model_copy(update=role or {})
    return RunProfile(**({"name": "x", "roles": (trainer,), "hardware": ("mi300x", "h200")} | changes))


def _resolve(run: RunProfile, cluster: ClusterProfile | None = None) -> Resolved:
    return load.resolve(run, cluster or _cluster(), HARDWARE)


@pytest.mark.parametrize(
    ("changes", "pools", "chosen"),
    [
        ({}, (CPU_POOL, AMD_POOL, NVIDIA_POOL), "amd"),
        ({"hardware": ("h200", "mi300x")}, (CPU_POOL, AMD_POOL, NVIDIA_POOL), "nvidia"),
        ({}, (NVIDIA_POOL, AMD_POOL), "amd"),
        ({}, (CPU_POOL, NVIDIA_POOL), "nvidia"),
        ({"pool": "nvidia"}, (AMD_POOL, NVIDIA_POOL), "nvidia"),
        ({"hardware": ("cpu",)}, (AMD_POOL, CPU_POOL), "cpu"),
        ({}, (AMD_POOL.model_copy(update={"name": "first"}), AMD_POOL), "first"),
        ({"pool": "amd"}, (AMD_POOL.model_copy(update={"name": "first"}), AMD_POOL), "amd"),
    ],
)
def test_the_first_pool_of_the_best_hardware_is_chosen(
    changes: dict[str, Any], pools: tuple[Pool, ...], chosen: str
) -> None:
    resolved = _resolve(_run(**changes), _cluster(*pools))
    assert resolved.pool.name == chosen
    assert resolved.hardware.name == resolved.pool.hardware


def test_one_profile_serves_two_vendors_by_its_overlays() -> None:
    overlays = {
        "mi300x": Overlay(image="rocm", environment={"OVERLAY": "amd"}, queue="amd-queue", verified=True),
        "h200": Overlay(
            command=("c",), resources=Resources(gpus=4), processes_per_node=4, queue_flavor="other", verified=False
        ),
    }
    helper = HELPER.model_copy(update={"environment": {"OWN": "1"}})
    deciding = TRAINER.model_copy(update={"decides": True})
    run = _run(roles=(helper, deciding), by_hardware=overlays, queue="plain", verified=True)

    amd = _resolve(run)
    assert [role.image for role in amd.run.roles] == ["plain", "rocm"]
    assert amd.run.roles[1].environment == {"FABRIC": "hardware", "SITE": "pool", "ROLE": "role", "OVERLAY": "amd"}
    assert amd.run.roles[0].environment == {
        "FABRIC": "hardware",
        "SITE": "pool",
        "ROLE": "pool",
        "OVERLAY": "amd",
        "OWN": "1",
    }
    assert (amd.run.queue, amd.run.verified, amd.gpus_per_pod, amd.gpus) == ("amd-queue", True, 8, 16)

    nvidia = _resolve(run, _cluster(NVIDIA_POOL))
    assert nvidia.run.roles[1].command == ("c",)
    assert (nvidia.run.queue, nvidia.run.verified, nvidia.gpus_per_pod, nvidia.world_size) == ("plain", False, 4, 8)
    assert nvidia.pool.queue_flavor == "other"
    assert nvidia.hardware.nic_resource_name == "rdma/hca"
    assert amd.run.by_hardware == nvidia.run.by_hardware == {}
    assert amd.hardware.vendor != nvidia.hardware.vendor


def test_shared_memory_that_nobody_asked_for_fits_the_pod() -> None:
    """The default is 1Gi: no fault of whoever wants a smaller pod."""
    small, plain = Resources(memory="512Mi"), Resources()
    resolved = [_resolve(_run({"resources": one})).run.roles[0].resources for one in (small, plain)]
    assert [one.shared_memory for one in resolved] == ["512Mi", "1Gi"]
    assert [one.memory for one in resolved] == ["512Mi", None]


def test_torchruns_variables_may_be_set_where_they_are_left_out() -> None:
    run = _run({"environment": {"RANK": "-1"}, "torchrun_variables": False})
    assert _resolve(run).run.roles[0].environment["RANK"] == "-1"


def test_resolving_twice_is_equal_and_changes_nothing() -> None:
    run, cluster = _run(), _cluster()
    before = (run.model_dump(), cluster.model_dump())
    assert _resolve(run, cluster) == _resolve(run, cluster)
    assert (run.model_dump(), cluster.model_dump()) == before


def test_a_pool_says_how_its_site_counts_nics() -> None:
    pool = AMD_POOL.model_copy(update={"nic_resource_name": "site/nic"})
    resolved = _resolve(_run(), _cluster(pool))
    assert resolved.hardware.nic_resource_name == "site/nic"
    assert HARDWARE["mi300x"].nic_resource_name == ""


@pytest.mark.parametrize(
    ("run", "cluster", "field", "words"),
    [
        (_run(hardware=("mi300",)), _cluster(), "hardware[0]", 'did you mean "mi300x"'),
        (_run(by_hardware={"h20": Overlay()}), _cluster(), "by_hardware.h20", 'did you mean "h200"'),
        (
            _run(),
            _cluster(AMD_POOL.model_copy(update={"hardware": "mi30x"})),
            "cluster.pools[0].hardware",
            'did you mean "mi300x"',
        ),
        (_run(), _cluster(CPU_POOL), "hardware", "here has none of mi300x, h200; its pools: cpu (cpu)"),
        (_run(pool="nvdia"), _cluster(), "pool", 'did you mean "nvidia"'),
        (_run(pool="cpu"), _cluster(), "pool", "made of cpu, but the run may use mi300x, h200 only"),
        (_run(hardware=("h200",), pool="amd"), _cluster(), "pool", "made of mi300x"),
        (_run(priority="hihg"), _cluster(), "priority", 'did you mean "high"'),
        (
            _run(priority="high"),
            _cluster(returning_priorities={"high": "hihg-returning"}),
            "cluster.returning_priorities",
            '"hihg-returning" is no priority',
        ),
        (_run({"replicas": 9}), _cluster(), "roles[0].replicas", "10, 2 of them spare; ask for at most 8"),
        (_run({"replicas": 5}, pool="nvidia"), _cluster(), "roles[0].replicas", "has 4; ask for at most 4"),
        (_run({"resources": Resources(gpus=9)}), _cluster(), "roles[0].resources.gpus", "offers 8"),
        (
            _run({"resources": Resources(gpus=1)}, hardware=("cpu",)),
            _cluster(),
            "roles[0].resources.gpus",
            "nodes of cpu offer none",
        ),
        (_run({"resources": Resources(nics=1)}), _cluster(), "roles[0].resources.nics", "offer none"),
        (_run({"resources": Resources(nics=9)}, pool="nvidia"), _cluster(), "roles[0].resources.nics", "offers 8"),
        (_run({"resources": Resources(cpu="193")}), _cluster(), "roles[0].resources.cpu", "at most 192"),
        (_run({"resources": Resources(memory="3Ti")}), _cluster(), "roles[0].resources.memory", "at most 2Ti"),
        (_run({"environment": {"RANK": "-1"}}), _cluster(), "roles[0].environment.RANK", "torchrun_variables: false"),
        (
            _run({"environment": {"ROLE_NAME": "x"}, "torchrun_variables": False}),
            _cluster(),
            "roles[0].environment.ROLE_NAME",
            "by us",
        ),
        (
            _run({"resources": Resources(memory="1Gi", shared_memory="2Gi")}),
            _cluster(),
            "roles[0].resources.shared_memory",
            "at most 1Gi",
        ),
        (
            _run(
                roles=(
                    TRAINER.model_copy(update={"decides": True, "replicas": 8}),
                    HELPER.model_copy(update={"resources": Resources(gpus=1)}),
                )
            ),
            _cluster(),
            "roles",
            "65 GPUs, but pool amd has 64",
        ),
        (
            _run({"replicas": 5}, topology=Placement(level="rack", required=True)),
            _cluster(),
            "topology.required",
            "5 nodes never stand in one rack",
        ),
        (
            _run(checkpoint=CheckpointPolicy(directory="/tmp/checkpoints")),
            _cluster(),
            "checkpoint.directory",
            "each container has its own /tmp",
        ),
        (
            _run({"working_directory": "/dev/shm"}),
            _cluster(),
            "roles[0].working_directory",
            "each container has its own /dev",
        ),
        (
            _run(checkpoint=CheckpointPolicy(directory="/tmp/checkpoints")),
            _cluster(engine="kubernetes"),
            "checkpoint.directory",
            "on no shared storage",
        ),
        (
            _run(checkpoint=CheckpointPolicy(directory="/mnt/sharedx/a")),
            _cluster(engine="kubernetes"),
            "checkpoint.directory",
            "on no shared storage",
        ),
    ],
)
def test_what_can_never_run_is_refused(run: RunProfile, cluster: ClusterProfile, field: str, words: str) -> None:
    with pytest.raises(ProfileError) as caught:
        _resolve(run, cluster)
    assert caught.value.field == field
    assert words in caught.value.reason


@pytest.mark.parametrize(
    "run",
    [
        _run({"replicas": 8}),
        _run({"replicas": 4}, topology=Placement(level="rack", required=True)),
        _run({"replicas": 8}, topology=Placement(level="block", required=True)),
        _run({"replicas": 8}, topology=Placement(level="rack")),
        _run({"resources": Resources(cpu="191500m", memory="2048Gi", gpus=8)}),
        _run(checkpoint=CheckpointPolicy(directory="/mnt/shared/a")),
        _run(checkpoint=CheckpointPolicy(directory="{run_dir}/a")),
        _run(priority="high"),
    ],
)
def test_what_fits_exactly_is_taken(run: RunProfile) -> None:
    assert _resolve(run).pool.name == "amd"


@pytest.mark.parametrize(
    ("labels", "other_labels", "refused"),
    [
        ({"kind": "amd"}, {"kind": "nvidia"}, False),
        ({}, {"kind": "nvidia"}, True),
        ({"site": "a"}, {"site": "a", "kind": "nvidia"}, True),
        ({"site": "a", "kind": "amd"}, {"site": "a"}, False),
    ],
)
def test_a_selector_that_reaches_another_vendor_is_refused_on_kubernetes(
    labels: dict[str, str], other_labels: dict[str, str], refused: bool
) -> None:
    mine = AMD_POOL.model_copy(update={"labels": labels})
    cluster = _cluster(mine, NVIDIA_POOL.model_copy(update={"labels": other_labels}), engine="kubernetes")
    if not refused:
        assert _resolve(_run(), cluster).pool.name == "amd"
        return
    with pytest.raises(ProfileError) as caught:
        _resolve(_run(), cluster)
    assert caught.value.field == "cluster.pools[0].labels"
    assert "never spans kinds of hardware or vendors" in caught.value.reason


def test_coordinators_need_a_pool_that_is_there() -> None:
    data = yaml.safe_load((load.SHIPPED / "clusters" / "local.yaml").read_text())
    with pytest.raises(ProfileError) as caught:
        load.load_text(ClusterProfile, yaml.safe_dump(data | {"coordinator_pool": "cpus"}))
    assert caught.value.field == "coordinator_pool"
    assert 'did you mean "cpu"' in caught.value.reason
