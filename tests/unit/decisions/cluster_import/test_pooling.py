"""Nodes into pools: every node in one pool or left out with a reason, no pool's labels on a node of another."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.cluster_import.hardware import DEVICES, PRODUCTS, PoolPlaces, match, nics, places
from flows.decisions.cluster_import.pools import Grouped, LabelTable, carries, grouped
from tests.support.cases.rows import rows
from tests.support.fakes.living_clusters import HARDWARE, node
from tests.support.fakes.living_clusters import PRODUCTS as LABELLED
from workflows import labels
from workflows.model.inventory import FlavorStock, NodeStock

SITE = "site.example/kind"


@pytest.mark.parametrize("name", sorted(HARDWARE))
def test_each_shipped_hardware_is_recognised(name: str) -> None:
    found = match(node("a", name), HARDWARE)
    assert (found.hardware, found.gpus, found.why) == (name, HARDWARE[name].gpus_per_node, "")


def test_the_tables_name_shipped_hardware() -> None:
    assert {*PRODUCTS.values(), *DEVICES.values()} <= HARDWARE.keys()
    assert {*PRODUCTS.values()} == {name for name, kind in HARDWARE.items() if kind.gpus_per_node} == LABELLED.keys()


H200 = {"nvidia.com/gpu.product": "NVIDIA-H200"}


@rows("cluster_import/pooling")
def test_what_fits_no_profile_is_said(marks: dict[str, str], capacity: dict[str, str], why: str) -> None:
    found = match(NodeStock("a", labels=marks, capacity=capacity, allocatable=capacity), HARDWARE)
    assert found.hardware == ""
    assert why in found.why
    assert all(value in found.seen for value in marks.values())


def test_amd_is_known_by_name_by_device_and_by_the_labellers_counters() -> None:
    for marks in (
        {"beta.amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"},
        {"amd.com/gpu.device-id": "0x74A1"},
        {"amd.com/gpu.product-name": "something else", "amd.com/gpu.device-id": "74b5"},
        {"beta.amd.com/gpu.device-id.74a1": "8"},
    ):
        found = match(NodeStock("a", labels=marks, capacity={"amd.com/gpu": "8"}), HARDWARE)
        assert (found.hardware, found.gpus, found.gpus_now) == ("mi300x", 8, 0), marks


def test_a_silent_device_plug_in_is_outweighed_by_the_labelled_count() -> None:
    found = match(NodeStock("a", labels=H200 | {"nvidia.com/gpu.count": "8"}), HARDWARE)
    assert (found.hardware, found.gpus, found.gpus_now) == ("h200", 8, 0)


def test_nics_are_counted_and_gpus_are_not_among_them() -> None:
    offer = {"rdma/hca_shared_a": "8", "vpc.amazonaws.com/efa": "32", "nvidia.com/hostdev": "8", "amd.com/nic": "0"}
    found = nics(node("a", "h200", extra=offer | {"intel.com/qat": "4", "hugepages-2Mi": "0"}))
    assert found == {"rdma/hca_shared_a": 8, "vpc.amazonaws.com/efa": 32, "nvidia.com/hostdev": 8}


def selectors(found: Grouped) -> list[dict[str, str]]:
    return [dict(group.selector or {}) for group in found.groups]


def test_one_label_is_enough_and_the_product_is_liked_best() -> None:
    found = grouped([node("a", "h200"), node("b", "h200"), node("c", "mi300x")], HARDWARE)
    assert selectors(found) == [H200, {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}]
    assert found.left_out == ()


def test_nodes_without_a_label_of_their_own_are_left_out_with_what_to_do() -> None:
    found = grouped([node("cpu-0"), node("cpu-1"), node("gpu-0", "h200")], HARDWARE)
    assert [group.hardware for group in found.groups] == ["h200"]
    assert [name for name, _ in found.left_out] == ["cpu-0", "cpu-1"]
    assert f"kubectl label node NODE {labels.POOL}=NAME" in found.left_out[0][1]


def test_two_labels_where_one_is_shared_with_others() -> None:
    zone = "topology.kubernetes.io/zone"
    nodes = [
        node("a", "h200", labels={zone: "1"}, taints=("x=y:NoSchedule",)),
        node("b", "h200", labels={zone: "2"}),
        node("c", "mi300x", labels={zone: "1"}),
    ]
    assert H200 | {zone: "1"} in selectors(grouped(nodes, HARDWARE))


def test_pools_of_one_hardware_that_no_label_tells_apart_become_one() -> None:
    nodes = [node(f"n{index}", "h200") for index in range(3)] + [node("n3", "h200", taints=("team=a:NoSchedule",))]
    found = grouped(nodes, HARDWARE)
    assert [(len(group.nodes), dict(group.selector or {})) for group in found.groups] == [(4, H200)]


def test_taints_of_a_state_make_no_pool() -> None:
    passing = ("node.kubernetes.io/unreachable=:NoExecute", "primus-flows.io/quarantine=i1:NoSchedule")
    nodes = [node("a", "h200", labels={SITE: "x"}, taints=passing), node("b", "h200", labels={SITE: "y"})]
    assert len(grouped(nodes, HARDWARE).groups) == 1


def test_flavors_tell_pools_apart_and_the_queues_own_go_first() -> None:
    nodes = [node("a", "h200", labels={SITE: "x"}), node("b", "h200", labels={SITE: "y"})]
    flavors = [FlavorStock("all"), FlavorStock("x", {SITE: "x"}), FlavorStock("y", {SITE: "y"})]
    assert [group.flavor for group in grouped(nodes, HARDWARE, flavors).groups] == ["x", "y"]
    narrow = grouped(nodes, HARDWARE, flavors, frozenset({"all", "x"}))
    assert [(group.flavor, dict(group.selector or {})) for group in narrow.groups] == [
        ("all", {SITE: "y"}),
        ("x", {SITE: "x"}),
    ]
    twins = [FlavorStock("one", {SITE: "x"}), FlavorStock("two", {SITE: "x"})]
    assert [group.flavor for group in grouped(nodes[:1], HARDWARE, twins).groups] == [""]


@rows("cluster_import/pooling")
def test_nodes_that_are_nobodys_are_left_out(changes: dict[str, object], why: str) -> None:
    odd = node("odd", "h200", labels=changes.pop("labels", {}))  # pyright: ignore[reportArgumentType]
    found = grouped([replace(odd, **changes), node("a", "h200")], HARDWARE)  # pyright: ignore[reportArgumentType]
    assert dict(found.left_out)["odd"] == why


def test_nodes_that_take_no_pods_need_not_be_told_apart_by_labels() -> None:
    control = node("control", taints=("node-role.kubernetes.io/control-plane=:NoSchedule",))
    found = grouped([control, node("worker"), replace(node("gone"), leaving=True)], HARDWARE)
    assert [item.name for item in found.groups[0].nodes] == ["worker"]
    assert sorted(dict(found.left_out)) == ["control", "gone"]


def test_labels_of_a_state_or_of_one_node_never_select() -> None:
    passing = {
        "nvidia.com/cuda.driver.major": "550",
        "feature.node.kubernetes.io/kernel-version.full": "6.8",
        "primus-flows.io/verdict": "pass",
        "primus-flows.io/rack": "r1",
        "autopilot.ibm.com/gpuhealth": "PASS",
        "topology.k8s.aws/network-node-layer-3": "nn-1",
        "machine-id": "77",
    }
    nodes = [NodeStock("a", labels=passing), NodeStock("b")]
    assert LabelTable(nodes).selector(nodes[:1]) is None
    assert LabelTable(nodes).lookalikes(nodes[:1]) == {"b"}
    device = {"amd.com/gpu.device-id": "74a1"}
    assert (
        LabelTable([NodeStock("a", labels=passing | device), nodes[1]]).selector(
            [NodeStock("a", labels=passing | device)]
        )
        == device
    )


HOST = labels.HOSTNAME
RACK, BLOCK = "cloud.provider.com/topology-rack", "cloud.provider.com/topology-block"


def placed(*pairs: tuple[str, str], rack: str = RACK, block: str = BLOCK) -> list[NodeStock]:
    return [NodeStock(f"n{index}", labels={rack: one, block: two}) for index, (one, two) in enumerate(pairs)]


@pytest.mark.parametrize(
    ("nodes", "levels", "expected"),
    [
        (placed(("r1", "b1"), ("r1", "b1"), ("r2", "b1"), ("r3", "b2")), (), (2, 2, RACK, BLOCK)),
        (placed(("r1", ""), ("r2", "")), (), (1, 1, RACK, "")),
        (placed(("r1", "b1"), ("r1", "b2")), (), (2, 1, RACK, "")),
        (placed(("", "b1"), ("r1", "b1")), (), (1, 1, "", "")),
        (placed(("r1", "b1"), ("r1", "b1"), rack="x/t", block="x/p"), ("x/p", "x/t", HOST), (2, 1, "x/t", "x/p")),
        (placed(("r1", "b1"), ("r1", "b1"), rack="x/tor"), ("x/tor",), (2, 1, "x/tor", "")),
        (placed(("c1", "z"), ("c1", "z"), rack="nvidia.com/gpu.clique"), (), (2, 1, "nvidia.com/gpu.clique", "")),
    ],
)  # fmt: skip
def test_racks_and_blocks(nodes: list[NodeStock], levels: tuple[str, ...], expected: tuple[object, ...]) -> None:
    found: PoolPlaces = places(nodes, levels)
    assert (found.nodes_per_rack, found.racks_per_block, found.rack_label, found.block_label) == expected
    assert ("not known" in found.note) == (not found.rack_label or not found.block_label)


def test_our_own_labels_go_before_others() -> None:
    nodes = [NodeStock(str(index), labels={labels.RACK: "r", labels.BLOCK: "b", RACK: str(index)}) for index in "ab"]
    assert places(nodes).rack_label == labels.RACK


KINDS = st.sampled_from(["cpu", "h200", "h100", "mi300x"])
MARKS = st.dictionaries(
    st.sampled_from(["site/a", "site/b", "site/c", "node.kubernetes.io/instance-type", "x/verdict"]),
    st.sampled_from(["1", "2"]),
    max_size=4,
)
NODES = st.lists(
    st.tuples(KINDS, MARKS, st.sampled_from([(), ("a=b:NoSchedule",), ("node.kubernetes.io/x=:NoExecute",)])),
    max_size=9,
).map(
    lambda kinds: [
        node(f"n{index}", kind, labels=marks, taints=taints) for index, (kind, marks, taints) in enumerate(kinds)
    ]
)


@given(NODES)
def test_every_node_is_in_one_pool_or_left_out_and_pools_never_overlap(nodes: list[NodeStock]) -> None:
    found = grouped(nodes, HARDWARE, [FlavorStock("f", {"site/a": "1"})])
    pooled = [item.name for group in found.groups for item in group.nodes]
    assert sorted([*pooled, *(name for name, _ in found.left_out)]) == sorted(item.name for item in nodes)
    assert all(why for _, why in found.left_out)
    for group in found.groups:
        assert group.selector is not None
        assert {item.name for item in nodes if carries(item, group.selector)} == {item.name for item in group.nodes}
        assert {found.matches[item.name].hardware for item in group.nodes} == {group.hardware}


@given(NODES)
def test_no_smaller_set_of_labels_would_do(nodes: list[NodeStock]) -> None:
    for group in grouped(nodes, HARDWARE).groups:
        chosen = dict(group.selector or {})
        for key in chosen if len(chosen) > 1 else ():
            fewer = {name: value for name, value in chosen.items() if name != key}
            assert sum(carries(item, fewer) for item in nodes) > len(group.nodes)


@given(NODES, st.randoms())
def test_the_order_of_nodes_does_not_matter(nodes: list[NodeStock], random: object) -> None:
    shuffled = list(nodes)
    random.shuffle(shuffled)  # pyright: ignore
    one, two = grouped(nodes, HARDWARE), grouped(shuffled, HARDWARE)
    assert one.left_out == two.left_out
    assert [[item.name for item in group.nodes] for group in one.groups] == [
        [item.name for item in group.nodes] for group in two.groups
    ]
