"""The workflow of a sweep: rack by rack, small enough for every status, and by all our rules."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.cluster import Pool, PoolTopology
from profiles.loading.load import load_cluster, load_hardware
from workflows.lint.lint import lint
from workflows.node_tests.pods import AT_ONCE, racks_of
from workflows.node_tests.sweep import MOST, SweepPlan, deadline_seconds, sweep_workflow

WORST_STATUS_BYTES = 6144
"""Of one node: its entry in the status with a report of all checks and 12 lines of the kernel, as JSON in JSON."""


def plan(cluster: str = "local", nodes: int = 6, name: str = "node-") -> SweepPlan:
    profile = load_cluster(cluster)
    hardware = {pool.name: load_hardware(pool.hardware) for pool in profile.pools}
    racks = racks_of(profile.pools[0], [f"{name}{index}" for index in range(nodes)])
    return SweepPlan(profile, hardware, 7, tuple(racks), 1000.0)


@pytest.mark.parametrize("cluster", ["local", "local-gpus", "bed", "kubernetes-example"])
def test_it_passes_every_rule(cluster: str) -> None:
    assert lint(sweep_workflow(plan(cluster)).to_dict()) == []
    assert lint(sweep_workflow(plan(cluster, MOST)).to_dict()) == []


def test_the_largest_one_fits_with_its_status() -> None:
    largest = plan("kubernetes-example", MOST, "a-node-with-a-rather-long-name-of-some-cloud-")
    size = len(json.dumps(sweep_workflow(largest).to_dict()))
    assert size + MOST * WORST_STATUS_BYTES < 1 << 20
    with pytest.raises(ValueError, match="1 to 128 nodes"):
        sweep_workflow(plan("local", MOST + 1))
    with pytest.raises(ValueError, match="got 0"):
        sweep_workflow(plan("local", 0))


@given(st.integers(1, 100), st.integers(1, 300))
def test_every_node_stands_in_one_rack_and_racks_are_never_torn(size: int, count: int) -> None:
    pool = Pool(name="p", hardware="cpu", nodes=300, topology=PoolTopology(nodes_per_rack=size))
    names = [f"n{index}" for index in range(count)]
    racks = racks_of(pool, names)
    assert [name for rack in racks for name in rack.nodes] == names
    assert all(len(rack.nodes) % size == 0 for rack in racks[:-1])
    assert all(len(rack.nodes) <= max(size, AT_ONCE) for rack in racks)


def test_it_reads_only_and_asks_for_no_devices() -> None:
    made = sweep_workflow(plan("kubernetes-example")).to_dict()
    [look] = [item for item in made["spec"]["templates"] if "container" in item]
    mounts = {mount["name"]: mount.get("readOnly", False) for mount in look["container"]["volumeMounts"]}
    assert mounts == {"storage-0": True, "outputs": False}
    assert set(look["container"]["resources"]["limits"]) == {"cpu", "memory"}
    assert "--gpu-vendor=amd" in look["container"]["command"]
    assert made["spec"]["activeDeadlineSeconds"] == deadline_seconds(plan("kubernetes-example"))
