from __future__ import annotations

import re
import time
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.decisions.bootstrap.inventory_import import Imported, imported
from profiles.bootstrap.inventory import Bootstrap
from profiles.cluster import ClusterProfile
from profiles.loading import load
from tests.support.cases.rows import rows
from workflows.model.bootstrap import InventoryText

HARDWARE = ("b200", "gb200", "mi300x")
SOUND: dict[str, Any] = {
    "groups": {"kube_control_plane": ["c1"], "etcd": ["c1"], "kube_node": ["w1"]},
    "hosts": {"c1": {"ansible_host": "10.0.0.1"}, "w1": {"ansible_host": "10.0.0.2"}},
}


def _listing(groups: dict[str, Any], hosts: dict[str, Any]) -> dict[str, Any]:
    """As `ansible-inventory --list` tells it."""
    told = {name: {"hosts": members} for name, members in groups.items()}
    return {"_meta": {"hostvars": hosts}, "all": {"children": list(groups)}, **told}


def _imported(change: dict[str, Any], text: str = "", *, is_yaml: bool = False) -> Imported:
    groups = SOUND["groups"] | change.get("groups", {})
    hosts = {name: dict(told) for name, told in SOUND["hosts"].items()}
    for name, told in change.get("hosts", {}).items():
        hosts[name] = hosts.get(name, {}) | told
    return imported("made", InventoryText(text, is_yaml, _listing(groups, hosts)), HARDWARE)


def _bootstrap(made: Imported) -> Bootstrap:
    found = load.load_text(ClusterProfile, made.profile_text).bootstrap
    assert found is not None
    return found


@rows("bootstrap/inventory_import")
def test_what_is_wrong_is_named(change: dict[str, Any], where: str, words: str) -> None:
    made = _imported(change)
    assert made.profile_text == ""
    assert any(found.where == where and words in found.what for found in made.wrong), made.findings


@rows("bootstrap/inventory_import")
def test_what_is_not_taken_over_is_said(change: dict[str, Any], where: str, words: str) -> None:
    made = _imported(change)
    assert not made.wrong
    assert any(found.where == where and words in found.what for found in made.findings), made.findings
    assert f"#   {where}: " in made.profile_text
    assert "geheim" not in made.profile_text


@rows("bootstrap/inventory_import")
def test_what_a_host_says_is_taken_over(variables: dict[str, Any], host: dict[str, Any]) -> None:
    change: dict[str, Any] = {
        "groups": {"kube_node": ["new", "w1", "w2"]},
        "hosts": {"new": variables, "w1": {}, "w2": {}},
    }
    change["hosts"] |= {"w1": {"ansible_host": "10.0.0.3"}, "w2": {"ansible_host": "10.0.0.4"}}
    found = _bootstrap(_imported(change)).hosts["new"]
    assert found.model_dump(mode="json", exclude_defaults=True) | {"role": found.role} == host


def test_what_most_hosts_have_stands_once() -> None:
    ops, ada = ({"ansible_user": user, "ansible_ssh_private_key_file": "~/k"} for user in ("ops", "ada"))
    change: dict[str, Any] = {"groups": {"kube_node": ["w1", "w2"]}, "hosts": {"c1": ops, "w1": ops, "w2": ada}}
    change["hosts"]["w2"] = {"ansible_host": "10.0.0.3", **ada}
    found = _bootstrap(_imported(change))
    assert (found.ssh.user, found.ssh.private_key_file) == ("ops", "~/k")
    assert [host.user for host in found.hosts.values()] == ["", "", "ada"]


def test_roles_pools_and_networks_follow_from_groups_and_variables() -> None:
    everywhere = {
        "kube_pods_subnet": "10.233.64.0/18",
        "kube_service_addresses": "10.233.0.0/18",
        "kube_network_node_prefix": 25,
        "dns_domain": "{{ cluster_name }}",
        "cluster_name": "site.local",
        "loadbalancer_apiserver": {"address": "10.0.9.9", "port": 8443},
    }
    groups = {"kube_node": ["c1", "w1", "w2"], "gpu_GB200": ["w1", "w2"]}
    hosts = {"c1": everywhere, "w1": everywhere, "w2": {"ansible_host": "10.0.0.3"}}
    made = _imported({"groups": groups, "hosts": hosts})
    cluster, found = load.load_text(ClusterProfile, made.profile_text), _bootstrap(made)
    assert {pool.name: (pool.hardware, pool.nodes) for pool in cluster.pools} == {
        "workers": ("cpu", 1),
        "gpu-gb200": ("gb200", 2),
    }
    assert [(host.role, host.pool) for host in found.hosts.values()] == [
        ("both", "workers"),
        ("worker", "gpu-gb200"),
        ("worker", "gpu-gb200"),
    ]
    networks = found.networks
    assert (networks.pods, networks.services, networks.pods_of_node) == ("10.233.64.0/18", "10.233.0.0/18", 25)
    assert networks.domain == "site.local"
    assert found.endpoint is not None
    assert (found.endpoint.address, found.endpoint.port, found.endpoint.kind) == ("10.0.9.9", 8443, "external")


