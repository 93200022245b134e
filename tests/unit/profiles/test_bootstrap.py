from __future__ import annotations

import time
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.bootstrap.inventory import CLUSTER_SUBJECT, Bootstrap
from profiles.bootstrap.release import ReleaseProfile
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.loading import load
from profiles.loading.validation import checked
from tests.support.cases.rows import rows
from workflows.model.bootstrap import CLUSTER

SOUND: dict[str, Any] = {
    "hosts": {
        "c1": {"address": "192.0.2.11", "role": "control-plane"},
        "c2": {"address": "192.0.2.12", "role": "control-plane"},
        "c3": {"address": "192.0.2.13", "role": "control-plane"},
        "w1": {"address": "192.0.2.14"},
    },
    "endpoint": {"address": "192.0.2.10"},
}
CLUSTER_OF_IT: dict[str, Any] = {
    "name": "made",
    "engine": "kubernetes",
    "pools": [{"name": "cpu", "hardware": "cpu", "nodes": 1}],
    "storage": [{"kind": "claim", "source": "shared", "mount_path": "/mnt"}],
    "bootstrap": SOUND,
}
RELEASE: dict[str, Any] = {
    "name": "mine",
    "version": "1.36.3",
    "files": {"kubeadm": {"path": "a"}, "kubelet": {"path": "b"}, "kubectl": {"path": "c"}},
}


