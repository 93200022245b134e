"""What is put on hosts: whole, the same for the same inventory, another for another one, and without a secret."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from profiles.errors import ProfileError
from tests.support.builders.kubeadm_cluster import HOSTS, kubeadm_cluster, ranges, release
from workflows.bootstrap import container_runtime, kubeadm_documents, pod_network, tuning, virtual_address
from workflows.bootstrap.host_state import host_state, sections
from workflows.bootstrap.pod_network import NodeRange


def content(cluster: Any, name: str, path: str) -> str:
    return next(file.content for file in host_state(cluster, release(), name).files if file.path == path)


def test_another_inventory_is_another_state_and_the_same_one_the_same() -> None:
    cluster = kubeadm_cluster()
    one = host_state(cluster, release(), "w1")
    assert one.fingerprint == host_state(kubeadm_cluster(), release(), "w1").fingerprint
    others = [
        host_state(kubeadm_cluster(tuning={"nofile": 5}), release(), "w1"),
        host_state(cluster, release("1.36.4"), "w1"),
        host_state(cluster, release(), "c1"),
        host_state(cluster, release(), "w1", authority="pem"),
    ]
    assert len({state.fingerprint for state in (one, *others)}) == 5


def test_each_control_plane_tells_the_other_ones_and_the_first_comes_first() -> None:
    cluster = kubeadm_cluster()
    first, second = (content(cluster, name, virtual_address.CONFIG) for name in ("c1", "c2"))
    assert "unicast_src_ip 192.0.2.11" in first
    assert first.split("unicast_peer {")[1].split("}")[0].split() == ["192.0.2.12", "192.0.2.13"]
    assert ("priority 150" in first, "priority 149" in second) == (True, True)
    assert len(sections(cluster)[0].control_planes) < virtual_address.LIVES, "a living API comes before any order"
    paths = [file.path for file in host_state(cluster, release(), "w1").files]
    assert virtual_address.CONFIG not in paths, "a worker carries no virtual address"
    outer = kubeadm_cluster(endpoint={"address": "api.example.org", "kind": "external"})
    assert virtual_address.UNIT not in host_state(outer, release(), "c1").units


def test_tuning_is_kept_over_reboots() -> None:
    wanted = {"sysctls": {"vm.swappiness": "1"}, "numa_balancing": "off", "transparent_hugepages": "madvise"}
    cluster = kubeadm_cluster(tuning={**wanted, "cpu_governor": "performance"})
    state = host_state(cluster, release(), "w1")
    assert state.sysctls["vm.swappiness"] == "1"
    assert state.sysctls["net.ipv4.ip_forward"] == "1"
    assert "-kernel.numa_balancing = 0" in content(cluster, "w1", tuning.SYSCTLS)
    script = content(cluster, "w1", tuning.SCRIPT)
    assert ("madvise" in script, "performance" in script, tuning.UNIT in state.units) == (True, True, True)
    assert tuning.UNIT not in host_state(kubeadm_cluster(), release(), "w1").units, "nothing to set, nothing to run"


def test_images_are_looked_for_in_the_mirror_first() -> None:
    mirror = {"files_url": "http://m", "registry": "m.example:5000/k8s", "registry_insecure": True}
    cluster = kubeadm_cluster(mirror=mirror, engine={"kind": "kubeadm", "containerd": {"disable_apparmor": True}})
    told = content(cluster, "w1", f"{container_runtime.REGISTRIES}/_default/hosts.toml")
    assert '[host."http://m.example:5000/v2/k8s"]' in told
    assert "override_path = true" in told
    config = content(cluster, "w1", container_runtime.CONFIG)
    assert 'sandbox_image = "registry.k8s.io/pause:3.10.2"' in config
    assert "disable_apparmor = true" in config
    secure = kubeadm_cluster(mirror={"files_url": "http://m", "registry": "m.example"})
    files = {file.path: file.content for file in host_state(secure, release(), "w1", "PEM").files}
    assert f'ca = "{container_runtime.AUTHORITY}"' in files[f"{container_runtime.REGISTRIES}/m.example/hosts.toml"]
    assert files[container_runtime.AUTHORITY] == "PEM"


def test_the_cluster_s_own_registry_is_spoken_to_without_tls() -> None:
    def folders(pulled_as: str, **mirror: object) -> dict[str, str]:
        components = [{"name": "registry", "values": {"pulled_as": pulled_as}}, {"name": "metrics-server"}]
        cluster = kubeadm_cluster(components=components, mirror={"files_url": "http://m", **mirror})
        files = host_state(cluster, release(), "w1").files
        told = {file.path: file.content for file in files if file.path.startswith(container_runtime.REGISTRIES)}
        assert len(told) == sum(file.path in told for file in files), "no file is written twice"
        return told

    path = f"{container_runtime.REGISTRIES}/10.96.64.50:5000/hosts.toml"
    url = "http://10.96.64.50:5000"
    assert folders("10.96.64.50:5000") == {
        path: f'server = "{url}"\n[host."{url}"]\n  capabilities = ["pull", "resolve"]\n'
    }
    assert folders("") == {}
    both = folders("10.96.64.50:5000", registry="m.example:5000")
    assert len(both) == 3, "the mirror's, for all registries and by its name, stay beside it"
    same = folders("m.example:5000", registry="m.example:5000/k8s")
    assert len(same) == 2
    assert "https://m.example:5000" in same[f"{container_runtime.REGISTRIES}/m.example:5000/hosts.toml"]


def test_a_file_without_a_digest_is_put_nowhere() -> None:
    with pytest.raises(ProfileError, match=r"files\.kubeadm\.sha256: is missing"):
        host_state(kubeadm_cluster(), release(files={n: {"path": n} for n in ("kubelet", "kubeadm", "kubectl")}), "w1")


def test_an_archive_is_known_by_a_stamp_with_its_digest() -> None:
    files = {name: {"path": name, "sha256": "a" * 64} for name in ("kubeadm", "kubelet", "kubectl")}
    files["cni-plugins"] = {"path": "cni.tgz", "sha256": "b" * 64, "unpack": True}  # type: ignore[dict-item]
    state = host_state(kubeadm_cluster(), release(files=files), "w1")
    stamp = "/var/lib/primus-flows/unpacked/cni-plugins"
    assert stamp in state.digests
    assert container_runtime.PLUGINS not in state.digests


def test_kubeadm_is_told_names_addresses_and_taints_and_no_secret() -> None:
    cluster = kubeadm_cluster(
        engine={"kind": "kubeadm", "kubelet": {"failSwapOn": False}, "ignore_preflight": ["Swap"]}
    )
    init, whole, kubelet, proxy = yaml.safe_load_all(kubeadm_documents.init_documents(cluster, "1.36.3", "c1"))
    assert init["nodeRegistration"]["taints"] == [
        {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    ]
    assert init["nodeRegistration"]["ignorePreflightErrors"] == ["Swap"]
    assert init["localAPIEndpoint"] == {"advertiseAddress": "192.0.2.11", "bindPort": 6443}
    assert whole["controlPlaneEndpoint"] == "192.0.2.10:6443"
    assert {"192.0.2.10", "192.0.2.12", "c3"} <= set(whole["apiServer"]["certSANs"])
    assert (kubelet["failSwapOn"], kubelet["cgroupDriver"], proxy["mode"]) == (False, "systemd", "nftables")
    [join] = yaml.safe_load_all(kubeadm_documents.join_document(cluster, "w2"))
    assert "controlPlane" not in join
    assert [one["key"] for one in join["nodeRegistration"]["taints"]] == ["primus-flows.io/startup", "team"]
    token = join["discovery"]["bootstrapToken"]["token"]
    assert (init["bootstrapTokens"][0]["token"], token) == (kubeadm_documents.TOKEN, kubeadm_documents.TOKEN)


def test_labels_are_those_that_the_rest_of_the_product_reads() -> None:
    cluster = kubeadm_cluster()
    assert kubeadm_documents.node_labels(cluster, "w1") == {
        "primus-flows.io/block": "b1",
        "primus-flows.io/pool": "cpu",
        "primus-flows.io/rack": "r4",
        "site/pool": "cpu",
        "site/row": "7",
    }
    assert kubeadm_documents.node_labels(cluster, "w2")["primus-flows.io/spare"] == "true", "the last one by name"
    assert kubeadm_documents.node_labels(cluster, "c1") == {"primus-flows.io/rack": "r1"}
    assert kubeadm_documents.taints(cluster, "c2") == (), "work may come to a control plane that is both"


def test_a_node_has_routes_to_all_others_and_none_to_itself() -> None:
    cluster = kubeadm_cluster()
    known = [*ranges(cluster), NodeRange("new", "192.0.2.99", "")]
    conflist, routes = pod_network.node_files(sections(cluster)[0].networks, known, "w1")
    assert json.loads(conflist.content)["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.244.3.0/24"}]]
    assert routes.content.splitlines() == [
        f"10.244.{index}.0/24 {host['address']}" for index, (name, host) in enumerate(HOSTS.items()) if name != "w1"
    ]
    assert pod_network.node_files(sections(cluster)[0].networks, known, "new") == []
