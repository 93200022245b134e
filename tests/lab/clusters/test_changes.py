"""Other settings on real hosts: brought to every node in turn, put back where they fail, refused by their field."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.asking import asking, load
from tests.lab.commands import Commands
from tests.lab.hosts import Host
from tests.lab.lab import Lab
from tests.support.running.waiting import patience
from workflows.model.bootstrap import Stage

API_AWAY_S = patience(10.0)
pytestmark = pytest.mark.timeout(patience(1500.0))
KUBECTL = "kubectl --kubeconfig /etc/kubernetes/admin.conf"
OTHER: dict[str, Any] = {
    "kubelet": {"maxPods": 97},
    "kube_proxy": {"nftables": {"syncPeriod": "41s"}},
    "arguments": {"kube-apiserver": {"profiling": "false"}},
    "containerd": {"max_container_log_line_size": 20_000},
}
SETTINGS = "/var/lib/kubelet/config.yaml /etc/kubernetes/manifests"


@pytest.fixture
def proven(standing: Lab, commands: Commands) -> Iterator[Commands]:
    """As the lab's profile wants it."""
    commands.profile = standing.profile
    assert commands.run()["word"] == "done"
    yield commands
    commands.profile = standing.profile


def running(lab: Lab, host: Host) -> dict[str, str]:
    """What programs of a node run with, as they say themselves: pods, kube-proxy's period, an argument."""
    plane = lab.hosts[0]
    found = json.loads(plane.run(f"{KUBECTL} get --raw /api/v1/nodes/{host.name}/proxy/configz"))
    proxy = host.run(
        "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:10249/configz\").read().decode())'"
    )
    node = json.loads(plane.run(f"{KUBECTL} get node {host.name} -o json"))
    arguments = host.run("tr '\\0' ' ' </proc/$(pgrep -x kube-apiserver || echo self)/cmdline")
    period = json.loads(proxy)["kubeproxy.config.k8s.io"]
    return {
        "kubelet": str(found["kubeletconfig"]["maxPods"]),
        "node": str(node["status"]["capacity"]["pods"]),
        "kube-proxy": str(period.get("SyncPeriod") or period.get("syncPeriod") or period),
        "kube-apiserver": "--profiling=false" if "--profiling=false" in arguments else "",
    }


def test_other_settings_come_to_every_node_in_turn_though_the_command_is_killed(
    standing: Lab, proven: Commands, tmp_path: Path
) -> None:
    commands, names = proven, [host.name for host in standing.hosts]
    first, second = names[:2]
    before = commands.begun()
    commands.profile = commands.other_profile(tmp_path / "made.yaml", **OTHER)
    told = {tuple(line.split(": ")[:2]) for line in commands.run("--drift", code=1)["notes"]}
    assert ("cluster", "kubelet maxPods") in told
    assert {(name, "kubelet maxPods") for name in names} < told
    assert (first, "kube-apiserver --profiling") in told
    began = time.monotonic()
    with asking() as asked:
        killed = commands.killed_once(Stage.CONFIGURATION, second)
        print(f"killed amid configuration/{second} after {killed:.0f} s")
        assert commands.run()["word"] == "done"
    print(f"{len(names)} nodes with other settings after {time.monotonic() - began:.0f} s ({load()})")
    assert asked.longest_s < API_AWAY_S
    begun = commands.begun() - before
    assert (begun["configuration/cluster"], begun[f"configuration/{first}"]) == (1, 1), "what held is not done again"
    assert begun[f"configuration/{names[2]}"] == 1
    assert {step.partition("/")[0] for step in begun} == {"hosts", "configuration"}, begun
    assert {begun[f"hosts/{name}"] for name in names} == {1}
    for host in standing.hosts:
        seen = running(standing, host)
        assert (seen["kubelet"], seen["node"]) == ("97", "97"), host.name
        assert "41" in seen["kube-proxy"], host.name
        assert "20000" in host.run("containerd config dump"), host.name
        if host.name in names[:3]:
            assert seen["kube-apiserver"], host.name
    kept = standing.host(first).run(
        "ls /var/lib/primus-flows/etcd-snapshots/*.db; ls -d /var/lib/primus-flows/before 2>&1 || true"
    )
    assert ".db" in kept
    assert "No such file" in kept
    begun = commands.begun()
    assert (commands.run()["word"], commands.begun()) == ("done", begun), "a second run does nothing"
    assert commands.run("--drift")["notes"] == []