def _changed(sound: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Mappings are merged, None takes away, all else replaces."""
    whole = dict(sound)
    for key, value in change.items():
        if value is None:
            whole.pop(key)
        elif isinstance(value, dict) and key != "engine":
            whole[key] = _changed(whole.get(key, {}), cast("dict[str, Any]", value))
        else:
            whole[key] = value
    return whole


def _expect(model: Any, data: dict[str, Any], field: str, words: str) -> None:
    """Refused at `field` with `words`; accepted where there is no field."""
    if not field:
        checked(model, data, "test")
        return
    with pytest.raises(ProfileError) as caught:
        checked(model, data, "test")
    assert (caught.value.field, words in caught.value.reason) == (field, True), caught.value


@rows("profiles/bootstrap")
def test_one_thing_wrong_is_refused_with_its_field(change: dict[str, Any], field: str, words: str) -> None:
    _expect(Bootstrap, _changed(SOUND, change), field, words)


@rows("profiles/bootstrap")
def test_a_cluster_and_its_hosts_say_the_same(change: dict[str, Any], field: str, words: str) -> None:
    _expect(ClusterProfile, _changed(CLUSTER_OF_IT, change), field, words)


@rows("profiles/bootstrap")
def test_a_release_is_whole(change: dict[str, Any], field: str, words: str) -> None:
    _expect(ReleaseProfile, _changed(RELEASE, change), field, words)


def test_the_word_for_the_whole_cluster_is_the_plans() -> None:
    assert CLUSTER_SUBJECT == CLUSTER


def _of(hosts: int, planes: int, prefix: int = 22) -> dict[str, Any]:
    """An inventory with `planes` control planes first; prefix: of one node's part of 10.0.0.0/9."""
    return {
        "hosts": {
            f"n{place}": {
                "address": f"172.16.{place // 250}.{place % 250 + 1}",
                "role": "both" if place < planes else "worker",
                "rack": f"rack-{place // 8}",
                "block": f"block-{place // 64}",
            }
            for place in range(hosts)
        },
        "endpoint": {"address": "172.31.255.1"},
        "networks": {"pods": "10.0.0.0/9", "services": "10.200.0.0/16", "pods_of_node": prefix},
    }


SIZES = st.one_of(st.integers(1, 40), st.integers(41, 1_000))


@settings(max_examples=30, deadline=None)
@given(SIZES, st.sampled_from([1, 3, 5, 7]))
def test_sound_inventories_of_any_size_are_accepted(hosts: int, planes: int) -> None:
    made = Bootstrap.model_validate(_of(hosts, 1 if hosts < planes else planes))
    assert len(made.control_planes) + len(made.workers) == hosts


DEFECTS: dict[str, tuple[dict[str, Any], str]] = {
    "an address twice": ({"address": "172.16.0.1"}, "address"),
    "three octets": ({"address": "172.16.1"}, "address"),
    "a name without node_ip": ({"address": "some.example.org"}, "address"),
    "an address among the pods": ({"address": "10.1.2.3"}, "address"),
    "an address among the services": ({"address": "10.200.1.2"}, "address"),
    "the endpoint's address": ({"address": "172.31.255.1"}, ""),
    "one control plane more": ({"role": "both"}, ""),
    "a rack in two blocks": ({"rack": "rack-0", "block": "elsewhere"}, "block"),
}


@settings(max_examples=60, deadline=None)
@given(st.integers(12, 400), st.sampled_from([1, 3, 5, 7]), st.sampled_from(sorted(DEFECTS)), st.data())
def test_one_defect_among_many_hosts_is_found_where_it_is(hosts: int, planes: int, defect: str, data: Any) -> None:
    change, field = DEFECTS[defect]
    name = f"n{data.draw(st.integers(planes, hosts - 1))}"
    inventory = _of(hosts, planes)
    inventory["hosts"][name] |= change
    with pytest.raises(ProfileError) as caught:
        checked(Bootstrap, inventory, "test")
    expected = f"hosts.{name}.{field}" if field else {"role": "hosts"}.get(next(iter(change)), "endpoint.address")
    # A rack that two hosts put in two blocks is told at the one of them that comes later.
    assert caught.value.field == expected, caught.value


def test_more_hosts_than_parts_of_the_network_of_pods_are_refused() -> None:
    Bootstrap.model_validate(_of(128, 3, 16))
    _expect(Bootstrap, _of(129, 3, 16), "networks.pods", "has room for 128 nodes of /16, there are 129 hosts")


def test_ten_thousand_hosts_are_checked_in_linear_time() -> None:
    def seconds(hosts: int) -> float:
        inventory, began = _of(hosts, 3, 24), time.process_time()
        Bootstrap.model_validate(inventory)
        return time.process_time() - began

    assert seconds(10_000) < 30 * max(seconds(1_000), 0.01), "ten times the hosts took more than thirty times as long"


def test_the_example_is_what_its_comments_say() -> None:
    cluster = load.load_cluster("bootstrap-example")
    assert cluster.bootstrap is not None
    assert cluster.bootstrap.control_planes == ("control-1", "control-2", "control-3")
    assert {host.pool for host in cluster.bootstrap.hosts.values() if host.works} == {"mi300x", "h200"}
    assert all(host.rack for host in cluster.bootstrap.hosts.values())


@pytest.mark.parametrize(
    ("said", "hardware", "run"),
    [
        (None, ("cpu",), "demo"),
        (None, ("mi300x", "cpu"), "demo"),
        (None, ("gb200",), "demo-gpus"),
        ("", ("mi300x",), ""),
        ("nanogpt", ("mi300x",), "nanogpt"),
    ],
)
def test_a_cluster_that_names_no_run_is_proven_by_one_that_fits(
    said: str | None, hardware: tuple[str, ...], run: str
) -> None:
    cluster = load.load_cluster("bootstrap-example")
    assert cluster.bootstrap is not None
    pools = tuple(
        cluster.pools[0].model_copy(update={"name": name, "hardware": name, "topology": None}) for name in hardware
    )
    section = cluster.bootstrap.model_copy(update={"proof_run": said})
    assert cluster.model_copy(update={"pools": pools, "bootstrap": section}).proof_run == run


def test_the_example_is_proven_by_a_run_that_fits_it() -> None:
    cluster = load.load_cluster("bootstrap-example")
    assert load.resolve(load.load_run(cluster.proof_run), cluster).pool.name in {"mi300x", "h200"}


def test_the_demo_on_gpus_takes_every_kind_that_is_known() -> None:
    listed = [load.load_hardware(item.name) for item in load.list_profiles() if item.kind == "hardware"]
    assert set(load.load_run("demo-gpus").hardware) == {one.name for one in listed if one.vendor != "none"}
