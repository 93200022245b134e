"""From a living cluster's objects to a profile: what is found, what is not known, and pools that come back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.cluster_import.profile import ClusterImport, imported
from profiles.cluster import ClusterProfile, Pool, PoolTopology, Storage
from profiles.errors import ProfileError
from profiles.loading.load import load_cluster
from profiles.resolve import resolved_on
from profiles.run import Role, RunProfile
from profiles.values import amount
from tests.support.cases.rows import rows
from tests.support.fakes.living_clusters import HARDWARE, node, nodes_of, stock
from workflows import labels
from workflows.model.cluster import Claim
from workflows.model.inventory import FlavorStock, Inventory, ServiceStock
from workflows.model.queues import ClusterQueue, LocalQueue, Quota

SHARED = Claim("shared", "Bound", ("ReadWriteMany",), "nfs", "10Ti")
TWO = (node("a", "h200"), node("b", "h200"))
GPU = "nvidia.com/gpu"
TAINT = ("a=:NoSchedule",)


def found_in(cluster: Inventory, *storage: str) -> ClusterImport:
    return imported(cluster, "", HARDWARE, storage)


def said(found: ClusterImport, field: str) -> str:
    return "\n".join(text for name, text in found.remarks if name == field)


def a_run(pool: Pool) -> RunProfile:
    role = Role(name="trainer", replicas=1, image="i", command=("c",))
    return RunProfile(name="r", hardware=(pool.hardware,), pool=pool.name, roles=(role,))


def test_a_whole_cluster() -> None:
    cluster = stock(
        *TWO,
        node("c", "mi300x", extra={"rdma/hca": "8", "cpu": "190500m", "memory": "2113929216Ki"}, taints=TAINT),
        volumes=(SHARED,),
        flavors=(FlavorStock("nv", {"nvidia.com/gpu.product": "NVIDIA-H200"}), FlavorStock("unused")),
        local_queues=(LocalQueue("team", "research"),),
        cluster_queues=(ClusterQueue("research", quotas=(Quota("nv", GPU, "16"),)),),
        priority_classes={"high": 10, "high-returning": 101, "returning": 0, "system-node-critical": 2000, "other": 3},
        workload_priority_classes={"high": 100, "high-returning": 101, "returning": 0, "alone": 5},
        services=(ServiceStock("prometheus-operated", "monitoring", ports=(("web", 9090),)),),
    )  # fmt: skip
    found = found_in(cluster)
    profile = found.profile
    assert profile is not None
    assert (profile.name, profile.engine, profile.context, profile.namespace) == (
        "big",
        "kubernetes",
        "big",
        "training",
    )
    amd, nvidia = profile.pools[1], profile.pools[0]
    assert (nvidia.name, nvidia.nodes, nvidia.queue_flavor, nvidia.nic_resource_name) == ("h200", 2, "nv", "")
    assert (amd.name, amd.queue_flavor, amd.taints) == ("mi300x", "", TAINT)
    assert (amd.cpus_per_node, amd.memory_per_node, amd.nic_resource_name) == (190, "2016Gi", "rdma/hca")
    assert profile.storage == (Storage(kind="claim", source="shared", mount_path="/mnt/shared"),)
    assert (profile.queue, profile.priority_classes) == ("team", {"returning": 0, "high": 100, "high-returning": 101})
    assert profile.returning_priorities == {"high": "high-returning"}, "one that stands no higher gives no place"
    assert profile.endpoints.prometheus_url == "http://prometheus-operated.monitoring:9090"
    assert "a guess" in found.sources["endpoints"]
    assert "10Ti of class nfs" in found.sources["storage[0]"]
    assert "no single ResourceFlavor" in said(found, "pools[1].queue_flavor")
    assert "alone" in said(found, "priority_classes")
    assert "high: Kueue's value" in said(found, "priority_classes")


def test_the_shipped_example_comes_back() -> None:
    """Nodes as the example's pools describe them give the example's pools."""
    example = load_cluster("kubernetes-example")
    nodes = [item for pool in example.pools for item in nodes_of(pool, HARDWARE[pool.hardware])]
    flavors = tuple(FlavorStock(pool.queue_flavor, pool.labels) for pool in example.pools if pool.queue_flavor)
    found = found_in(stock(*nodes, volumes=(SHARED,), flavors=flavors)).profile
    assert found is not None
    for pool in example.pools:
        back = next(item for item in found.pools if item.hardware == pool.hardware)
        kind = HARDWARE[pool.hardware]
        assert back == pool.model_copy(
            update={
                "cpus_per_node": pool.cpus_per_node or kind.cpus_per_node,
                "memory_per_node": pool.memory_per_node or kind.memory_per_node,
                "topology": seen(pool),
                "fabric_environment": {},
            }
        )


def seen(pool: Pool) -> PoolTopology:
    """What nodes can show of a topology: no more than there are."""
    rack = min(pool.topology.nodes_per_rack, pool.nodes)
    racks = -(-pool.nodes // pool.topology.nodes_per_rack)
    return PoolTopology(nodes_per_rack=rack, racks_per_block=min(pool.topology.racks_per_block, racks))


POOLS = st.lists(
    st.builds(
        Pool,
        name=st.just("p"),
        hardware=st.sampled_from(sorted(HARDWARE)),
        nodes=st.integers(2, 7),
        spares=st.integers(0, 1),
        topology=st.builds(PoolTopology, nodes_per_rack=st.integers(1, 4), racks_per_block=st.integers(1, 3)),
        taints=st.sampled_from([(), ("a.org/b=c:NoSchedule",), ("d=:NoExecute", "e=f:PreferNoSchedule")]),
        cpus_per_node=st.sampled_from([2, 64, 191]),
        memory_per_node=st.sampled_from(["24052Mi", "512Gi", "2Ti"]),
        nic_resource_name=st.sampled_from(["", "rdma/hca", "vpc.amazonaws.com/efa"]),
    ),
    min_size=1,
    max_size=4,
).map(
    lambda pools: [
        pool.model_copy(
            update={
                "name": f"pool-{index}",
                "labels": {"site.example/kind": f"kind-{index}"},
                "queue_flavor": f"flavor-{index}",
                "nic_resource_name": pool.nic_resource_name if HARDWARE[pool.hardware].nics_per_node else "",
            }
        )
        for index, pool in enumerate(pools)
    ]
)


@given(POOLS)
def test_pools_come_back_and_every_run_fits_its_own(pools: list[Pool]) -> None:
    nodes = [item for pool in pools for item in nodes_of(pool, HARDWARE[pool.hardware])]
    nodes = [replace(item, labels={**item.labels, labels.POOL: item.name.rpartition("-")[0]}) for item in nodes]
    flavors = tuple(FlavorStock(pool.queue_flavor, pool.labels) for pool in pools)
    found = found_in(stock(*nodes, volumes=(SHARED,), flavors=flavors))
    assert found.profile is not None
    assert found.left_out == ()
    assert {pool.name for pool in found.profile.pools} == {pool.name for pool in pools}
    by_name = {pool.name: pool for pool in found.profile.pools}
    for pool in pools:
        back = by_name[pool.name]
        assert back.labels == {labels.POOL: pool.name}
        assert amount(back.memory_per_node or "0") == amount(pool.memory_per_node or "1")
        unchanged = {"labels": pool.labels, "memory_per_node": pool.memory_per_node, "taints": pool.taints}
        assert sorted(back.taints) == sorted(pool.taints)
        assert back.model_copy(update=unchanged) == pool.model_copy(update={"topology": seen(pool)})
        assert resolved_on(a_run(back), found.profile, HARDWARE).pool == back


@rows("cluster_import/cluster_profile")
def test_a_queue_is_named_only_where_one_is_meant(queues: tuple[str, ...], expected: str, remark: str) -> None:
    found = found_in(stock(*TWO, volumes=(SHARED,), local_queues=tuple(LocalQueue(q, "research") for q in queues)))
    assert found.profile is not None
    assert found.profile.queue == expected
    assert remark in said(found, "queue")


def test_no_shared_folder_is_said_with_what_to_do_and_the_rest_is_there() -> None:
    single = Claim("mine", "Bound", ("ReadWriteOnce",))
    waiting = Claim("later", "Pending", ("ReadWriteMany",))
    found = found_in(stock(*TWO, volumes=(single, waiting), storage_classes=(("fast", "csi.example"),)))
    assert found.profile is None
    assert not found.unknown
    assert len(found.fields["pools"]) == 1
    for words in ("no bound PersistentVolumeClaim", "fast (csi.example)", "--storage"):
        assert words in found.problem
    assert "later" in said(found, "storage")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("shared", Storage(kind="claim", source="shared", mount_path="/mnt/shared")),
        ("other:/data", Storage(kind="claim", source="other", mount_path="/data")),
        ("/nfs", Storage(kind="host_path", source="/nfs", mount_path="/nfs")),
        ("{home}/shared", Storage(kind="host_path", source="{home}/shared", mount_path="{home}/shared")),
    ],
)
def test_a_shared_folder_may_be_named(text: str, expected: Storage) -> None:
    found = found_in(stock(*TWO, volumes=(SHARED,)), text)
    assert found.profile is not None
    assert found.profile.storage[0] == expected
    assert len(found.profile.storage) == (1 if expected.source == "shared" else 2)
    assert ("first one" in said(found, "storage")) == (expected.source != "shared")


@pytest.mark.parametrize("text", ["", "Not A Claim", "relative/path", ":/mnt"])
def test_a_shared_folder_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ProfileError, match="--storage"):
        found_in(stock(*TWO), text)


def test_what_may_not_be_read_is_said_and_not_taken_for_absent() -> None:
    closed = dict.fromkeys(("LocalQueue", "PersistentVolumeClaim", "Service", "PriorityClass"), "forbidden: ask")
    found = found_in(stock(*TWO, unread=closed))
    assert found.profile is None
    assert found.unknown
    assert "could not be read (forbidden: ask)" in found.problem
    assert "forbidden: ask" in said(found, "queue")
    assert "forbidden: ask" in said(found, "endpoints")
    nothing = found_in(stock(unread={"Node": "forbidden"}, volumes=(SHARED,)))
    assert nothing.unknown
    assert "may not be read" in nothing.problem


def test_nodes_that_fit_nothing_are_named_with_what_was_seen() -> None:
    odd = [node(f"odd-{index}", "h200", gpus=4) for index in range(6)]
    found = found_in(stock(*odd, node("a", "mi300x"), volumes=(SHARED,)))
    assert len(found.left_out) == 6
    text = said(found, "pools")
    for words in ("odd-0, odd-1, odd-2, odd-3 and 2 more", "no hardware profile fits", "NVIDIA-H200", f"{GPU}: 4"):
        assert words in text
    nothing = found_in(stock(*odd, volumes=(SHARED,)))
    assert nothing.profile is None
    assert "no node can be used" in nothing.problem


def test_todays_troubles_are_said_and_the_nodes_count() -> None:
    sick = node("c", "h200", allocatable={GPU: "7", "cpu": "100", "memory": "1Ti"}, cordoned=True, ready=False)
    tainted = node("d", "h200", taints=("primus-flows.io/quarantine=i1:NoSchedule",))
    found = found_in(stock(*TWO, sick, tainted, volumes=(SHARED,)))
    assert found.profile is not None
    pool = found.profile.pools[0]
    assert (pool.nodes, pool.cpus_per_node, pool.memory_per_node, pool.taints) == (4, 100, "1Ti", ())
    for words in ("c is not ready", "c is cordoned", "c offers fewer GPUs"):
        assert words in said(found, "pools[0].nodes")
    assert "d has primus-flows.io/quarantine=i1:NoSchedule" in said(found, "pools[0].taints")


def test_taints_of_most_nodes_are_the_pools() -> None:
    usual = [node(f"n{index}", "h200", taints=("gpu=:NoSchedule",)) for index in range(3)]
    found = found_in(stock(*usual, node("bare", "h200"), volumes=(SHARED,)))
    assert found.profile is not None
    assert found.profile.pools[0].taints == ("gpu=:NoSchedule",)
    assert "bare lacks" in said(found, "pools[0].taints")


@rows("cluster_import/cluster_profile")
def test_nics_are_written_only_where_one_resource_counts_them(
    extra: dict[str, str], expected: str, remark: str
) -> None:
    found = found_in(stock(node("a", "h200", extra=extra), volumes=(SHARED,)))
    assert found.profile is not None
    assert found.profile.pools[0].nic_resource_name == expected
    text = said(found, "pools[0].nic_resource_name")
    assert remark in text
    assert bool(text) == bool(remark)


def test_foreign_rack_labels_are_counted_and_told_to_be_copied() -> None:
    rack = "cloud.provider.com/topology-rack"
    found = found_in(stock(*(replace(item, labels={**item.labels, rack: "r1"}) for item in TWO), volumes=(SHARED,)))
    assert found.profile is not None
    assert found.profile.pools[0].topology == PoolTopology(nodes_per_rack=2)
    assert f"copy the values of {rack} to {labels.RACK}" in said(found, "pools[0].topology")


def test_the_levels_of_kueues_topology_tell_racks() -> None:
    nodes = [replace(item, labels={**item.labels, "x/tor": "t1"}) for item in TWO]
    flavor = FlavorStock("nv", {"nvidia.com/gpu.product": "NVIDIA-H200"}, "net")
    levels = {"net": ("x/tor", labels.HOSTNAME)}
    found = found_in(stock(*nodes, volumes=(SHARED,), flavors=(flavor,), topologies=levels))
    assert found.fields["pools"][0]["topology"]["nodes_per_rack"] == 2


@rows("cluster_import/cluster_profile")
def test_prometheus_is_guessed_by_its_usual_names(services: tuple[str, ...], expected: str) -> None:
    stocked = tuple(ServiceStock(name, "mon", ports=(("http-web", 9090),)) for name in services)
    found = found_in(stock(*TWO, volumes=(SHARED,), services=stocked))
    assert found.profile is not None
    assert found.profile.endpoints.prometheus_url == (f"http://{expected}.mon:9090" if expected else "")


def test_names_are_made_fit_and_differ() -> None:
    twins: list[Any] = [node(f"{kind}{index}", "h200", labels={"site/kind": kind}) for index in (0, 1) for kind in "XY"]
    flavors = (FlavorStock("x", {"site/kind": "X"}), FlavorStock("y", {"site/kind": "Y"}))
    cluster = replace(stock(*twins, volumes=(SHARED,), flavors=flavors), context="arn:aws:eks:1/Big_One")
    found = found_in(cluster).profile
    assert isinstance(found, ClusterProfile)
    assert found.name == "arn-aws-eks-1-big-one"
    assert [pool.name for pool in found.pools] == ["h200-x", "h200-y"]