def test_settings_that_no_kubelet_bears_are_put_back_and_reach_no_other_node(
    standing: Lab, proven: Commands, tmp_path: Path
) -> None:
    commands = proven
    first, *others = standing.hosts
    before = {host.name: host.files_digest(SETTINGS.split()) for host in standing.hosts}
    ages = {host.name: host.run("stat -c %Y /proc/$(pgrep -x kubelet)") for host in others}
    broken = {"evictionHard": {"memory.available": "much"}}
    commands.profile = commands.other_profile(tmp_path / "made.yaml", kubelet=broken)
    told = commands.run(code=1)
    assert told["why"].startswith(f"failed: configuration/{first.name} (kubelet evictionHard")
    assert {host.name: host.files_digest(SETTINGS.split()) for host in standing.hosts} == before
    assert {host.name: host.run("stat -c %Y /proc/$(pgrep -x kubelet)") for host in others} == ages
    log = (commands.home / "logs" / "bootstrap" / "made" / f"{first.name}.log").read_text()
    assert "put back" in log
    assert "much" in log, "kubelet's own words are told"
    assert first.run("systemctl is-active kubelet").strip() == "active"
    commands.profile = standing.profile
    assert commands.run()["word"] == "done"
    assert commands.run("--drift")["notes"] == []


def test_what_was_changed_by_hand_is_found_and_put_right(standing: Lab, proven: Commands) -> None:
    commands, (one, two) = proven, standing.hosts[:2]
    one.run("sed -i 's/maxPods.*//; $ a maxPods: 33' /var/lib/kubelet/config.yaml")
    manifest = "/etc/kubernetes/manifests/kube-apiserver.yaml"
    two.run(f"sed -i 's/    - --secure-port/    - --v=1\\n    - --secure-port/' {manifest}")
    own = "kubeadm init phase certs apiserver --config /root/own.yaml"
    settings = yaml.safe_load(
        one.run(f"{KUBECTL} -n kube-system get cm kubeadm-config -o jsonpath='{{.data.ClusterConfiguration}}'")
    )
    settings["apiServer"]["certSANs"] = []
    local = {
        "apiVersion": settings["apiVersion"],
        "kind": "InitConfiguration",
        "localAPIEndpoint": {"advertiseAddress": one.address},
    }
    one.write("/root/own.yaml", yaml.safe_dump_all([settings, local]))
    one.run(f"cd /etc/kubernetes/pki && rm apiserver.crt apiserver.key && {own} && rm /root/own.yaml")
    expected = {
        (one.name, "kubelet maxPods"),
        (one.name, "begin of kubelet"),
        (two.name, "kube-apiserver --v"),
        (one.name, "certificate of the API server"),
    }
    deadline = time.monotonic() + patience(120.0)
    while True:
        found = {tuple(line.split(": ")[:2]) for line in commands.run("--drift", code=1)["notes"]}
        if found == expected or time.monotonic() > deadline:  # static pods and certificates are taken up by themselves
            break
    assert found == expected
    with asking() as asked:
        assert commands.run()["word"] == "done"
    assert asked.longest_s < API_AWAY_S
    assert commands.run("--drift")["notes"] == []


CHANGES = {
    "name": ("name", "name"),
    "pods": ("bootstrap.networks.pods", "pods"),
    "services": ("bootstrap.networks.services", "services"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_what_a_cluster_keeps_for_ever_is_refused_before_the_first_change(
    standing: Lab, proven: Commands, tmp_path: Path, case: str
) -> None:
    commands, (field, name) = proven, CHANGES[case]
    whole = yaml.safe_load(commands.profile.read_text())
    networks, other = whole["bootstrap"]["networks"], {"pods": "10.240.0.0/16", "services": "10.241.0.0/16"}
    if case == "name":
        found, whole["name"] = whole["name"], "other"
    else:
        found, networks[name] = networks[name], other[name]
    (tmp_path / "made.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))
    commands.profile, begun = tmp_path / "made.yaml", commands.begun()
    before = {host.name: host.files_digest(["/etc", "/var/lib/kubelet/config.yaml"]) for host in standing.hosts}
    for words in ((), ("--check",)):
        out, said = commands.ended(*words, code=2)
        assert f"{field}: found {found}, wanted {other.get(name, 'other')}" in out + said
    assert commands.begun() == begun
    assert {host.name: host.files_digest(["/etc", "/var/lib/kubelet/config.yaml"]) for host in standing.hosts} == before
    notes = commands.run("--drift", code=1)["notes"]
    assert f"cluster: {field}: wanted {other.get(name, 'other')}, found {found}" in notes