def test_a_bastion_is_the_host_to_jump_over() -> None:
    groups = {"bastion": ["gate"]}
    made = _imported({"groups": groups, "hosts": {"gate": {"ansible_host": "203.0.113.1", "ansible_user": "ops"}}})
    assert _bootstrap(made).ssh.jump == "ops@203.0.113.1"


def test_what_ansible_cannot_read_is_said_in_its_words() -> None:
    made = imported("made", InventoryText("[a\n", False, {}, "Section [a is not closed"), HARDWARE)
    assert [found.what for found in made.wrong] == ["Ansible cannot read it: Section [a is not closed"]


@pytest.mark.parametrize(
    ("text", "is_yaml"),
    [
        ("[all]\nh ansible_host=10.0.0.1\n# h\nh ansible_host=10.0.0.2 # the same\n[kube_node]\nh\n", False),
        ("all:\n  hosts:\n    h: {ansible_host: 10.0.0.1}\n\n    h: {ansible_host: 10.0.0.2}\n", True),
    ],
)
def test_two_hosts_of_one_name_are_found_in_the_text(text: str, is_yaml: bool) -> None:
    found = [finding for finding in _imported({}, text, is_yaml=is_yaml).wrong if finding.where == "h"]
    assert [finding.what.partition(" (")[0] for finding in found] == ["2 hosts of [all] are called so"]
    assert ("lines 2, 4" if not is_yaml else "lines 3, 5") in found[0].what


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80), st.booleans())
def test_any_text_is_read_or_left_to_ansible(text: str, is_yaml: bool) -> None:
    assert _imported({}, text, is_yaml=is_yaml).findings is not None


def test_the_engine_that_is_advised_for_the_sites_own_kubespray_is_one() -> None:
    made = _imported({"hosts": {"w1": {"kube_version": "v1.35.4"}}})
    advised = re.search(r"`engine: (\{kind: kubespray, .*\})`", made.profile_text)
    assert advised is not None
    engine = yaml.safe_load(advised[1])
    engine |= {"source": {"url": "/srv/kubespray.git", "commit": "a" * 40}, "environment": "/opt/kubespray"}
    section = _bootstrap(made).model_dump() | {"engine": engine}
    assert Bootstrap.model_validate(section).engine.version == "1.35.4"  # pyright: ignore[reportAttributeAccessIssue]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 60), st.integers(0, 2))
def test_what_is_imported_is_a_whole_profile(workers: int, more_planes: int) -> None:
    planes = [f"c{place}" for place in range(1, 2 + 2 * more_planes)]
    names = [*planes, "w1", *(f"n{place}.site.example.org" for place in range(workers))]
    hosts = {name: {"ansible_host": f"10.0.{place}.1"} for place, name in enumerate(names)}
    everywhere = {"kube_vip_address": "10.0.250.1"}
    groups = {"kube_control_plane": planes, "etcd": planes, "kube_node": names[len(planes) :]}
    made = _imported({"groups": groups, "hosts": {name: told | everywhere for name, told in hosts.items()}})
    found = _bootstrap(made)
    assert (list(found.hosts), found.control_planes) == (names, tuple(planes))


def test_many_hosts_are_read_in_linear_time() -> None:
    def seconds(number: int) -> float:
        hosts = {f"n{place}": {"ansible_host": f"10.{place // 250}.{place % 250}.1"} for place in range(number)}
        wide = {"kube_pods_subnet": "172.16.0.0/12", "kube_service_addresses": "192.168.0.0/16"}
        told = {"kube_control_plane": ["n0"], "etcd": ["n0"], "kube_node": [*hosts], "gpu_b200": [*hosts]}
        hosts["n0"] |= wide
        text = "\n".join(f"{name} ansible_host={said['ansible_host']}" for name, said in hosts.items())
        began = time.process_time()
        assert not imported("made", InventoryText(text, False, _listing(told, hosts)), HARDWARE).wrong
        return time.process_time() - began

    assert seconds(3_000) < 35 * max(seconds(300), 0.01), "ten times the hosts took more than thirty times as long"
