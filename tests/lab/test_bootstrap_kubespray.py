"""`primus bootstrap` with a site's own Kubespray on real hosts: `make bootstrap-kubespray`.

PRIMUS_KUBESPRAY: a checkout; PRIMUS_KUBESPRAY_COMMIT: its commit; PRIMUS_KUBESPRAY_ENVIRONMENT: a Python environment
with the Ansible that it accepts (else ours); PRIMUS_KUBESPRAY_VERSION: of Kubernetes; PRIMUS_KUBESPRAY_VARIABLES: group
variables over those below, a YAML file, e.g. where files and images come from. Hosts of the lab reach nothing but this
machine: a mirror on it must serve all that Kubespray fetches.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from profiles.loading.load import dump, load_cluster
from tests.lab.lab import Lab
from tests.lab.test_bootstrap import Commands
from tests.support.running.waiting import patience
from workflows.model.bootstrap import Stage

COPY, COMMIT = os.environ.get("PRIMUS_KUBESPRAY", ""), os.environ.get("PRIMUS_KUBESPRAY_COMMIT", "")
pytestmark = [
    pytest.mark.skipif(
        not COPY or not COMMIT, reason="PRIMUS_KUBESPRAY (a checkout) and PRIMUS_KUBESPRAY_COMMIT are not set"
    ),
    pytest.mark.timeout(patience(7200.0), method="signal"),
]
COMMAND_S = patience(3600.0)
VARIABLES: dict[str, Any] = {
    # Version 1 of control groups, no right to raise limits, no modules to load: these are no machines of their own.
    "kubelet_fail_cgroup_v1": False,
    "kubelet_cgroup_driver": "cgroupfs",
    "containerd_use_systemd_cgroup": False,
    "containerd_extra_runtime_args": {"restrict_oom_score_adj": True},
    "containerd_disable_apparmor": True,
    "kubeadm_ignore_preflight_errors": ["SystemVerification"],
    "kube_proxy_mode": "iptables",
    "kube_proxy_conntrack_max_per_core": 0,
    "kube_proxy_conntrack_min": 0,
    "kube_proxy_conntrack_tcp_close_wait_timeout": "0s",
    "kube_proxy_conntrack_tcp_established_timeout": "0s",
    # Routes between hosts of one network: no tunnel, and so no module of the kernel.
    "kube_network_plugin": "flannel",
    "flannel_backend_type": "host-gw",
    "enable_nodelocaldns": False,
    "enable_dns_autoscaler": False,
    "resolvconf_mode": "none",
    "disable_host_nameservers": True,
    "ntp_enabled": False,
}


@pytest.fixture(scope="module")
def commands(standing: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """With a home and a profile of its own; afterwards nothing was done to hosts."""
    folder = tmp_path_factory.mktemp("kubespray")
    path = folder / "made.yaml"
    path.write_text(written(standing), encoding="utf-8")
    standing.renew(*standing.hosts)
    made = Commands(folder / "home", path, COMMAND_S)
    yield made
    made.ledger.close()
    standing.renew(*standing.hosts)


def written(lab: Lab) -> str:
    """The lab's profile, with Kubespray in place of kubeadm."""
    file = os.environ.get("PRIMUS_KUBESPRAY_VARIABLES", "")
    own: dict[str, Any] = yaml.safe_load(Path(file).read_text(encoding="utf-8")) if file else {}
    engine = {
        "kind": "kubespray",
        "source": {"url": COPY, "commit": COMMIT},
        "environment": os.environ.get("PRIMUS_KUBESPRAY_ENVIRONMENT", sys.prefix),
        "version": os.environ.get("PRIMUS_KUBESPRAY_VERSION", "1.36.3"),
        "variables": VARIABLES | own,
    }
    found = load_cluster(str(lab.profile))
    assert found.bootstrap is not None
    section = found.bootstrap.model_dump(mode="json") | {"engine": engine, "mirror": {}}
    section["join_seconds"] = 600.0
    return dump(type(found).model_validate(found.model_dump(mode="json") | {"bootstrap": section}))


def test_a_sites_kubespray_makes_the_hosts_a_cluster_and_one_leaves_and_joins(lab: Lab, commands: Commands) -> None:
    assert commands.run("--check")["word"] == "done"
    first, last = lab.hosts[0].name, lab.hosts[-1].name
    seconds = commands.killed_once(Stage.CONTROL_PLANE, first)
    print(f"killed {seconds:.1f} s after it was started")
    told = commands.run()
    for step in told["steps"]:
        print(f"{step['id']:28} {step['seconds']} s: {step['why'][:80]}")
    assert {word for row in told["table"].values() for word in row.values()} == {"pass"}
    nodes = json.loads(lab.host(first).run("kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes -o json"))
    assert len(nodes["items"]) == len(lab.hosts)
    kubeconfig = commands.home / "clusters" / "made" / "kubeconfig"
    assert kubeconfig.stat().st_mode & 0o777 == 0o600
    begun = commands.begun()
    commands.run()
    assert commands.begun() == begun, "a proven cluster is only looked at"
    assert all(line.startswith("engine kubespray: ") for line in commands.run("--drift")["notes"])
    assert commands.run("--leave", last)["word"] == "done"
    assert commands.run("--join", last)["word"] == "done"
